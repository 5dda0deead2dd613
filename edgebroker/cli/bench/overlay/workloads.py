"""The workloads by name; what they mean stands in docs/benchmarks.md."""

from __future__ import annotations

from ..job import Job
from ..workloads import Against, Measure, Target, Workload, at_least, at_most

KILLED = "killed"


def forwarded(name: str, about: str, job: Job, target: Target | None) -> Workload:
    """A workload of which the rate counts, and what both brokers together spend on a message."""
    rate = Measure(name, "deliveries_per_s", "msg/s", target)
    return Workload(name, about, job, (rate, Measure(f"{name}_cpu", "cpu_us", "us")))


WORKLOADS = (
    forwarded(
        "forward_batched",
        "QoS 0, 1:1 over the link, 700 packets per write",
        Job("stream", packets_per_write=700, window=1_400),
        at_least(3),
    ),
    forwarded(
        "forward_single",
        "QoS 0, 1:1 over the link, one packet per write",
        Job("stream", packets_per_write=1, window=1_000),
        None,
    ),
    forwarded(
        "forward_qos1",
        "QoS 1 end to end over the link, 1:1, window 20, kept in memory by both",
        Job("acknowledged", window=20),
        at_least(1),
    ),
    # A disk that takes a commit every 15 ms answers 20 messages 66 times a second; many clients share each commit.
    forwarded(
        "forward_synced",
        "QoS 1 end to end over the link, 20 times 1:1, window 100 each, durable sessions; ours synced, at both ends",
        Job("acknowledged", publishers=20, window=100, is_durable=True),
        at_least(1),
    ),
    Workload(
        KILLED,
        "QoS 1, 1,000 msg/s to a durable session; the receiving broker is killed in the middle",
        Job(KILLED, rate=1_000, seconds=10.0, is_durable=True),
        (
            Measure("killed_acknowledged", "acknowledged", "messages"),
            Measure("killed_lost", "lost", "messages", at_most(0, Against.MESSAGES)),
            Measure("killed_twice", "twice", "messages"),
            Measure("killed_out_of_order", "went_back", "messages", at_most(0, Against.MESSAGES)),
        ),
    ),
)

NAMES = tuple(workload.name for workload in WORKLOADS)
