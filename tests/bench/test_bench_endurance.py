"""`bench abuse --endure`: attacks of full size on a gateway with the settings of deploy/. No speed is looked at."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from edgelab.bench import command
from edgelab.bench.abuse.endurance import (
    ENDURED,
    EnduranceOutcome,
    endurance_json,
    endurance_table,
    merged,
    toml_text,
)

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the benchmark needs Linux")
SECONDS = "3"
ATTACKS = ("deep-retained", "queued-messages", "handshakes", "groups")
"""One of each kind: what a restart has to read, what waits, what is held before CONNECT, and what costs time."""


@LINUX
@pytest.mark.live
@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_the_shipped_settings_come_through_attacks(name: str, root: Path) -> None:
    """Each is one of those that `bench abuse --endure` knows.

    The gateway lives within the MemoryMax of its unit, measured as peak RSS, and serves after kill -9.
    """
    assert name in ENDURED
    settings = str(root / "deploy/systemd/gateway.toml")
    done = CliRunner().invoke(command, ["abuse", "--endure", SECONDS, "--config", settings, "--only", name, "--json"])
    assert done.exit_code in (0, 1), done.output
    (told,) = json.loads(done.stdout)["endured"]
    assert told["failure"] == ""
    assert told["done"] > 0
    unit = (root / "deploy/systemd/edgebroker.service").read_text()
    assert f"\nMemoryMax={told['cap_mib']}M\n" in unit
    assert "memory" not in told["unmet"], told
    assert told["newcomer"]["tries"] > 0
    assert told["newcomer"]["refused"] == 0
    assert told["restart_s"] > 0, "it served"


def test_an_attack_has_the_settings_of_the_operator_and_what_it_cannot_do_without() -> None:
    settings = {"data": {"dir": "/var/x"}, "quota": {"memory_bytes_max": 7}, "http": {"host": "::1"}, "log": {}}
    attack = {"quota": {"sessions_max": 1}, "access": {"password_file": "u"}, "listener": [{"name": "a"}, {"port": 3}]}
    found = merged(settings, attack, "/tmp/f", 5)
    assert found == {
        "data": {"dir": "/tmp/f/data"},
        "quota": {"memory_bytes_max": 7},
        "http": {"host": "::1", "port": 5},
        "log": {},
        "access": {"password_file": "u"},
        "listener": [{"name": "a"}, {"port": 3}],
    }
    assert tomllib.loads(toml_text(found)) == found


def outcome(**changes: Any) -> EnduranceOutcome:
    made = EnduranceOutcome("deep-retained", 224, 9, "messages", 28.0, 100.0, 110.0, 60.0, share=1.0, p99_ms=20.0)
    made.newcomer, made.restart_s = {"tries": 9, "refused": 0, "slowest_s": 0.1}, 1.0
    for name, value in changes.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("changes", "unmet"),
    [
        ({}, []),
        ({"peak_mib": 224.1}, ["memory"]),
        ({"counted_mib": 42.0}, ["counted"]),
        ({"counted_mib": 102.0}, ["counted"]),
        ({"counted_mib": 0.0, "name": "passwords"}, []),
        ({"counted_mib": 0.0, "under_attack_mib": 39.0}, []),
        ({"newcomer": {"tries": 9, "refused": 1, "slowest_s": 0.1}}, ["newcomer"]),
        ({"newcomer": {"tries": 9, "refused": 0, "slowest_s": 2.1}}, ["newcomer"]),
        ({"share": 0.98, "p99_ms": 51.0}, ["share", "p99"]),
        ({"restart_s": 11.0}, ["restart"]),
        ({"failure": "gone", "newcomer": {}}, ["gone"]),
    ],
)
def test_what_is_not_as_it_should_be_is_named(changes: dict[str, Any], unmet: list[str]) -> None:
    made = outcome(**changes)
    assert made.unmet() == unmet
    about = {"version": "x", "seconds": 5, "machine": {"cores": 2}}
    assert json.loads(endurance_json([made], about))["endured"][0]["unmet"] == unmet
    assert endurance_table([made], about).splitlines()[-1].endswith(", ".join(unmet) or "-")


@LINUX
def test_to_endure_something_takes_settings() -> None:
    done = CliRunner().invoke(command, ["abuse", "--endure", "1"])
    assert done.exit_code == 2
    assert "--endure needs --config" in done.output
