"""One side of the comparison: a broker under both loads, killed, and started again on what it left."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from ..client import HOST
from ..job import LoadFailed
from ..subjects import Subject
from ..trial import BrokerFailed
from .away import measure_away
from .baseline import sqlite_per_message
from .disk import written_by
from .load import Load, Outcome
from .replay import replay
from .running import Plan, is_kept, running_in

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


def _recovery(subject: Subject, folder: Path, plan: Plan) -> dict[str, float]:
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
