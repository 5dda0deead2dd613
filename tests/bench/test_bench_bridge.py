"""`edgebroker bench bridge` runs, and says what it should. Nothing here looks at a speed."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner

from edgelab.bench import command, packets, subjects
from edgelab.bench.bridge import NAMES, WORKLOADS
from edgelab.bench.bridge.traffic import STAMP, BridgeTraffic
from edgelab.bench.job import LoadFailed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmark needs /proc and pinned processes")


@pytest.mark.live
@pytest.mark.slow
def test_both_bridges_are_measured_and_lose_nothing() -> None:
    try:
        subjects.mosquitto()
    except subjects.SubjectNotFound as missing:
        pytest.skip(str(missing))
    only = ["between_qos2", "out_qos0", "latency", "backlog", "absent"]
    options = [word for name in only for word in ("--only", name)]
    done = CliRunner().invoke(command, ["bridge", "--quick", "--json", "--absent-minutes", "0.01", *options])
    assert done.exit_code == 0, done.output
    rows = {row["name"]: row for row in json.loads(done.stdout)["workloads"]}
    assert rows["between_qos2"]["ratio"] == rows["between_qos2"]["ours"] / rows["between_qos2"]["peer"] > 0
    assert rows["out_qos0"]["ours"] > 0
    assert rows["latency_p99"]["ours"] >= rows["latency_p50"]["ours"] > 0
    assert rows["backlog_drained"]["ours"] > 0
    assert rows["absent_taken"]["ours"] > 0


class Line:
    """A socket that gives what a test says, and keeps what it is given."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.sent = b""

    def recv(self, size: int, flags: int = 0) -> bytes:
        if not self.parts:
            raise BlockingIOError
        return self.parts.pop(0)

    def sendall(self, data: bytes) -> None:
        self.sent += data

    def settimeout(self, seconds: float | None) -> None:
        pass


class Party:
    """A client with such a socket. *made* has all of a test, the writer last."""

    made: ClassVar[list[Party]] = []

    def __init__(self, *_: Any) -> None:
        self.socket = Line()
        self.made.append(self)

    def subscribe(self, filters: list[str], qos: int = 0) -> None:
        pass


@pytest.fixture
def load(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> BridgeTraffic:
    monkeypatch.setattr("edgelab.bench.bridge.traffic.BenchClient", Party)
    monkeypatch.setattr(Party, "made", [])
    return BridgeTraffic(1, 2, request.param)


def message(qos: int, number: int, packet_id: int = 0) -> bytes:
    made = bytearray(packets.publish(f"bench/bridge/{qos}", bytes(packets.PAYLOAD_BYTES), packet_id if qos else None))
    made[0] = 0x30 | qos << 1
    STAMP.pack_into(made, len(made) - packets.PAYLOAD_BYTES, 0, number)
    return bytes(made)


def hear(load: BridgeTraffic, *parts: bytes) -> bytes:
    """What the reader answers to *parts*."""
    assert load.reader is not None
    line: Any = load.reader.socket
    line.parts += parts
    for _ in parts:
        load.poll()
    return bytes(line.sent)


@pytest.mark.parametrize("load", [2], indirect=True)
def test_qos_2_is_handshaken_whatever_the_pieces(load: BridgeTraffic) -> None:
    load.publish(2)
    writer = Party.made[-1].socket
    writer.parts += [b"\x50\x02\x00\x01\x50", b"\x02\x00\x02\x70\x02\x00\x01"]
    whole = message(2, 0, 7) + b"\x62\x02\x00\x07" + message(2, 1, 8)
    answers = hear(load, whole[:30], whole[30:75], whole[75:])
    assert answers == b"\x50\x02\x00\x07\x70\x02\x00\x07\x50\x02\x00\x08"
    assert writer.sent[-8:] == b"\x62\x02\x00\x01\x62\x02\x00\x02"
    assert (load.sent, load.acknowledged, load.delivered) == (2, 1, 2)


@pytest.mark.parametrize("load", [1], indirect=True)
def test_identifiers_never_become_zero(load: BridgeTraffic) -> None:
    load.sent = 65_534
    load.publish(2)
    writer = Party.made[-1].socket
    size = len(writer.sent) // 2
    at = size - packets.PAYLOAD_BYTES - 2
    assert [struct.unpack_from(">H", writer.sent, start + at)[0] for start in (0, size)] == [65_535, 1]


@pytest.mark.parametrize("load", [0, 1, 2], indirect=True)
@pytest.mark.parametrize("numbers", [(1,), (0, 0), (0, 2), (0, 1, 0)])
def test_what_is_lost_doubled_or_late_fails_the_run(load: BridgeTraffic, numbers: tuple[int, ...]) -> None:
    load.publish(3)
    qos = Party.made[-1].socket.sent[0] >> 1 & 3
    with pytest.raises(LoadFailed, match="came in the place of"):
        hear(load, *(message(qos, number, index + 1) for index, number in enumerate(numbers)))


def test_a_reader_that_was_away_counts_what_it_missed_and_had_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BenchClient", "DurableClient"):
        monkeypatch.setattr(f"edgelab.bench.bridge.traffic.{name}", Party)
    load = BridgeTraffic(1, 2, 1, is_durable=True)
    load.publish(5)
    answers = hear(load, *(message(1, number, index + 1) for index, number in enumerate((0, 3, 1, 3, 1))))
    assert len(answers) == 5 * 4
    assert (load.sent - load.delivered, load.doubled, load.overtaken) == (2, 2, 1)
    with pytest.raises(LoadFailed, match="which nobody sent"):
        hear(load, message(1, 5, 6))


@pytest.mark.parametrize("load", [1], indirect=True)
def test_what_nobody_sent_fails_the_run(load: BridgeTraffic) -> None:
    with pytest.raises(LoadFailed, match="something else than a message"):
        hear(load, b"\xd0\x00")


def test_every_workload_and_target_is_documented() -> None:
    documented = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert len(set(NAMES)) == len(NAMES)
    for workload in WORKLOADS:
        assert f"`{workload.name}`" in documented
        for measure in workload.measures:
            assert measure.target is None or str(measure.target) in documented, measure
