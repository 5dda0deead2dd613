"""`edgebroker journal` beside a gateway that runs, after one that was killed, and on damage."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import ENVIRONMENT, PATIENCE_S, V5, Gateway, Guest, leave_for_a_sleeper

pytestmark = pytest.mark.live
MESSAGES = 20


def journal(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edgebroker", "journal", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=ENVIRONMENT)


def checked(data: Path) -> tuple[int, dict]:
    done = journal("check", data, "--json")
    return done.returncode, json.loads(done.stdout)


def filled(start_gateway: Callable[..., Gateway], data: Path) -> Gateway:
    """A gateway that keeps messages for a sleeping reader."""
    gateway = start_gateway("--data", str(data))
    leave_for_a_sleeper(gateway.port, *(f"message {number:02d}".encode() for number in range(MESSAGES)))
    return gateway


def test_a_journal_can_be_looked_at_while_it_is_written(start_gateway: Callable[..., Gateway], tmp_path: Path) -> None:
    gateway = filled(start_gateway, tmp_path)
    code, report = checked(tmp_path)
    assert (code, report["ended"]) == (0, "not yet")
    assert report["owner"].startswith(f"process {gateway.process.pid} ")
    shown = journal("show", tmp_path, "--json", "--kind", "message")
    found = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [(one["kind"], one["topic"], one["qos"]) for one in found] == [("message", "t", 1)] * MESSAGES
    gateway.stop()
    assert checked(tmp_path)[1]["ended"] == "cleanly"


def test_damage_is_told_and_set_aside_when_a_gateway_has_stated_everything_again(
    start_gateway: Callable[..., Gateway], tmp_path: Path
) -> None:
    gateway = filled(start_gateway, tmp_path)
    gateway.process.kill()
    gateway.process.communicate(timeout=PATIENCE_S)
    code, report = checked(tmp_path)
    assert (code, report["ended"]) == (0, "by a crash")
    [segment] = [path for path in (tmp_path / "journal").glob("*.ebj") if b"message 10" in path.read_bytes()]
    data = bytearray(segment.read_bytes())
    data[data.index(b"message 10")] ^= 1
    segment.write_bytes(data)
    code, report = checked(tmp_path)
    [damage] = report["damage"]
    assert (code, damage["file"], damage["first"]) == (1, segment.name, damage["last"])

    second = start_gateway("--data", str(tmp_path))
    writer = Guest(second.port, V5, "writer")
    writer.connect()
    until = time.monotonic() + PATIENCE_S
    while not report["quarantine"] and time.monotonic() < until:
        writer.publish("t", b"one more")
        code, report = checked(tmp_path)
    assert (code, len(report["quarantine"]), report["damage"]) == (0, 1, [])
    assert segment.name in report["quarantine"][0]
    writer.leave()
    second.stop()
