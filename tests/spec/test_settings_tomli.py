"""Settings are the same whether tomli reads them or the standard library's tomllib."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from edgebroker.runtime.settings import Settings, SettingsRefused, reading

ODD_TOML = (
    '[listener]\nport = 1_884 # "0\n[node]\nname = "g\\u0041"',
    "[node]\nname = " + '"""\ng\\\n  h"""',
    "[log]\ndir = 'a' 'b'",
    "[log]\ndir = 'a'\ndir = 'b'",
    "listener = { port = 1,\n host = '::' }",
    "listener = { port = 1, }",
    '[node]\nname = "\\e"',
    "[limits]\nqueue_messages_max = 1e3",
    "[limits]\nqueue_messages_max = " + "9" * 900,
    "[http]\nport = 07",
    "[[listener]]\n[listener]\n",
    "[node]\nname = 1979-05-27T07:32Z",
    "[a]\nb = 1\n[a.b]\n",
    "[log]\r\ndir = '\r'",
)


@pytest.mark.parametrize("text", ODD_TOML)
def test_tomli_and_the_standard_library_read_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of them there is differs between gateways, and one settings file may be for all."""
    tomli = pytest.importorskip("tomli", reason="tomli is not installed")
    monkeypatch.setattr(reading, "toml_parser", tomli)
    quickly = read_or_refused(text)
    monkeypatch.setattr(reading, "toml_parser", tomllib)
    assert quickly == read_or_refused(text)


@pytest.mark.parametrize(("version", "is_taken"), [("2.3.2", True), ("2.4.0", False), ("2.10.1", False), (None, False)])
def test_tomli_is_taken_unless_it_takes_toml_1_1(
    version: str | None, is_taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tomli = ModuleType("tomli")
    monkeypatch.setattr(tomli, "__version__", version, raising=False)
    monkeypatch.setitem(sys.modules, "tomli", tomli if version else None)
    assert reading._reader_of_toml() is (tomli if is_taken else tomllib)


def read_or_refused(text: str) -> Settings | str:
    try:
        return Settings.parse(text, "f.toml", Path("/etc/edge"))
    except SettingsRefused as refused:
        return str(refused)
