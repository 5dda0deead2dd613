"""What a gateway keeps between runs, with real processes and Debian's clients."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import ENVIRONMENT, PATIENCE_S, V5, Gateway, Guest, leave_for_a_sleeper

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
