"""The load generator notices every way in which a broker may cheat: losing, doubling, damaging, swapping."""

import os
import sys
import threading
from dataclasses import replace

import pytest

if sys.platform != "linux":
    pytest.skip("the benchmark needs /proc and epoll", allow_module_level=True)

from edgelab.bench import acknowledged, client, paced, packets, relay, rounds, stream
from edgelab.bench.job import LoadFailed, LoadJob, LoadSample
from edgelab.bench.subjects import Subject
from edgelab.bench.trial import Cores, free_port
from edgelab.bench.workloads import WORKLOADS, Target, TargetBasis, WorkloadMeasure

STREAM = LoadJob("stream", packets_per_write=10, window=20, seconds=0.05, warmup_s=0.01)
FAN_OUT = LoadJob("stream", subscribers=3, packets_per_write=10, window=20, seconds=0.05, warmup_s=0.01)
MIXED = replace(STREAM, shape="mixed", packets_per_write=20)
FAN_IN = replace(STREAM, publishers=3, packets_per_write=1)
QOS1 = LoadJob("acknowledged", window=20, seconds=0.05, warmup_s=0.01)
PACED = LoadJob("paced", publishers=3, rate=1_000, seconds=0.1, warmup_s=0.01)
RUN = {"stream": stream.run, "acknowledged": acknowledged.run, "paced": paced.run}


class FaultyWire:
    """Stands for a socket; what the relay sends through it passes a fault first."""

    def __init__(self, socket, fault):
        self.socket, self.fault = socket, fault

    def sendall(self, chunk):
        self.socket.sendall(self.fault(bytes(chunk)))


class FaultyRelay(relay.ByteRelay):
    """A relay whose n-th copy passes through *fault*."""

    def __init__(self, port, fault=bytes, nth=0):
        super().__init__(port)
        self.fault, self.nth, self.copies = fault, nth, 0

    def copy(self, source, targets):
        self.copies += 1
        fault = self.fault if self.copies == self.nth else bytes
        super().copy(source, {key: FaultyWire(socket, fault) for key, socket in targets.items()})


@pytest.fixture
def serve(monkeypatch):
    """Run a relay in a thread and give the port; it is stopped at the end."""
    for module in (client, stream, acknowledged, paced):
        monkeypatch.setattr(module, "STALL_S", 1)  # what is lost is lost: no need to wait five seconds for it
    stopping, started = threading.Event(), []

    def start(**fault):
        server = FaultyRelay(free_port(), **fault)

        def serve_until_stopped():
            while not stopping.is_set():
                try:
                    server.turn(0.02)
                except OSError:
                    continue  # the generator hung up in the middle of a copy

        thread = threading.Thread(target=serve_until_stopped)
        thread.start()
        started.append((thread, server))
        return server.listener.getsockname()[1]

    yield start
    stopping.set()
    for thread, server in started:
        thread.join()
        server.close()


def on(port, job):
    """The job against the relay; this process stands in for the broker's."""
    return RUN[job.load](replace(job, port=port, broker_pid=os.getpid()))


@pytest.mark.parametrize(
    "job",
    [STREAM, FAN_OUT, FAN_IN, MIXED, QOS1, PACED],
    ids=["stream", "fan-out", "fan-in", "mixed", "qos1", "paced"],
)
def test_an_honest_relay_passes(serve, job):
    values = on(serve(), job).values
    assert all(value >= 0 for value in values.values())


def lose_one(chunk):
    return chunk[SIZE[chunk[0]] :]


def double_one(chunk):
    return chunk[: SIZE[chunk[0]]] + chunk


def damage_one(chunk):
    return chunk[:-1] + b"!"


def lose_one_byte(chunk):
    return chunk[1:]


# first byte -> length of a packet, for the topics of the loads
SIZE = {
    0x30: len(packets.publish("bench/one", packets.numbered_payload(0))),
    0x32: len(packets.publish("bench/qos1/00", packets.numbered_payload(0), 1)),
}


@pytest.mark.parametrize("fault", [lose_one, double_one, lose_one_byte])
@pytest.mark.parametrize("job", [STREAM, FAN_OUT, QOS1], ids=["stream", "fan-out", "qos1"])
def test_one_lost_or_doubled_packet_in_the_middle_fails_the_run(serve, job, fault):
    with pytest.raises(LoadFailed):
        on(serve(fault=only_messages(fault), nth=9), job)


@pytest.mark.parametrize("job", [STREAM, QOS1], ids=["stream", "qos1"])
def test_one_damaged_byte_in_the_first_chunk_fails_the_run(serve, job):
    with pytest.raises(LoadFailed):
        on(serve(fault=damage_one, nth=1), job)


def test_a_lost_message_of_an_open_loop_fails_the_run(serve):
    size = len(packets.publish(paced.TOPIC, bytes(packets.PAYLOAD_BYTES)))  # on a busy machine a chunk holds several
    with pytest.raises(LoadFailed, match="1 of 110 messages lost"):
        on(serve(fault=lambda chunk: chunk[size:], nth=20), PACED)


def only_messages(fault):
    """Acknowledgements pass: a fault among them is a fault of another kind."""
    return lambda chunk: fault(chunk) if chunk[0] in SIZE else chunk


def test_a_failed_run_is_reported_and_not_averaged(monkeypatch):
    samples = iter([LoadSample({"deliveries_per_s": 5.0}), LoadSample(failure="lost 1 of 2")])
    monkeypatch.setattr(rounds, "measure", lambda *_: next(samples))
    plan = rounds.RoundPlan({rounds.OURS: Subject("it", "1", lambda *_: [])}, Cores(0, 1), rounds=3, seconds=1)
    [row] = rounds.run(plan, WORKLOADS[0], lambda _: None)
    assert (row.ours, row.met, row.failed) == (None, False, "round 2, it: lost 1 of 2")


def test_medians_and_ratios_are_taken_round_by_round():
    samples = {
        rounds.OURS: [LoadSample({"x": value}) for value in (10.0, 40.0, 30.0)],
        rounds.PEER: [LoadSample({"x": value}) for value in (5.0, 10.0, 30.0)],
    }
    row = rounds.row(WORKLOADS[0], WorkloadMeasure("m", "x", "us", Target(True, 2, TargetBasis.PEER)), samples)
    assert (row.ours, row.peer, row.ratios, row.ratio, row.met) == (30.0, 10.0, [2.0, 4.0, 1.0], 2.0, True)


def test_a_disturbed_run_is_repeated_and_its_figure_plays_no_part(monkeypatch):
    samples = [LoadSample({"x": 9.0, "broker_waited": 0.5}), LoadSample({"x": 1.0, "broker_waited": 0.0})]
    monkeypatch.setattr(rounds, "measure", lambda *_: samples.pop(0))
    plan = rounds.RoundPlan({}, Cores(0, 1), rounds=1, seconds=1)
    assert rounds.undisturbed(Subject("it", "1", lambda *_: []), None, plan).values["x"] == 1.0


@pytest.mark.parametrize(
    ("target", "ours", "ratio", "met"),
    [
        (Target(True, 1.5, TargetBasis.PEER), 1.0, 1.5, True),
        (Target(True, 1.5, TargetBasis.PEER), 9.0, 1.4, False),
        (Target(False, 1.0, TargetBasis.PEER), 9.0, 1.1, False),
        (Target(True, 1.5, TargetBasis.PEER), 9.0, None, None),
        (Target(False, 32, TargetBasis.MIB), 32.0, None, True),
        (Target(False, 250, TargetBasis.MS), 251.0, 0.1, False),
    ],
)
def test_a_target_is_met_or_missed_or_cannot_be_told(target, ours, ratio, met):
    assert target.is_met(ours, ratio) is met


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.0, 1)])
def test_percentile_is_the_nearest_rank(share, value):
    assert paced.percentile(list(range(1, 101)), share) == value


def test_the_ready_made_packets_are_those_of_the_standard():
    assert packets.connect("ab") == bytes.fromhex("100e 0004 4d515454 04 02 0000 0002 6162")
    assert packets.subscribe(["a/#"], 1) == bytes.fromhex("8208 0001 0003 612f23 01")
    assert packets.publish("a", b"xy") == bytes.fromhex("3005 0001 61 7879")
    assert packets.publish("a", b"xy", 258) == bytes.fromhex("3207 0001 61 0102 7879")
    assert packets.packet(0x30, bytes(321))[:3] == bytes.fromhex("30c102")  # the example of section 2.2.3
