"""One side of the durable benchmark: a broker under load, killed, and started again on its journal.

One commit per message with SQLite is the baseline; recovery is also measured without the start of a process.
"""

from __future__ import annotations

import gc
import os
import select
import sqlite3
import subprocess
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from statistics import median

from edgebridge.session.journal.state import JournalState
from edgebroker.dataclasses import dataclass
from edgebroker.runtime.journal.files import JournalFiles
from edgebroker.runtime.journal.store import garbage_collection_paused
from edgebroker.storage.journal.recovery import recover_rows
from edgelab.bench.client import HOST, STALL_S, DurableClient
from edgelab.bench.durable.load import DURABLE, DurableLoad, DurablePublisher, DurableSubscriber, LoadOutcome
from edgelab.bench.job import LoadFailed
from edgelab.bench.subjects import Subject, with_settings
from edgelab.bench.trial import BrokerFailed, Cores, RunningBroker, free_port, wait_until_accepting
from edgelab.processes import CpuClock, child


def written_by(pid: int) -> int:
    """Bytes that *pid* caused to be sent to the storage layer (proc_pid_io(5), write_bytes)."""
    for line in Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    raise AssertionError("the kernel counts no bytes")


def is_in_memory(folder: Path) -> bool:
    """Whether *folder* lies in a file system that never reaches a disk."""
    best, kind = "", ""
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, where, found, *_ = line.split()
        if (folder.is_relative_to(where)) and len(where) >= len(best):
            best, kind = where, found
    return kind in ("tmpfs", "ramfs")


def sqlite_per_message(folder: Path, seconds: float, payload_bytes: int, pid: int) -> tuple[LoadOutcome, int]:
    """Insert and commit one message after the other, with a write-ahead log and full syncs.

    Returns what it saw, and the bytes this process wrote meanwhile.
    """
    database = sqlite3.connect(folder / "messages.db", isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE message (number INTEGER PRIMARY KEY, topic TEXT, payload BLOB)")
    payload = bytes(payload_bytes)
    before, waits = written_by(pid), array("q")
    began = time.perf_counter()
    while (now := time.perf_counter()) - began < seconds:
        database.execute("INSERT INTO message (topic, payload) VALUES (?, ?)", ("bench/durable/00", payload))
        waits.append(int((time.perf_counter() - now) * 1e9))
    outcome = LoadOutcome(len(waits), time.perf_counter() - began, waits)
    written = written_by(pid) - before
    database.close()
    return outcome, written


@dataclass(frozen=True, slots=True)
class DurablePlan:
    """What is measured, and for how long."""

    cores: Cores
    folder: Path
    """Where the brokers keep their data: a disk, not memory."""
    seconds: float = 5.0
    publishers: int = 10
    window: int = 20
    payload_bytes: int = 64


@contextmanager
def running_in(subject: Subject, folder: Path, cores: Cores) -> Iterator[RunningBroker]:
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
        yield RunningBroker(port, process.pid, (time.perf_counter() - began) * 1e3, process)


def is_kept(port: int) -> bool:
    """Whether the durable session lived: its client is told "session present" (MQTT 3.1.1 section 3.2.2.2)."""
    client = DurableClient(port, DURABLE)
    client.close()
    return client.was_present


REPLAYS = 3


@dataclass(frozen=True, slots=True)
class RecoveryTime:
    """What it took to read a journal: the median of the passes."""

    journal_bytes: int
    """The frames that were read."""
    seconds: float
    cpu_s: float
    copies: int
    """Messages that wait for a session."""

    def per_100_mb(self, seconds: float) -> float:
        """*seconds* as they would be for 100 MB."""
        return seconds / (self.journal_bytes / 1e8)


def replay(folder: Path) -> RecoveryTime | None:
    """Read the journal in *folder*; None if there is none, or nothing in it."""
    took, used = [], []
    copies = journal_bytes = 0
    for _ in range(REPLAYS if folder.is_dir() else 0):
        gc.collect()  # the state of the pass before
        with garbage_collection_paused():
            stored, began, cpu = JournalState(), time.perf_counter(), time.thread_time()
            found = recover_rows(JournalFiles(folder), stored.apply_row)
            stored.finish()
            took.append(time.perf_counter() - began)
            used.append(time.thread_time() - cpu)
        copies = sum(
            len(session.copies) + sum(page.count for page in session.pages.values())
            for session in stored.sessions.values()
        )
        journal_bytes = 0 if found is None else found.used_bytes
    return RecoveryTime(journal_bytes, median(took), median(used), copies) if journal_bytes else None


QUEUE_BYTES = 250_000_000
"""How much is to wait, at most..."""
MESSAGE_BYTES = 70  # ...of which this much for each message is not its payload: topic, publisher, place in the queue
MESSAGES_MAX = 1_000_000  # that wait for one client
FILL_S = 6  # of a load's time, at most, for that
WINDOW = 500

SETTINGS = """\
[limits]
queue_messages_max = 10_000_000
queue_bytes_max = 1_073_741_824
"""


def measure_away(subject: Subject, plan: DurablePlan) -> dict[str, float]:
    """Figures of one such run. Raises BrokerFailed, also if something that was acknowledged is not there."""
    subject = with_settings(subject, SETTINGS)
    with tempfile.TemporaryDirectory(prefix="edgebroker-durable-", dir=plan.folder) as name:
        folder = Path(name)
        with running_in(subject, folder, plan.cores) as broker:
            client = DurableClient(broker.port, DURABLE)
            client.subscribe(["bench/durable/#"], qos=1)
            client.close()
            before = written_by(broker.pid)
            acknowledged = fill(broker.port, plan)
            wait_until_quiet(broker.pid)
            growing_written, grown = grow(broker, plan)
            acknowledged += grown
            values = {
                "away_growing_written": growing_written,
                "away_mib": memory_kib(broker.pid, "VmRSS") / 1024,
                "away_written": (written_by(broker.pid) - before) / (acknowledged * plan.payload_bytes),
            }
            broker.process.kill()
            broker.process.wait()
        found = replay(folder / "data" / "journal")
        if found is None or found.copies < acknowledged:
            kept = 0 if found is None else found.copies
            raise BrokerFailed(f"{acknowledged:,} messages were acknowledged, and {kept:,} are there after the kill")
        values |= {"away_messages": float(found.copies), "away_mb": found.journal_bytes / 1e6}
        with running_in(subject, folder, plan.cores) as broker:
            values["away_start_cpu_ms"] = CpuClock.read(broker.pid).used_s * 1e3
            values["away_start_ms"] = broker.start_ms
            values["away_peak_mib"] = memory_kib(broker.pid, "VmHWM") / 1024
            values["away_kept"] = float(is_kept(broker.port))
            values["away_drained"] = drained(broker.port, plan.payload_bytes, acknowledged)
    return values


def drained(port: int, payload_bytes: int, count: int) -> float:
    """Let the session take all that waits for it. Messages a second. Raises LoadFailed if some do not come."""
    began = time.perf_counter()
    subscriber = DurableSubscriber(port, payload_bytes, subscribes=False)
    subscriber.client.socket.settimeout(STALL_S)
    try:
        while subscriber.delivered < count:
            subscriber.deliver()
    except TimeoutError:
        raise LoadFailed(
            f"{subscriber.delivered:,} of {count:,} messages came, and then none for {STALL_S} s"
        ) from None
    finally:
        subscriber.client.socket.close()
    return count / (time.perf_counter() - began)


def grow(broker: RunningBroker, plan: DurablePlan) -> tuple[float, int]:
    """Let the queue grow by RATE messages a second. Returns the bytes written per byte of payload, and how many."""
    publisher, waits = DurablePublisher(broker.port, 0, plan.payload_bytes), array("q")
    before, began = written_by(broker.pid), time.perf_counter()
    while (elapsed := time.perf_counter() - began) < 2 * plan.seconds or publisher.acked < publisher.sent:
        if publisher.sent < elapsed * RATE and elapsed < 2 * plan.seconds:
            publisher.send(1)
        if select.select([publisher.client.socket], [], [], 1 / RATE / 4)[0]:
            publisher.settle(waits)
    publisher.client.socket.close()
    return (written_by(broker.pid) - before) / (publisher.sent * plan.payload_bytes), publisher.sent


def fill(port: int, plan: DurablePlan) -> int:
    """Publish as fast as it goes, until there is enough or the time is over. Returns how many were taken."""
    count = min(QUEUE_BYTES // (MESSAGE_BYTES + plan.payload_bytes), MESSAGES_MAX)
    publishers = [DurablePublisher(port, number, plan.payload_bytes) for number in range(plan.publishers)]
    by_descriptor = {publisher.client.socket.fileno(): publisher for publisher in publishers}
    waits = array("q")
    until, sent, acked = time.perf_counter() + FILL_S * plan.seconds, 0, 0
    with select.epoll() as poll:
        for descriptor in by_descriptor:
            poll.register(descriptor, select.EPOLLIN)
        while True:
            for publisher in publishers:
                room = min(WINDOW - (publisher.sent - publisher.acked), count - sent)
                if room >= WINDOW // 2 and time.perf_counter() < until:
                    publisher.send(room)
                    sent += room
            if acked == sent:
                break
            ready = poll.poll(STALL_S)
            if not ready:
                raise LoadFailed(f"nothing was acknowledged for {STALL_S} s")
            for descriptor, _ in ready:
                by_descriptor[descriptor].settle(waits)
            acked = sum(publisher.acked for publisher in publishers)
    for publisher in publishers:
        publisher.client.socket.close()
    return acked


def memory_kib(pid: int, kind: str) -> int:
    """Memory of *pid* by proc_pid_status(5): VmRSS is what it has now, VmHWM the most that it ever had."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1])
    raise AssertionError(f"the kernel tells no {kind}")


RATE = 1_000  # messages a second of the open loop: what the targets speak of
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


@dataclass(slots=True)
class DurableFigures:
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


def measure(subject: Subject, plan: DurablePlan, promise: str, tell: Callable[[str], None]) -> DurableFigures:
    """Both loads on one broker, a kill, and the start after it."""
    figures = DurableFigures(subject.name, subject.version, promise)
    values = figures.values
    with tempfile.TemporaryDirectory(prefix="edgebroker-durable-", dir=plan.folder) as name:
        folder = Path(name)
        try:
            with running_in(subject, folder, plan.cores) as broker:
                values["start_ms"] = broker.start_ms
                load = DurableLoad(broker.port, plan.publishers, plan.payload_bytes)
                load.closed(min(1.0, plan.seconds), plan.window)
                tell("as fast as it goes")
                fast = load.closed(plan.seconds, plan.window)
                values["rate"] = fast.messages / fast.seconds
                values["fast_p50_ms"], values["fast_p99_ms"] = fast.quantile_ms(0.5), fast.quantile_ms(0.99)
                wait_until_quiet(broker.pid)
                tell(f"{RATE:,} messages a second")
                written, waits = [], LoadOutcome(0, 0.0)
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
            if "recovery_ms" in values:  # nobody else keeps what it promised for a client that is away
                tell("a queue for a session that is away")
                values.update(measure_away(subject, plan))
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


def _recovery(subject: Subject, folder: Path, plan: DurablePlan) -> dict[str, float]:
    """How long recovery takes on what the kill left, and whether the session is still there."""
    values = {}
    found = replay(folder / "data" / "journal")
    if found is not None:
        values["journal_mb"] = found.journal_bytes / 1e6
        values["recovery_ms"] = found.seconds * 1e3
        values["recovery_s_per_100_mb"] = found.per_100_mb(found.seconds)
        values["recovery_cpu_s_per_100_mb"] = found.per_100_mb(found.cpu_s)
    with running_in(subject, folder, plan.cores) as broker:
        values["start_after_kill_ms"] = broker.start_ms
        values["kept"] = float(is_kept(broker.port))
    return values


def measure_sqlite(plan: DurablePlan) -> DurableFigures:
    """One commit per message, in this process."""
    import sqlite3

    figures = DurableFigures("sqlite", sqlite3.sqlite_version, "one commit per message")
    with tempfile.TemporaryDirectory(prefix="edgebroker-sqlite-", dir=plan.folder) as name:
        outcome, written = sqlite_per_message(Path(name), plan.seconds, plan.payload_bytes, os.getpid())
    figures.values = {
        "rate": outcome.messages / outcome.seconds,
        "fast_p50_ms": outcome.quantile_ms(0.5),
        "fast_p99_ms": outcome.quantile_ms(0.99),
        "written": written / (outcome.messages * plan.payload_bytes),
    }
    return figures
