"""One side of the comparison: a broker under both loads, killed, and started again on what it left."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from edgebridge.session.stored import Stored
from edgebroker.storage.journal.recovery import recover
from edgebroker.world.journalfiles import JournalFiles

from ..client import HOST, DurableClient
from ..job import LoadFailed
from ..processes import child
from ..subjects import Subject
from ..trial import BrokerFailed, Cores, Running, free_port, wait_until_accepting
from .baseline import sqlite_per_message
from .disk import written_by
from .load import DURABLE, Load, Outcome

RATE = 1_000  # messages a second of the open loop: what the targets speak of
REPLAYS = 3
PARTS = 5  # of the open loop: a segment that is made in one or two of them is not what a message costs
QUIET_S = 0.5  # a broker that wrote nothing for so long has nothing left to do
QUIET_S_MAX = 20.0

MOSQUITTO_SETTINGS = """\
listener {port} {host}
allow_anonymous true
persistence true
persistence_location {folder}/
log_dest none
connection_messages false
set_tcp_nodelay true
max_inflight_messages 0
max_queued_messages 0
max_queued_bytes 0
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured, and for how long."""

    cores: Cores
    folder: Path
    """Where the brokers keep their data: a disk, not memory."""
    seconds: float = 5.0
    publishers: int = 10
    window: int = 20
    payload_bytes: int = 64


@dataclass(slots=True)
class Figures:
    """What one side did. A failure has no figures that may be used."""

    name: str
    version: str
    promise: str
    """What an acknowledgement means here."""
    values: dict[str, float] = field(default_factory=dict)
    failure: str = ""


def durable_mosquitto(subject: Subject) -> Subject:
    """Mosquitto with persistence, as its manual describes it."""
    program = subject.command(0, Path(tempfile.mkdtemp()))[0]

    def command(port: int, folder: Path) -> list[str]:
        settings = folder / "mosquitto.conf"
        settings.write_text(MOSQUITTO_SETTINGS.format(port=port, host=HOST, folder=folder), encoding="utf-8")
        folder.chmod(0o777)  # it may give up root
        return [program, "-c", str(settings)]

    return Subject(subject.name, subject.version, command)


@contextmanager
def running_in(subject: Subject, folder: Path, cores: Cores) -> Iterator[Running]:
    """A broker that keeps its data in *folder*, which stays. It may be killed. Raises BrokerFailed."""
    port = free_port()
    began = time.perf_counter()
    with (
        (folder / "said.txt").open("wb") as output,
        child(
            subject.command(port, folder), cores.broker, subject.environment, subprocess.DEVNULL, output, output
        ) as process,
    ):
        try:
            wait_until_accepting(process, port)
        except BrokerFailed as failure:
            words = (folder / "said.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            raise BrokerFailed(": ".join((f"{subject.name} {failure}", *words))) from None
        yield Running(port, process.pid, (time.perf_counter() - began) * 1e3, process)


def measure(subject: Subject, plan: Plan, promise: str, tell: Callable[[str], None]) -> Figures:
    """Both loads on one broker, a kill, and the start after it."""
    figures = Figures(subject.name, subject.version, promise)
    values = figures.values
    with tempfile.TemporaryDirectory(prefix="edgebroker-durable-", dir=plan.folder) as name:
        folder = Path(name)
        try:
            with running_in(subject, folder, plan.cores) as broker:
                values["start_ms"] = broker.start_ms
                load = Load(broker.port, plan.publishers, plan.payload_bytes)
                load.closed(min(1.0, plan.seconds), plan.window)
                tell("as fast as it goes")
                fast = load.closed(plan.seconds, plan.window)
                values["rate"] = fast.messages / fast.seconds
                values["fast_p50_ms"], values["fast_p99_ms"] = fast.quantile_ms(0.5), fast.quantile_ms(0.99)
                wait_until_quiet(broker.pid)
                tell(f"{RATE:,} messages a second")
                written, waits = [], Outcome(0, 0.0)
                for _ in range(PARTS):
                    before = written_by(broker.pid)
                    paced = load.paced(2 * plan.seconds / PARTS, RATE)
                    written.append((written_by(broker.pid) - before) / (paced.messages * plan.payload_bytes))
                    waits.waits.extend(paced.waits)
                values["written"] = median(written)
                values["p50_ms"], values["p99_ms"] = waits.quantile_ms(0.5), waits.quantile_ms(0.99)
                broker.process.kill()
                broker.process.wait()
                load.close(politely=False)
            tell("start after a kill")
            values.update(_recovery(subject, folder, plan))
        except (BrokerFailed, LoadFailed, OSError) as failure:
            figures.failure = str(failure)
    return figures


def wait_until_quiet(pid: int) -> None:
    """Until nothing is written any more: room for the next segment, or what was put off, is not the load's."""
    until, written, since = time.monotonic() + QUIET_S_MAX, written_by(pid), time.monotonic()
    while time.monotonic() < min(until, since + QUIET_S):
        time.sleep(QUIET_S / 10)
        if (now := written_by(pid)) != written:
            written, since = now, time.monotonic()


def _recovery(subject: Subject, folder: Path, plan: Plan) -> dict[str, float]:
    """How long recovery takes on what the kill left, and whether the session is still there.

    How long 100 MB take is measured here, without the start of a process:
    the same recovery into the same state, three times, and the median.
    """
    values = {}
    journal = JournalFiles(folder / "data" / "journal")
    if journal.path.is_dir():
        took, used = [], []
        for _ in range(REPLAYS):
            stored, began, cpu = Stored(), time.perf_counter(), time.thread_time()
            found = recover(journal, stored.apply_numbered)
            stored.finish()
            took.append(time.perf_counter() - began)
            used.append(time.thread_time() - cpu)
        if found is not None and found.used_bytes:
            values["journal_mb"] = found.used_bytes / 1e6
            values["recovery_s_per_100_mb"] = median(took) / (found.used_bytes / 1e8)
            values["recovery_cpu_s_per_100_mb"] = median(used) / (found.used_bytes / 1e8)
    with running_in(subject, folder, plan.cores) as broker:
        values["start_after_kill_ms"] = broker.start_ms
        values["kept"] = float(_is_kept(broker.port))
    return values


def _is_kept(port: int) -> bool:
    """Whether the durable session lived: its client is told "session present" (MQTT 3.1.1 section 3.2.2.2)."""
    client = DurableClient(port, DURABLE)
    client.close()
    return client.was_present


def measure_sqlite(plan: Plan) -> Figures:
    """One commit per message, in this process."""
    import sqlite3

    figures = Figures("sqlite", sqlite3.sqlite_version, "one commit per message")
    with tempfile.TemporaryDirectory(prefix="edgebroker-sqlite-", dir=plan.folder) as name:
        outcome, written = sqlite_per_message(Path(name), plan.seconds, plan.payload_bytes, os.getpid())
    figures.values = {
        "rate": outcome.messages / outcome.seconds,
        "fast_p50_ms": outcome.quantile_ms(0.5),
        "fast_p99_ms": outcome.quantile_ms(0.99),
        "written": written / (outcome.messages * plan.payload_bytes),
    }
    return figures
