"""What a gateway keeps between runs, with real processes and Debian's clients."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import ENVIRONMENT, PATIENCE_S, V5, Gateway, Guest, command_line, leave_for_a_sleeper

pytestmark = pytest.mark.live
RUN = [sys.executable, "-m", "edgebroker", "run"]


def test_what_was_acknowledged_to_a_sleeping_client_survives_a_kill(
    start_gateway: Callable[..., Gateway], tmp_path: Path
) -> None:
    first = start_gateway("--data", str(tmp_path))
    sleeper = Guest(first.port, V5, "sleeper", keep=True)
    sleeper.connect()
    sleeper.subscribe("t/#", 2)
    sleeper.leave()
    writer = Guest(first.port, V5, "writer")
    writer.connect()
    for number in range(200):
        writer.publish("t/1", str(number).encode(), 1 + number % 2)
    writer.publish("r/1", b"retained", 1, retain=True)
    first.process.kill()
    first.process.communicate(timeout=PATIENCE_S)

    second = start_gateway("--data", str(tmp_path))
    sleeper = Guest(second.port, V5, "sleeper", keep=True)
    assert sleeper.connect(), "the session is there"
    heard = [int(sleeper.next().payload) for _ in range(200)]
    for qos in (1, 2):  # QoS 2 takes another round trip, so the other overtakes it
        assert [number for number in heard if 1 + number % 2 == qos] == list(range(qos - 1, 200, 2))
    sleeper.subscribe("r/#", 1)
    assert sleeper.next().payload == b"retained"
    sleeper.leave()
    second.stop()


def test_a_clean_end_keeps_everything_too(start_gateway: Callable[..., Gateway], tmp_path: Path) -> None:
    first = start_gateway("--data", str(tmp_path))
    leave_for_a_sleeper(first.port, b"kept")
    assert first.stop()["queued"] == 1
    second = start_gateway("--data", str(tmp_path))
    again = Guest(second.port, V5, "reader", keep=True)
    assert again.connect()
    assert again.next().payload == b"kept"
    again.leave()
    second.stop()


def test_a_long_queue_is_on_the_disk_survives_a_kill_and_a_lost_page_is_told(
    start_gateway: Callable[..., Gateway], tmp_path: Path
) -> None:
    count = 3_000
    first = start_gateway("--data", str(tmp_path))
    sleeper = Guest(first.port, V5, "sleeper", keep=True)
    sleeper.connect()
    sleeper.subscribe("t/#", 1)
    sleeper.leave()
    writer = Guest(first.port, V5, "writer")
    writer.connect()
    for number in range(count):
        writer.publish("t/1", str(number).encode(), 1)
    pages = sorted((tmp_path / "journal").glob("page-*.ebq"))
    assert len(pages) >= 3, "512 messages are in each, and 1,024 in memory"
    first.process.kill()
    first.process.communicate(timeout=PATIENCE_S)
    check = [sys.executable, "-m", "edgebroker", "journal", "check", str(tmp_path)]
    whole = subprocess.run(check, capture_output=True, text=True, check=False, env=ENVIRONMENT, timeout=PATIENCE_S)
    assert whole.returncode == 0, whole.stdout
    assert "parts of queues" in whole.stdout
    pages[1].unlink()
    damaged = subprocess.run(check, capture_output=True, text=True, check=False, env=ENVIRONMENT, timeout=PATIENCE_S)
    assert damaged.returncode == 1
    assert f"DAMAGE      {pages[1].name}: the file is missing" in damaged.stdout

    second = start_gateway("--data", str(tmp_path))
    sleeper = Guest(second.port, V5, "sleeper", keep=True)
    assert sleeper.connect(), "the session is there"
    heard = [int(sleeper.next().payload) for _ in range(count - 512)]
    assert heard == [number for number in range(count) if not 512 <= number < 1_024]
    sleeper.leave()
    assert second.stop()["dropped"] == {"damaged": 512}


@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="mosquitto-clients are not installed")
def test_mosquitto_sub_finds_its_session_again(start_gateway: Callable[..., Gateway], tmp_path: Path) -> None:
    first = start_gateway("--data", str(tmp_path))
    sub = ["mosquitto_sub", "-c", "-i", "sleeper", "-q", "1", "-t", "t/#", "-W", str(int(PATIENCE_S))]
    subprocess.run([*sub, "-p", str(first.port), "-E"], check=True, timeout=PATIENCE_S)
    publish = ["mosquitto_pub", "-p", str(first.port), "-t", "t/1", "-q", "1", "-m", "while away"]
    subprocess.run(publish, check=True, timeout=PATIENCE_S)
    first.process.kill()
    first.process.communicate(timeout=PATIENCE_S)
    second = start_gateway("--data", str(tmp_path))
    heard = subprocess.run(
        [*sub, "-p", str(second.port), "-C", "1"], check=True, timeout=PATIENCE_S, capture_output=True, text=True
    )
    assert heard.stdout == "while away\n"


def test_one_folder_is_for_one_gateway(start_gateway: Callable[..., Gateway], tmp_path: Path) -> None:
    first = start_gateway("--data", str(tmp_path))
    refused = subprocess.run(
        [*RUN, "--port", "0", "--data", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env=ENVIRONMENT,
    )
    assert refused.returncode == 2
    assert f"in use by process {first.process.pid}" in refused.stderr
    first.stop()


def test_a_damaged_journal_is_told_and_everything_else_is_served(
    start_gateway: Callable[..., Gateway], tmp_path: Path
) -> None:
    first = start_gateway("--data", str(tmp_path))
    leave_for_a_sleeper(first.port, *(f"message {number:02d}".encode() for number in range(20)))
    first.stop()
    [segment] = (tmp_path / "journal").glob("*.ebj")
    data = bytearray(segment.read_bytes())
    at = data.index(b"message 10")
    data[at] ^= 0xFF
    segment.write_bytes(data)
    second = start_gateway("--data", str(tmp_path), "--log-level", "warning")
    again = Guest(second.port, V5, "reader", keep=True)
    assert again.connect()
    heard = [again.next().payload.decode() for _ in range(19)]
    assert heard == [f"message {number:02d}" for number in range(20) if number != 10]
    again.leave()
    second.process.send_signal(signal.SIGTERM)
    _, told = second.process.communicate(timeout=PATIENCE_S)
    assert b"damaged" in told


def test_nothing_is_kept_if_nothing_is_to_be(start_gateway: Callable[..., Gateway], tmp_path: Path) -> None:
    first = start_gateway("--data", str(tmp_path), "--memory")
    reader = Guest(first.port, V5, "reader", keep=True)
    reader.connect()
    reader.leave()
    first.stop()
    assert "data" not in first.listening
    assert not list(tmp_path.iterdir())


def heard_by_the_sleeper(port: int, count: int) -> list[bytes]:
    reader = Guest(port, V5, "reader", keep=True)
    assert reader.connect(), "its session is there"
    heard = [reader.next().payload for _ in range(count)]
    reader.leave()
    return heard


def test_nothing_is_acknowledged_that_the_next_start_would_not_find(
    start_gateway: Callable[..., Gateway], tmp_path: Path
) -> None:
    data, away = tmp_path / "data", tmp_path / "away"
    gateway = start_gateway("--data", str(data), "--log-level", "error")
    leave_for_a_sleeper(gateway.port, b"one")
    data.rename(away)
    publish = ("pub", "-p", str(gateway.port), "-q", "1", "-t", "t", "-m")
    for _ in range(2):  # who waits for the commit that finds out, and who comes then
        code, said = command_line(*publish, "refused")
        assert (code, "the disk takes nothing: its folder was taken away or exchanged" in said) == (1, True), said
    assert command_line("pub", "-p", str(gateway.port), "-t", "t/0", "-m", "QoS 0")[0] == 0
    away.rename(data)
    until = time.monotonic() + PATIENCE_S
    while command_line(*publish, "two")[0] != 0:
        assert time.monotonic() < until, "it goes on when the folder is back"
    assert gateway.process.stderr is not None
    assert b"error journal: the disk takes nothing" in gateway.process.stderr.readline()
    gateway.kill()
    again = start_gateway("--data", str(data))
    heard = heard_by_the_sleeper(again.port, 3)  # the first that was refused was at readers already
    assert (heard[0], heard[-1]) == (b"one", b"two")
    again.stop()


def test_what_stood_in_a_segment_that_was_taken_away_is_said_again(
    start_gateway: Callable[..., Gateway], tmp_path: Path
) -> None:
    gateway = start_gateway("--data", str(tmp_path), "--log-level", "error")
    leave_for_a_sleeper(gateway.port, b"one")
    for segment in (tmp_path / "journal").glob("*.ebj"):
        segment.unlink()
    publish = ("pub", "-p", str(gateway.port), "-q", "1", "-t", "t", "-m")
    code, said = command_line(*publish, "unanswered")
    assert (code, "was taken away" in said) == (1, True), said
    until = time.monotonic() + PATIENCE_S
    while command_line(*publish, "two")[0] != 0:
        assert time.monotonic() < until
    gateway.kill()
    again = start_gateway("--data", str(tmp_path))
    assert heard_by_the_sleeper(again.port, 3) == [b"one", b"unanswered", b"two"]
    again.stop()
