"""`edgebroker bench bridge`: messages to a Mosquitto over our bridge, beside Mosquitto's own.

docs/benchmarks.md explains the workloads.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import click

from edgebroker.cli import Refused
from edgebroker.cli.parameters import WordChoice, examples
from edgelab.bench import report, rounds
from edgelab.bench.bridge.sides import ours, theirs
from edgelab.bench.bridge.trial import of_subject
from edgelab.bench.job import LoadJob
from edgelab.bench.mqtt import RUN_FAILED, pinned, stopped_by_sigterm
from edgelab.bench.subjects import SubjectNotFound
from edgelab.bench.workloads import BenchWorkload, Target, TargetBasis, WorkloadMeasure, at_least, at_most

BACKLOG, ABSENT = "backlog", "absent"
BACKLOG_MESSAGES = 100_000
WINDOW = 100


def rate(name: str, about: str, shape: str, qos: int, target: Target | None) -> BenchWorkload:
    """A workload of which the rate counts."""
    job = LoadJob("rate", shape=shape, qos=qos, window=WINDOW)
    return BenchWorkload(name, about, job, (WorkloadMeasure(name, "messages_per_s", "msg/s", target),))


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
    BenchWorkload(
        "latency",
        "QoS 1, 1,000 msg/s, from a gateway to a Mosquitto",
        LoadJob("latency", shape="instead", rate=1_000),
        (WorkloadMeasure("latency_p50", "p50_us", "us"), WorkloadMeasure("latency_p99", "p99_us", "us")),
    ),
    BenchWorkload(
        BACKLOG,
        f"QoS 1, {BACKLOG_MESSAGES:,} messages while the receiving broker was away",
        LoadJob("backlog", shape="instead", window=WINDOW, messages_max=BACKLOG_MESSAGES),
        (
            WorkloadMeasure("backlog_drained", "messages_per_s", "msg/s", at_least(0.5)),
            WorkloadMeasure("backlog_lost", "lost", "messages", at_most(0, TargetBasis.MESSAGES)),
            WorkloadMeasure("backlog_doubled", "doubled", "messages"),
            WorkloadMeasure("backlog_overtaken", "overtaken", "messages", at_most(0, TargetBasis.MESSAGES)),
            WorkloadMeasure("backlog_memory", "grown_mib", "MiB"),
        ),
    ),
    BenchWorkload(
        ABSENT,
        "QoS 1, 1,000 msg/s while the receiving broker is away",
        LoadJob("absent", shape="instead", rate=1_000),
        (
            WorkloadMeasure("absent_memory", "grown_mib", "MiB", at_most(1)),
            WorkloadMeasure("absent_taken", "messages", "messages"),
            WorkloadMeasure("absent_drained", "messages_per_s", "msg/s"),
            WorkloadMeasure("absent_lost", "lost", "messages", at_most(0, TargetBasis.MESSAGES)),
            WorkloadMeasure("absent_doubled", "doubled", "messages"),
        ),
    ),
)

NAMES = tuple(workload.name for workload in WORKLOADS)


QUICK_MESSAGES = 2_000


@click.command(
    name="bridge",
    short_help="Measure our bridge, alternating with Mosquitto's.",
    epilog=examples("edgebroker bench bridge --rounds 1"),
)
@click.option(
    "--against",
    type=WordChoice(["mosquitto", "none"]),
    default="mosquitto",
    show_default=True,
    help="The peer: Mosquitto's own bridge.",
)
@click.option("--only", multiple=True, type=WordChoice(NAMES), help="Only this workload; may be repeated.")
@click.option("--rounds", "round_count", type=click.IntRange(1, 99), default=3, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.1, 60), default=2.0, show_default=True, help="Length of a run.")
@click.option(
    "--absent-minutes",
    type=click.FloatRange(0.01, 1_440),
    default=0.5,
    show_default=True,
    help="How long the receiving broker is away.",
)
@click.option("--quick", is_flag=True, help="One round of very short runs: shows that it works, measures nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    against: str,
    only: tuple[str, ...],
    round_count: int,
    seconds: float,
    absent_minutes: float,
    quick: bool,
    as_json: bool,
) -> None:
    """Publish at one broker and subscribe at another, joined by our bridge, alternating with Mosquitto's.

    All brokers of a side share one core, the load generator has the other; everything stays on the loopback interface.
    A run in which a message is lost, doubled or out of order is marked failed and is not averaged. What a bridge of
    ours has acknowledged is on disk; Mosquitto has persistence, and acknowledges before it writes.
    Exit code 0: measured; 1: a run failed; 2: it cannot be done here.
    """
    if sys.platform != "linux":
        raise Refused("this benchmark needs Linux: it pins processes to cores and reads /proc")
    try:
        sides = {rounds.OURS: ours()}
        if against != "none":
            sides[rounds.PEER] = theirs()
    except SubjectNotFound as missing:
        raise Refused(f"skipped: {missing}") from None
    subjects = {role: side.subject for role, side in sides.items()}
    measured = of_subject({side.subject.name: side for side in sides.values()})

    with stopped_by_sigterm(), pinned() as cores:
        about = report.machine(cores)
        plan = rounds.RoundPlan(subjects, cores, 1 if quick else round_count, seconds, quick, measured)
        once = replace(plan, rounds=1)  # long, and counted more than timed
        plans = {BACKLOG: once, ABSENT: replace(once, seconds=absent_minutes * 60)}
        rows = [
            row
            for workload in WORKLOADS
            if not only or workload.name in only
            for row in rounds.run(
                plans.get(workload.name, plan),
                short(workload) if quick else workload,
                lambda line: click.echo(line, err=True),
            )
        ]
    click.echo((report.as_json if as_json else report.as_table)(about, subjects, rows))
    if any(row.failed for row in rows):
        raise SystemExit(RUN_FAILED)


def short(workload: BenchWorkload) -> BenchWorkload:
    """With few messages."""
    assert workload.job is not None
    return replace(workload, job=replace(workload.job, messages_max=QUICK_MESSAGES))


__all__ = ["command"]
