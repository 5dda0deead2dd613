"""Child processes of benchmarks and demos: their Python, their free ports, their core, and their cost.

The counters of a process are read from Linux's /proc.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import edgebroker


def python() -> list[str]:
    """Return the command before `-m MODULE`.

    `python -m` puts the current folder first on the path: a `json.py` in the user's folder would replace Python's own.
    The folder stays on the path only if this package is imported from it (the source tree, not installed).
    """
    source = Path(edgebroker.__file__).resolve().parent.parent
    return [sys.executable] if Path.cwd() == source else [sys.executable, "-P"]


FIRST_PORT = 10_000
LAST_PORT = 32_767
"""Linux takes ports above this one for outgoing connections: one of them could be in use while its broker is down."""


def free_ports(count: int) -> list[int]:
    """Return *count* ports of 127.0.0.1 that are free now. Processes that ask at the same time usually get others."""
    found: list[int] = []
    with ExitStack() as probes:
        while len(found) < count:
            port = FIRST_PORT + int.from_bytes(os.urandom(4), "big") % (LAST_PORT - FIRST_PORT + 1)
            with suppress(OSError):
                probes.enter_context(socket.create_server(("127.0.0.1", port)))
                found.append(port)
    return found


DESCRIPTORS = 4_096  # 1,000 clients and a reserve; the usual soft limit of 1,024 is just too small
STOP_S = 5  # time to stop after SIGTERM before the child is killed
ENDINGS = (signal.SIGINT, signal.SIGTERM)
PR_SET_PDEATHSIG = 1  # linux/prctl.h: the child is killed if the benchmark itself is

_libc = ctypes.CDLL(None)


@contextlib.contextmanager
def child(
    command: Sequence[str],
    core: int,
    environment: Mapping[str, str],
    stdin: int | None,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a child pinned to *core*; it outlives neither the block nor this process."""
    parent = os.getpid()

    def prepare() -> None:
        os.sched_setaffinity(0, {core})
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the benchmark died before the line above took effect
            os._exit(1)
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)

    # A signal that arrived inside Popen would leave an unknown child: it is deferred until the last `try`.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    try:
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdin=stdin, stdout=stdout, stderr=stderr, preexec_fn=prepare
        )
    except OSError:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
        raise
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End one child: SIGTERM, wait, then SIGKILL."""
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    if process.poll() is not None:
        return
    process.terminate()
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
    finally:  # also if a second Ctrl-C interrupts the wait
        process.kill()
        process.wait()


@dataclass(frozen=True, slots=True)
class CpuClock:
    """Seconds so far, of all threads of a process: running on a core, and ready but waiting for one."""

    used_s: float
    waited_s: float

    @classmethod
    def read(cls, pid: int) -> CpuClock:
        """Return the scheduler's count in nanoseconds if the kernel provides it, else user + system time in 10 ms
        ticks.
        """
        try:
            threads = [(task / "schedstat").read_bytes().split() for task in Path(f"/proc/{pid}/task").iterdir()]
        except FileNotFoundError:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return cls((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), 0.0)
        return cls(sum(int(used) for used, _, _ in threads) / 1e9, sum(int(waited) for _, waited, _ in threads) / 1e9)

    def __add__(self, other: CpuClock) -> CpuClock:
        return CpuClock(self.used_s + other.used_s, self.waited_s + other.waited_s)

    def __sub__(self, earlier: CpuClock) -> CpuClock:
        return CpuClock(self.used_s - earlier.used_s, self.waited_s - earlier.waited_s)


class CpuClocks:
    """The clocks of broker and generator over the timed part of a run, from its creation on."""

    def __init__(self, *broker_pids: int) -> None:
        self.pids = {"broker": broker_pids, "generator": (os.getpid(),)}
        self.started = self.read()
        self.started_at = time.perf_counter()

    def read(self) -> dict[str, CpuClock]:
        """Return the clocks of broker and generator now; two brokers have one together."""
        return {who: sum(map(CpuClock.read, pids), CpuClock(0.0, 0.0)) for who, pids in self.pids.items()}

    def shares(self, messages: int) -> dict[str, float]:
        """Return the shares of time in which each used its core or waited for it (1.0: always), and CPU time per
        message.

        Two brokers on one core wait for each other: those waits are not reported.
        """
        elapsed = time.perf_counter() - self.started_at
        spent = {who: clock - self.started[who] for who, clock in self.read().items()}
        values = {"cpu_us": spent["broker"].used_s / messages * 1e6}
        for who, clock in spent.items():
            values[f"{who}_busy"] = clock.used_s / elapsed
            if len(self.pids[who]) == 1:
                values[f"{who}_waited"] = clock.waited_s / elapsed
        return values


def memory_bytes(pid: int) -> dict[str, int]:
    """Return the memory of a process: `rss`, and `pss` (shared pages counted in parts) if readable."""
    found = {"rss": kib_of(Path(f"/proc/{pid}/status"), "VmRSS:") * 1024}
    with contextlib.suppress(OSError):
        found["pss"] = kib_of(Path(f"/proc/{pid}/smaps_rollup"), "Pss:") * 1024
    return found


def kib_of(path: Path, label: str) -> int:
    """Return the number after *label* in one of the kernel's tables, in KiB."""
    line = next(line for line in path.read_text().splitlines() if line.startswith(label))
    return int(line.split()[1])
