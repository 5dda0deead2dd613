"""The workloads by name; what they mean stands in docs/benchmarks.md."""

from __future__ import annotations

from ..job import Job
from ..workloads import Against, Measure, Target, Workload, at_least, at_most

BACKLOG, ABSENT = "backlog", "absent"
BACKLOG_MESSAGES = 100_000
WINDOW = 100


def rate(name: str, about: str, shape: str, qos: int, target: Target | None) -> Workload:
    """A workload of which the rate counts."""
    job = Job("rate", shape=shape, qos=qos, window=WINDOW)
    return Workload(name, about, job, (Measure(name, "messages_per_s", "msg/s", target),))


WORKLOADS = (
    *(
        rate(
            f"between_qos{qos}",
            f"QoS {qos}, from one Mosquitto to another, by a gateway beside them",
            "beside",
            qos,
            None,
        )
        for qos in range(3)
    ),
    *(
        rate(f"out_qos{qos}", f"QoS {qos}, from a gateway to a Mosquitto", "instead", qos, target)
        for qos, target in enumerate((at_least(1), at_least(0.5), at_least(0.5)))
    ),
    Workload(
        "latency",
        "QoS 1, 1,000 msg/s, from a gateway to a Mosquitto",
        Job("latency", shape="instead", rate=1_000),
        (Measure("latency_p50", "p50_us", "us"), Measure("latency_p99", "p99_us", "us")),
    ),
    Workload(
        BACKLOG,
        f"QoS 1, {BACKLOG_MESSAGES:,} messages while the receiving broker was away",
        Job("backlog", shape="instead", window=WINDOW, messages_max=BACKLOG_MESSAGES),
        (
            Measure("backlog_drained", "messages_per_s", "msg/s", at_least(0.5)),
            Measure("backlog_lost", "lost", "messages", at_most(0, Against.MESSAGES)),
            Measure("backlog_doubled", "doubled", "messages"),
            Measure("backlog_overtaken", "overtaken", "messages", at_most(0, Against.MESSAGES)),
            Measure("backlog_memory", "grown_mib", "MiB"),
        ),
    ),
    Workload(
        ABSENT,
        "QoS 1, 1,000 msg/s while the receiving broker is away",
        Job("absent", shape="instead", rate=1_000),
        (
            Measure("absent_memory", "grown_mib", "MiB", at_most(1)),
            Measure("absent_taken", "messages", "messages"),
            Measure("absent_drained", "messages_per_s", "msg/s"),
            Measure("absent_lost", "lost", "messages", at_most(0, Against.MESSAGES)),
            Measure("absent_doubled", "doubled", "messages"),
        ),
    ),
)

NAMES = tuple(workload.name for workload in WORKLOADS)
