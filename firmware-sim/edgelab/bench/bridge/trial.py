"""One run: start the brokers, put one load on them, stop them."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from edgelab.bench.bridge.sides import BridgePorts, BridgeSide, BrokerProcess
from edgelab.bench.bridge.traffic import BridgeTraffic
from edgelab.bench.job import LoadFailed, LoadJob, LoadSample
from edgelab.bench.overlay.pairs import PairPorts as Ends
from edgelab.bench.overlay.trial import meet
from edgelab.bench.paced import percentile
from edgelab.bench.subjects import Subject
from edgelab.bench.trial import BrokerFailed, Cores, wait_until_accepting
from edgelab.processes import child, memory_bytes, stop

MIB: Final = 1 << 20
DIAL_S: Final = 30.0
"""How long a bridge may take to find its remote again."""
PACE_S: Final = 0.002
"""Between the writes of a load that only waits: the generator leaves its core to others meanwhile."""


class SideBrokers:
    """The processes of a side."""

    def __init__(self, side: BridgeSide, folder: Path, is_beside: bool, core: int, stack: ExitStack) -> None:
        self.ports = BridgePorts.free()
        self._subject, self._core, self._stack = side.subject, core, stack
        self._output = stack.enter_context((folder / "said.txt").open("w+b"))
        self._lineup = side.lineup(self.ports, folder, is_beside)
        self._running = {one.name: self._start(one) for one in self._lineup}

    @property
    def carrier(self) -> int:
        """The process that dials the receiving broker."""
        return self._running[self._lineup[-1].name].pid

    def stop_there(self) -> None:
        """End the receiving broker, as its operator would: it writes what it has."""
        stop(self._running.pop(self._lineup[0].name))

    def start_there(self) -> None:
        """And start it again. Raises BrokerFailed."""
        self._running[self._lineup[0].name] = self._start(self._lineup[0])

    def check(self) -> None:
        """Raises BrokerFailed if one of them has stopped by itself."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise self._failed(f"{name} stopped by itself with exit code {process.returncode}")

    def _start(self, one: BrokerProcess) -> subprocess.Popen[bytes]:
        environment, null = self._subject.environment, subprocess.DEVNULL
        process = self._stack.enter_context(
            child(one.command, self._core, environment, null, self._output, self._output)
        )
        try:
            wait_until_accepting(process, one.port)
        except BrokerFailed as failure:
            raise self._failed(f"{one.name} {failure}") from None
        return process

    def _failed(self, what: str) -> BrokerFailed:
        self._output.seek(0)
        words = self._output.read().decode(errors="replace").strip().splitlines()[-1:]
        return BrokerFailed(": ".join((what, *words)))


@contextlib.contextmanager
def joined(side: BridgeSide, is_beside: bool, cores: Cores) -> Iterator[SideBrokers]:
    """Start *side*, and stop it at the end. Raises BrokerFailed, LoadFailed."""
    with tempfile.TemporaryDirectory(prefix="edgebroker-bridge-") as name, ExitStack() as stack:
        Path(name).chmod(0o755)  # Mosquitto may give up root
        brokers = SideBrokers(side, Path(name), is_beside, cores.broker, stack)
        meet(Ends(brokers.ports.here, brokers.ports.there, (0, 0)))
        yield brokers
        brokers.check()


def rate(brokers: SideBrokers, job: LoadJob) -> LoadSample:
    """Messages per second that come out, as fast as they can."""
    load = BridgeTraffic(brokers.ports.here, brokers.ports.there, job.qos)
    load.closed_loop(job.warmup_s, job.window)
    messages, seconds = load.closed_loop(job.seconds, job.window)
    load.close()
    return LoadSample({"messages_per_s": messages / seconds})


def latency(brokers: SideBrokers, job: LoadJob) -> LoadSample:
    """How long a message takes at a steady rate, in microseconds."""
    load = BridgeTraffic(brokers.ports.here, brokers.ports.there, job.qos)
    load.open_loop(job.warmup_s, job.rate)
    taken = load.open_loop(job.seconds, job.rate)
    load.close()
    return LoadSample({"p50_us": percentile(taken, 0.50) / 1e3, "p99_us": percentile(taken, 0.99) / 1e3})


def backlog(brokers: SideBrokers, job: LoadJob) -> LoadSample:
    """The receiving broker goes; so many messages are taken meanwhile; it comes back: how quickly do they follow?"""
    load, empty = gone(brokers, job)
    while load.sent < job.messages_max:
        load.publish(min(job.window - (load.sent - load.acknowledged), job.messages_max - load.sent))
        load.poll()
    grown = acknowledged(load, brokers) - empty
    return LoadSample({**back(load, brokers), "grown_mib": grown / MIB})


def absent(brokers: SideBrokers, job: LoadJob) -> LoadSample:
    """The receiving broker goes, and messages go on at a steady rate: by how much does the sending one grow?"""
    load, empty = gone(brokers, job)
    began, first = time.perf_counter(), load.sent
    while (elapsed := time.perf_counter() - began) < job.seconds:
        load.publish(int(elapsed * job.rate) - (load.sent - first))
        load.poll()
        time.sleep(PACE_S)
    taken, grown = load.sent - first, acknowledged(load, brokers) - empty
    return LoadSample({**back(load, brokers), "grown_mib": grown / MIB, "messages": taken})


def gone(brokers: SideBrokers, job: LoadJob) -> tuple[BridgeTraffic, int]:
    """A load whose receiving broker has just gone, and the bytes that the sending one has then."""
    load = BridgeTraffic(brokers.ports.here, brokers.ports.there, job.qos, is_durable=True)
    load.publish(1)
    load.settle()
    load.hang_up_reader()
    brokers.stop_there()
    return load, memory_bytes(brokers.carrier)["rss"]


def acknowledged(load: BridgeTraffic, brokers: SideBrokers) -> int:
    """The bytes of the sending broker when it has acknowledged everything."""
    until = time.monotonic() + DIAL_S
    while load.acknowledged < load.sent and time.monotonic() < until:
        load.poll()
    return memory_bytes(brokers.carrier)["rss"]


def back(load: BridgeTraffic, brokers: SideBrokers) -> dict[str, float]:
    """The receiving broker comes back: what follows, and how quickly. Raises LoadFailed if nothing does."""
    brokers.start_there()
    load.connect_reader()
    before = load.delivered
    until = time.monotonic() + DIAL_S
    while load.delivered == before:
        load.poll()
        if time.monotonic() > until:
            raise LoadFailed(f"nothing came within {DIAL_S:g} s after the receiving broker was back")
    began, first = time.perf_counter(), load.delivered
    load.settle()
    seconds = max(load.last_came - began, 1e-6)
    load.close()
    return {
        "messages_per_s": (load.delivered - first) / seconds,
        "lost": load.sent - load.delivered,
        "doubled": load.doubled,
        "overtaken": load.overtaken,
    }


LOADS: Final[Mapping[str, Callable[[SideBrokers, LoadJob], LoadSample]]] = {
    "rate": rate,
    "latency": latency,
    "backlog": backlog,
    "absent": absent,
}


def measure(side: BridgeSide, job: LoadJob, cores: Cores) -> LoadSample:
    """One run of *job* on fresh brokers. Failures are in the sample."""
    try:
        with joined(side, job.shape == "beside", cores) as brokers:
            return LOADS[job.load](brokers, job)
    except (BrokerFailed, LoadFailed, OSError) as failure:
        return LoadSample(failure=str(failure) or type(failure).__name__)


def of_subject(sides: Mapping[str, BridgeSide]) -> Callable[[Subject, LoadJob | None, Cores], LoadSample]:
    """`measure` for who knows the subject only; *sides* by the subject's name."""

    def measured(subject: Subject, job: LoadJob | None, cores: Cores) -> LoadSample:
        assert job is not None
        return measure(sides[subject.name], job, cores)

    return measured
