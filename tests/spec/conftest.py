"""What the tests of specifications share."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgebroker.filters import payloads

from ..support.mosquitto_import import Importer, importer


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "clause(*numbers): the sentences of a specification that the test shows")


@pytest.fixture
def without_orjson(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A function after which payloads are read with the standard library, as where orjson is not installed."""
    return lambda: monkeypatch.setattr(payloads, "_fast_loads", None)


@pytest.fixture(params=["orjson", "json"])
def library(request: pytest.FixtureRequest, without_orjson: Callable[[], None]) -> str:
    """Runs the test once with each JSON library."""
    if request.param == "json":
        without_orjson()
    elif importlib.util.find_spec("orjson") is None:
        pytest.skip("orjson is not installed")
    return str(request.param)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many statements of the MQTT standards have tests, here and elsewhere (docs/conformance.md names them)."""
    tool = Path(__file__).resolve().parents[2] / "tools" / "conformance.py"
    counted = subprocess.run([sys.executable, str(tool), "--count"], capture_output=True, text=True, check=False)
    terminalreporter.section("clauses covered")
    terminalreporter.write_line((counted.stdout or counted.stderr).rstrip())


@pytest.fixture
def importing(tmp_path: Path) -> Importer:
    """Translates the text of a configuration of Mosquitto."""
    return importer(tmp_path)
