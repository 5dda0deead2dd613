"""`edgebroker journal` beside a gateway that runs, after one that was killed, and on damage."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
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
    assert (code, len(report["quarantine"]), report["damage"]) == (1, 1, [])
    assert [line.split()[0] for line in report["unacknowledged"]] == [segment.name]
    assert journal("acknowledge", tmp_path).returncode == 0
    assert checked(tmp_path)[0] == 0
    assert segment.name in report["quarantine"][0]
    writer.leave()
    second.stop()


def warnings_of(gateway: Gateway) -> list[str]:
    """The warnings of `/health` about the journal; it is no reason to restart the gateway."""
    with urllib.request.urlopen(
        f"http://127.0.0.1:{gateway.listening['http']['port']}/health", timeout=PATIENCE_S
    ) as page:
        found = json.loads(page.read())
    assert found["status"] == "ok"
    return [line for line in found["warnings"] if "journal" in line]


def lose(path: Path, how: str) -> None:
    size = path.stat().st_size
    if how == "deleted":
        path.unlink()
    elif how == "zeros":
        path.write_bytes(bytes(size))
    else:
        os.truncate(path, 0 if how == "empty" else 1_024)


@pytest.mark.parametrize("how", ["deleted", "zeros", "empty", "cut off behind its header"])
@pytest.mark.parametrize("is_only", [True, False], ids=["only", "newest"])
def test_a_lost_segment_is_told_until_it_is_acknowledged(
    start_gateway: Callable[..., Gateway], tmp_path: Path, how: str, is_only: bool
) -> None:
    def start() -> Gateway:
        return start_gateway("--data", str(tmp_path), "--http", "0", "--log-level", "warning")

    def killed(gateway: Gateway) -> str:
        gateway.process.kill()
        return gateway.process.communicate(timeout=PATIENCE_S)[1].decode()

    if not is_only:
        killed(filled(start_gateway, tmp_path))
    gateway = filled(start_gateway, tmp_path)
    assert checked(tmp_path)[0] == 0
    killed(gateway)
    code, report = checked(tmp_path)
    assert (code, len(report["segments"])) == (0, 1 if is_only else 2)
    name = report["segments"][-1]["file"]
    lose(tmp_path / "journal" / name, how)
    code, report = checked(tmp_path)
    assert code == 1
    assert any(damage["open_ended"] for damage in report["damage"])
    assert name in journal("check", tmp_path).stdout

    second = start()
    assert any(name in line for line in warnings_of(second))
    told = killed(second)
    assert "the journal is damaged" in told
    assert name in told
    third = start()
    assert warnings_of(third), "whatever the journal itself says by now"
    assert checked(tmp_path)[0] == 1
    acknowledged = journal("acknowledge", tmp_path)
    assert acknowledged.returncode == 0
    assert name in acknowledged.stdout
    assert warnings_of(third) == []
    leave_for_a_sleeper(third.port, b"one more")
    killed(third)
    code, report = checked(tmp_path)
    assert (code, report["damage"], report["unacknowledged"]) == (0, [], [])
    fourth = start()
    assert warnings_of(fourth) == []
    fourth.stop()


def test_who_removes_the_whole_folder_begins_anew(start_gateway: Callable[..., Gateway], tmp_path: Path) -> None:
    data = tmp_path / "data"
    filled(start_gateway, data).stop()
    shutil.rmtree(data)
    again = start_gateway("--data", str(data), "--http", "0")
    assert warnings_of(again) == []
    again.stop()
