"""`edgebroker check` and the files that settings name: all problems, each at the line of its key."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from edgebroker.cli.check import command as check

BRIDGE = '[[bridge]]\nname = "{0}"\naddresses = ["h:1"]\ntopic = ["{0}/# out 1"]\n'
TLS = 'tls_certificate = "{0}.crt"\ntls_key = "{0}.key"\n'
CLIENTS = 'tls_client = "required"\ntls_client_ca = "ca"\ntls_client_crl = "crl"\n'
TOPOLOGY = (
    '[federation]\nname = "f"\n[factor]\ntree = "a"\n[[site]]\nname = "s"\n[[gateway]]\nname = "{}"\nsite = "s"\n'
)
TOKEN = "sixteen-letters-and-more\n"
ALL_NAMED = (
    f"[listener]\n{TLS.format('door')}{CLIENTS}{BRIDGE.format('a')}"
    f'password_file = "secret"\ntls_ca = "roots"\n{TLS.format("own")}'
    '[access]\nacl_file = "rules"\npassword_file = "users"\ntoken_keys = "keys"\n'
    '[http]\nport = 0\ntoken_file = "tokens"\n'
    f'[overlay]\ntopology = "plant"\n{TLS.format("peer")}tls_ca = "peers"\ntls_crl = "gone"\n'
)
"""Settings with every key that names a file."""
ALL_PLACES = [
    ("g.toml", 2, "listener.tls_certificate", "door.crt"),
    ("g.toml", 3, "listener.tls_key", "door.key"),
    ("g.toml", 5, "listener.tls_client_ca", "ca"),
    ("g.toml", 6, "listener.tls_client_crl", "crl"),
    ("g.toml", 11, "bridge.password_file", "secret"),
    ("g.toml", 12, "bridge.tls_ca", "roots"),
    ("g.toml", 13, "bridge.tls_certificate", "own.crt"),
    ("g.toml", 14, "bridge.tls_key", "own.key"),
    ("g.toml", 16, "access.acl_file", "rules"),
    ("g.toml", 17, "access.password_file", "users"),
    ("g.toml", 18, "access.token_keys", "keys"),
    ("g.toml", 21, "http.token_file", "tokens"),
    ("g.toml", 23, "overlay.topology", "plant"),
    ("g.toml", 24, "overlay.tls_certificate", "peer.crt"),
    ("g.toml", 25, "overlay.tls_key", "peer.key"),
    ("g.toml", 26, "overlay.tls_ca", "peers"),
    ("g.toml", 27, "overlay.tls_crl", "gone"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def problems(folder: Path, text: str) -> list[dict[str, Any]]:
    """Of settings in a file, as programs get them; people get the same."""
    (folder / "g.toml").write_text(f'{text}[data]\ndir = "data"\n')
    for_people, for_programs = (CliRunner().invoke(check, ["g.toml", *options]) for options in ([], ["--json"]))
    assert (for_people.exit_code, for_programs.exit_code) == (2, 2)
    found: list[dict[str, Any]] = json.loads(for_programs.output)["problems"]
    said = [f"{one['file']}:{one['line']}: {one['key']}: {one['reason']}; {one['mend']}" for one in found]
    assert for_people.output.splitlines() == said
    return found


def places(found: list[dict[str, Any]]) -> list[tuple[str, int, str, str]]:
    """Where each problem is, and what comes first in its reason: the file that is meant."""
    return [(one["file"], one["line"], one["key"], one["reason"].split()[0].rstrip(":")) for one in found]


def test_files_that_are_missing_are_told_all_at_once(folder: Path) -> None:
    found = problems(folder, ALL_NAMED)
    assert places(found) == ALL_PLACES
    assert all("No such file or directory" in one["reason"] and one["mend"] for one in found)


def test_a_pipe_is_refused_and_nobody_waits_for_who_would_write_to_it(folder: Path) -> None:
    for _, _, key, name in ALL_PLACES:
        if key != "overlay.topology":  # may be a pipe, as settings may: `check` is given them by a shell
            os.mkfifo(folder / name)
    found = problems(folder, ALL_NAMED)
    assert all(one["reason"].endswith("is a pipe") for one in found if one["key"] != "overlay.topology")
    assert places(found) == ALL_PLACES


def test_what_is_wrong_inside_a_file_has_its_line_there_too(folder: Path) -> None:
    (folder / "rules").write_text("user anna\ntopik a\npatern b\n")
    (folder / "tokens").write_text(f"{TOKEN}short\n{TOKEN}two words and more\n")
    (folder / "plant").write_text(TOPOLOGY.format("g") + "prot = 1\n")
    (folder / "door.crt").write_text("no certificate\n")
    (folder / "ca").write_text("no certificate either\n")
    text = f"[listener]\n{TLS.format('door')}{CLIENTS}"
    text += '[access]\nacl_file = "rules"\n[http]\nport = 0\ntoken_file = "tokens"\n[overlay]\ntopology = "plant"\n'
    found = problems(folder, text)
    assert places(found) == [
        ("g.toml", 2, "listener.tls_certificate", "door.crt"),
        ("g.toml", 3, "listener.tls_key", "door.key"),
        ("g.toml", 5, "listener.tls_client_ca", "ca"),
        ("g.toml", 6, "listener.tls_client_crl", "crl"),
        ("g.toml", 8, "access.acl_file", "rules:2"),
        ("g.toml", 8, "access.acl_file", "rules:3"),
        ("g.toml", 11, "http.token_file", "tokens:2"),
        ("g.toml", 11, "http.token_file", "tokens:4"),
        ("g.toml", 13, "overlay.topology", "plant:10"),
    ]
    assert found[-1]["reason"] == "plant:10: gateway.prot: unknown key"


def test_of_several_sections_each_has_its_own_line(folder: Path) -> None:
    text = "".join(f"[[listener]]\nport = {number}\n{TLS.format(number)}" for number in (1, 2))
    text += "".join(BRIDGE.format(name) + f'password_file = "{name}"\n' for name in ("a", "b"))
    assert places(problems(folder, text)) == [
        ("g.toml", 3, "listener.tls_certificate", "1.crt"),
        ("g.toml", 4, "listener.tls_key", "1.key"),
        ("g.toml", 7, "listener.tls_certificate", "2.crt"),
        ("g.toml", 8, "listener.tls_key", "2.key"),
        ("g.toml", 13, "bridge.password_file", "a"),
        ("g.toml", 18, "bridge.password_file", "b"),
    ]


def test_a_gateway_that_the_topology_does_not_have(folder: Path) -> None:
    (folder / "plant").write_text(TOPOLOGY.format("other"))
    (problem,) = problems(folder, '[overlay]\ntopology = "plant"\n')
    assert places([problem]) == [("g.toml", 2, "overlay.topology", "plant")]
    assert "none is called 'gateway'" in problem["reason"]


def test_bridges_that_were_added_have_a_file_of_their_own(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data/bridges.toml").write_text(BRIDGE.format("b") + BRIDGE.format("c") + 'password_file = "none"\n')
    found = problems(folder, BRIDGE.format("a") + 'tls_ca = "lost"\n')
    assert places(found) == [
        ("g.toml", 5, "bridge.tls_ca", "lost"),
        ("data/bridges.toml", 9, "bridge.password_file", "data/none"),
    ]
