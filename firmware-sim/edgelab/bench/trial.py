"""One run of a benchmark: start a broker, put one load on it, stop both.

On request clients connect meanwhile that the broker refuses, and that it writes into its log.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from edgelab.bench import packets
from edgelab.bench.client import HOST, TlsSocket
from edgelab.bench.job import LoadJob, LoadSample
from edgelab.bench.subjects import Subject
from edgelab.processes import child, free_ports, python

PER_S = 20
LEVEL = 9  # of a protocol that no broker speaks
STRANGER_PATIENCE_S = 1.0


def among_strangers(subject: Subject) -> Subject:
    """The same broker, whose warnings are written, and to which strangers come."""
    if subject.name != "mosquitto":
        return replace(subject, has_strangers=True)  # ours writes its log to standard error by itself

    def command(port: int, folder: Path) -> list[str]:
        plain = subject.command(port, folder)
        settings = Path(plain[-1])
        settings.write_text(settings.read_text().replace("log_dest none", "log_dest stderr"))
        return plain

    return replace(subject, command=command, has_strangers=True)


@contextlib.contextmanager
def strangers(port: int, core: int) -> Iterator[Callable[[], int]]:
    """PER_S of them a second, one at a time, in a thread; the value tells how many were turned away so far.

    They have the generator's *core*. The system would let them have the broker's, which is idle more often.
    """
    is_over = threading.Event()
    turned_away = 0

    def come() -> None:
        nonlocal turned_away
        os.sched_setaffinity(threading.get_native_id(), {core})
        while not is_over.wait(1 / PER_S):
            with contextlib.suppress(OSError), socket.socket() as line:
                line.settimeout(STRANGER_PATIENCE_S)
                line.connect((HOST, port))
                line.sendall(packets.packet(0x10, packets.text("MQTT") + bytes((LEVEL, 2, 0, 60)) + packets.text("x")))
                while line.recv(64):
                    pass
                turned_away += 1

    thread = threading.Thread(target=come)
    thread.start()
    try:
        yield lambda: turned_away
    finally:
        is_over.set()
        thread.join()


START_S = 15  # a broker that accepts nothing by then has failed to start
START_POLL_S = 0.0005  # resolution of the start time
LOAD_GRACE_S = 60  # on top of the load's own time: handshakes of 1,000 clients and draining


class BrokerFailed(Exception):
    """The broker did not start or did not survive; the message carries its last words."""


@dataclass(frozen=True, slots=True)
class Cores:
    """Where broker and generator run; the same core on a machine that has only one."""

    broker: int
    generator: int


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """A broker that accepts connections."""

    port: int
    pid: int
    start_ms: float
    process: subprocess.Popen[bytes]


@contextlib.contextmanager
def running(subject: Subject, cores: Cores) -> Iterator[RunningBroker]:
    """Start a broker on a free port of the loopback interface and stop it at the end. Raises BrokerFailed."""
    with tempfile.TemporaryDirectory(prefix="edgebroker-bench-") as folder, tempfile.TemporaryFile() as output:
        port = free_port()
        command = subject.command(port, Path(folder))
        started = time.perf_counter()
        with child(command, cores.broker, subject.environment, subprocess.DEVNULL, output, output) as process:
            try:
                wait_until_accepting(process, port, subject.is_tls)
                yield RunningBroker(port, process.pid, (time.perf_counter() - started) * 1e3, process)
                if process.poll() is not None:
                    raise BrokerFailed(f"stopped by itself with exit code {process.returncode}")
            except BrokerFailed as failure:
                output.seek(0)
                words = output.read().decode(errors="replace").strip().splitlines()[-1:]
                raise BrokerFailed(": ".join((f"{subject.name} {failure}", *words))) from None


def wait_until_accepting(
    process: subprocess.Popen[bytes], port: int, is_tls: bool = False, patience_s: float = START_S
) -> None:
    """Return once an MQTT CONNECT is answered, not when the kernel merely queues connections."""
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        if process.poll() is not None:
            raise BrokerFailed(f"does not start (exit code {process.returncode})")
        try:
            with socket.create_connection((HOST, port), timeout=START_S) as line:
                probe = TlsSocket(line) if is_tls else line
                probe.sendall(packets.connect("bench-start"))
                if probe.recv(4) == packets.CONNACK_ACCEPTED:
                    probe.sendall(packets.DISCONNECT)
                    return
        except OSError:
            time.sleep(START_POLL_S)
    raise BrokerFailed(f"accepts no connection within {patience_s:g} s")


def measure(subject: Subject, job: LoadJob | None, cores: Cores) -> LoadSample:
    """One run of *job* on a fresh broker; without a job only its start. Failures are in the sample."""
    try:
        with running(subject, cores) as broker:
            if job is None:
                return LoadSample({"start_ms": broker.start_ms})
            job = replace(job, port=broker.port, broker_pid=broker.pid, is_tls=subject.is_tls)
            if not subject.has_strangers:
                return generate(job, cores)
            with strangers(broker.port, cores.generator) as turned_away:
                sample = generate(job, cores)
            if not turned_away():
                return LoadSample(failure="nobody was refused, so nothing was logged")
            return sample
    except BrokerFailed as failure:
        return LoadSample(failure=str(failure))


def generate(job: LoadJob, cores: Cores) -> LoadSample:
    """Run the load generator in a process of its own."""
    command = [*python(), "-m", f"{__package__}.generator"]
    pipe = subprocess.PIPE
    with child(command, cores.generator, {}, pipe, pipe, pipe) as process:
        try:
            output, errors = process.communicate(job.to_json().encode(), job.warmup_s + job.seconds + LOAD_GRACE_S)
        except subprocess.TimeoutExpired:
            return LoadSample(failure="the load generator did not finish in time")
        if process.returncode:
            return LoadSample(failure=f"the load generator failed: {errors.decode(errors='replace').strip()[-500:]}")
        return LoadSample.from_json(output.decode())


def free_port() -> int:
    """A port nobody listens on at this moment."""
    return free_ports(1)[0]
