"""A journal of a size that is felt: much waits for a session that is away, the broker is killed and started again."""

from __future__ import annotations

import select
import tempfile
import time
from array import array
from pathlib import Path

from ..client import STALL_S, DurableClient
from ..job import LoadFailed
from ..processes import CpuClock
from ..subjects import Subject, with_settings
from ..trial import BrokerFailed
from .load import DURABLE, Publisher
from .replay import replay
from .running import Plan, is_kept, running_in

JOURNAL_BYTES = 100_000_000
"""How much is to be recovered, at most..."""
MESSAGE_BYTES = 70  # ...of which this much for each message is not its payload: topic, publisher, place in the queue
MESSAGES_MAX = 1_000_000  # the most that may wait for one client
WINDOW = 500

SETTINGS = f"""\
[limits]
queue_messages_max = {MESSAGES_MAX}
queue_bytes_max = 1_073_741_824
queued_messages_max = 10_000_000
queued_bytes_max = 1_073_741_824

[quota]
memory_bytes_max = 2_147_483_648
"""


def measure_away(subject: Subject, plan: Plan) -> dict[str, float]:
    """Figures of one such run. Raises BrokerFailed, also if something that was acknowledged is not there."""
    subject = with_settings(subject, SETTINGS)
    with tempfile.TemporaryDirectory(prefix="edgebroker-durable-", dir=plan.folder) as name:
        folder = Path(name)
        with running_in(subject, folder, plan.cores) as broker:
            client = DurableClient(broker.port, DURABLE)
            client.subscribe(["bench/durable/#"], qos=1)
            client.close()
            acknowledged = fill(broker.port, plan)
            broker.process.kill()
            broker.process.wait()
        found = replay(folder / "data" / "journal")
        if found is None or found.copies < acknowledged:
            kept = 0 if found is None else found.copies
            raise BrokerFailed(f"{acknowledged:,} messages were acknowledged, and {kept:,} are there after the kill")
        values = {
            "away_messages": float(found.copies),
            "away_mb": found.journal_bytes / 1e6,
            "away_recovery_s_per_100_mb": found.per_100_mb(found.seconds),
            "away_recovery_cpu_s_per_100_mb": found.per_100_mb(found.cpu_s),
        }
        with running_in(subject, folder, plan.cores) as broker:
            values["away_start_cpu_ms"] = CpuClock.read(broker.pid).used_s * 1e3
            values["away_start_ms"] = broker.start_ms
            values["away_peak_mib"] = peak_kib(broker.pid) / 1024
            values["away_kept"] = float(is_kept(broker.port))
    return values


def fill(port: int, plan: Plan) -> int:
    """Publish as fast as it goes, until there is enough or twice the time of a load is over. How many were taken."""
    count = min(JOURNAL_BYTES // (MESSAGE_BYTES + plan.payload_bytes), MESSAGES_MAX)
    publishers = [Publisher(port, number, plan.payload_bytes) for number in range(plan.publishers)]
    by_descriptor = {publisher.client.socket.fileno(): publisher for publisher in publishers}
    waits = array("q")
    until, sent, acked = time.perf_counter() + 2 * plan.seconds, 0, 0
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


def peak_kib(pid: int) -> int:
    """The most memory that *pid* ever had (proc_pid_status(5), VmHWM)."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise AssertionError("the kernel tells no peak")
