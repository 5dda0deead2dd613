"""The workloads by name: the load, what is read from it, and what we want to reach.

Targets are relative to the peer in the same run wherever speed is concerned: absolute figures of a shared machine say
more about its neighbours than about a broker. Memory and start time have absolute targets.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from edgelab.bench.job import LoadJob


class TargetBasis(Enum):
    """What a target is measured against; the value is how it reads behind the number."""

    PEER = "x peer"
    MIB = "MiB"
    MS = "ms"
    MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class Target:
    """At least or at most so much."""

    at_least: bool
    limit: float
    against: TargetBasis

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limit:g} {self.against.value}"

    def is_met(self, ours: float, ratio: float | None) -> bool | None:
        """None if it cannot be told: a relative target without a peer."""
        value = ratio if self.against is TargetBasis.PEER else ours
        if value is None:
            return None
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass(frozen=True, slots=True)
class WorkloadMeasure:
    """One figure of a workload: its row in the report, the key in the sample, unit and target."""

    name: str
    key: str
    unit: str
    target: Target | None = None


@dataclass(frozen=True, slots=True)
class BenchWorkload:
    """One load on a fresh broker. Without a job only the start is timed."""

    name: str
    about: str
    job: LoadJob | None
    measures: tuple[WorkloadMeasure, ...]


def at_least(ratio: float) -> Target:
    """At least *ratio* times the peer."""
    return Target(True, ratio, TargetBasis.PEER)


def at_most(limit: float, against: TargetBasis = TargetBasis.PEER) -> Target:
    """At most *limit*, which is a ratio or a figure, as *against* says."""
    return Target(False, limit, against)


def delivered(name: str, about: str, job: LoadJob, target: Target | None) -> BenchWorkload:
    """A workload whose only figure is deliveries per second."""
    return BenchWorkload(name, about, job, (WorkloadMeasure(name, "deliveries_per_s", "msg/s", target),))


# Windows: at most 1,400 messages of 75 bytes, about 100 KiB, are under way to one subscriber. That is a tenth of what
# edgebroker keeps for a slow reader before it drops QoS 0 messages, and less than the kernel's socket buffers.
WORKLOADS = (
    delivered(
        "throughput_single",
        "QoS 0, 1:1, one packet per write",
        LoadJob("stream", packets_per_write=1, window=1_000),
        at_least(1.5),
    ),
    delivered(
        "throughput_batched",
        "QoS 0, 1:1, 700 packets per write",
        LoadJob("stream", packets_per_write=700, window=1_400),
        at_least(8),
    ),
    delivered(
        "throughput_mixed",
        "QoS 0, 1:1, 700 packets per write, 100 topics in turn, payloads of 24 to 123 bytes",
        LoadJob("stream", shape="mixed", packets_per_write=700, window=1_400),
        None,
    ),
    delivered(
        "fan_out",
        "QoS 0, 1:100, 50 packets per write",
        LoadJob("stream", subscribers=100, packets_per_write=50, window=200),
        at_least(8),
    ),
    delivered(
        "fan_in",
        "QoS 0, 100:1, one packet per write, publishers in turn",
        LoadJob("stream", publishers=100, packets_per_write=1, window=1_000),
        None,
    ),
    delivered("qos1", "QoS 1 end to end, 1:1, window 20", LoadJob("acknowledged", window=20), at_least(8)),
    # One pair with a window of 20 waits for round trips as soon as the broker is quick; ten pairs keep it busy.
    delivered(
        "qos1_pairs",
        "QoS 1 end to end, ten times 1:1, window 20 each",
        LoadJob("acknowledged", publishers=10, window=20),
        at_least(8),
    ),
    delivered(
        "wildcards",
        "QoS 0, 100 topics under 10,000 wildcard filters of 100 subscribers, 100 packets per write",
        LoadJob("stream", shape="wildcards", subscribers=100, packets_per_write=100, window=400),
        at_least(2),
    ),
    BenchWorkload(
        "cpu",
        "QoS 0, 100 publishers in turn, 20,000 msg/s in all, one subscriber",
        LoadJob("paced", publishers=100, rate=20_000),
        (WorkloadMeasure("cpu_per_message", "cpu_us", "us", at_most(1.0)),),
    ),
    BenchWorkload(
        "latency",
        "QoS 0, 10 publishers in turn, 1,000 msg/s in all, one subscriber",
        LoadJob("paced", publishers=10, rate=1_000),
        (
            WorkloadMeasure("latency_p50", "p50_us", "us", at_most(1.2)),
            WorkloadMeasure("latency_p99", "p99_us", "us", at_most(1.2)),
            WorkloadMeasure("latency_cpu", "cpu_us", "us", at_most(1.2)),
        ),
    ),
    BenchWorkload(
        "latency_irregular",
        "the same at any time: the intervals are exponentially distributed",
        LoadJob("paced", publishers=10, rate=1_000, is_irregular=True),
        (
            WorkloadMeasure("latency_irregular_p50", "p50_us", "us", at_most(1.2)),
            WorkloadMeasure("latency_irregular_p99", "p99_us", "us", at_most(1.2)),
            WorkloadMeasure("latency_irregular_cpu", "cpu_us", "us"),
        ),
    ),
    BenchWorkload(
        "memory_idle",
        "no client, after 1 s",
        LoadJob("idle", subscribers=0, seconds=1.0),
        (
            WorkloadMeasure("memory_idle", "rss_mib", "MiB", at_most(32, TargetBasis.MIB)),
            WorkloadMeasure("memory_idle_pss", "pss_mib", "MiB"),
        ),
    ),
    BenchWorkload(
        "memory_clients",
        "1,000 silent clients with one subscription each, after 1 s",
        LoadJob("idle", subscribers=1_000, seconds=1.0),
        (
            WorkloadMeasure("memory_clients", "rss_mib", "MiB", at_most(60, TargetBasis.MIB)),
            WorkloadMeasure("memory_clients_pss", "pss_mib", "MiB"),
        ),
    ),
    BenchWorkload(
        "start",
        "from exec to the first answered CONNECT, files in the page cache",
        None,
        (WorkloadMeasure("start", "start_ms", "ms", at_most(250, TargetBasis.MS)),),
    ),
)

NAMES = tuple(workload.name for workload in WORKLOADS)
