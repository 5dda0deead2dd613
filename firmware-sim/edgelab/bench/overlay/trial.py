"""One run: start a pair, wait until it is joined, put one load on it, stop it."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from edgelab.bench import packets
from edgelab.bench.client import BenchClient
from edgelab.bench.job import LoadFailed, LoadJob, LoadSample
from edgelab.bench.overlay.outage import Outage
from edgelab.bench.overlay.pairs import BrokerPair, PairPorts, StoragePolicy
from edgelab.bench.trial import BrokerFailed, Cores, generate, wait_until_accepting
from edgelab.processes import child

MEET_S = 15
"""Brokers between which nothing passes by then are not joined."""
MEET_POLL_S = 0.1


class PairProcesses:
    """The processes of a pair; the receiving one may be killed and started again."""

    def __init__(self, pair: BrokerPair, folder: Path, keeping: StoragePolicy, core: int, stack: ExitStack) -> None:
        self.ports = PairPorts.free()
        self._pair = pair
        self._core = core
        self._stack = stack
        self._output = stack.enter_context((folder / "said.txt").open("w+b"))
        self._sending, self._receiving = pair.commands(self.ports, folder, keeping)
        self.receiving = self._start(self._receiving, self.ports.receiving)
        self.sending = self._start(self._sending, self.ports.sending)

    def kill(self) -> None:
        """SIGKILL the receiving broker."""
        self.receiving.kill()
        self.receiving.wait()

    def start_again(self) -> None:
        """Start the receiving broker on what it left. Raises BrokerFailed."""
        self.receiving = self._start(self._receiving, self.ports.receiving)

    def check(self) -> None:
        """Raises BrokerFailed if one of them has stopped by itself."""
        for process in (self.sending, self.receiving):
            if process.poll() is not None:
                raise self.failed(f"stopped by itself with exit code {process.returncode}")

    def _start(self, command: list[str], port: int) -> subprocess.Popen[bytes]:
        process = self._stack.enter_context(
            child(
                command,
                self._core,
                self._pair.subject.environment,
                subprocess.DEVNULL,
                self._output,
                self._output,
            )
        )
        try:
            wait_until_accepting(process, port)
        except BrokerFailed as failure:
            raise self.failed(str(failure)) from None
        return process

    def failed(self, what: str) -> BrokerFailed:
        """That *what* happened, and the last words of the brokers."""
        self._output.seek(0)
        words = self._output.read().decode(errors="replace").strip().splitlines()[-1:]
        return BrokerFailed(": ".join((f"{self._pair.subject.name} {what}", *words)))


@contextlib.contextmanager
def joined(pair: BrokerPair, keeping: StoragePolicy, cores: Cores) -> Iterator[PairProcesses]:
    """Start *pair*, and stop it at the end. Raises BrokerFailed, LoadFailed."""
    with tempfile.TemporaryDirectory(prefix="edgebroker-overlay-") as name, ExitStack() as stack:
        Path(name).chmod(0o755)  # Mosquitto may give up root
        brokers = PairProcesses(pair, Path(name), keeping, cores.broker, stack)
        meet(brokers.ports)
        yield brokers
        brokers.check()


def meet(ports: PairPorts) -> None:
    """Return when what is published at the sending broker comes out of the receiving one. Raises LoadFailed."""
    reader, writer = BenchClient(ports.receiving, "bench-meet-sub"), BenchClient(ports.sending, "bench-meet-pub")
    reader.subscribe(["meet"])
    until = time.monotonic() + MEET_S
    while time.monotonic() < until:
        writer.socket.sendall(packets.publish("meet", b""))
        if reader.has_more(MEET_POLL_S):
            reader.close()
            writer.close()
            return
    raise LoadFailed(f"nothing passed between the brokers within {MEET_S} s")


def measure(pair: BrokerPair, job: LoadJob | None, cores: Cores) -> LoadSample:
    """One run of *job* on a fresh pair. Failures are in the sample."""
    assert job is not None
    is_killed = job.load == "killed"
    keeping = StoragePolicy(job.is_durable, is_killed)
    try:
        with joined(pair, keeping, cores) as brokers:
            ports = brokers.ports
            if is_killed:
                try:
                    return Outage(ports.sending, ports.receiving, job).run(brokers.kill, brokers.start_again)
                except (LoadFailed, OSError) as failure:  # a broker may have said why
                    raise brokers.failed(f"failed: {failure}") from failure
            pids = (brokers.sending.pid, brokers.receiving.pid)
            whole = replace(
                job, port=ports.sending, subscriber_port=ports.receiving, broker_pid=pids[0], further_pid=pids[1]
            )
            return generate(whole, cores)
    except (BrokerFailed, LoadFailed, OSError) as failure:
        return LoadSample(failure=str(failure) or type(failure).__name__)
