"""`edgebroker bench overlay`: messages from one gateway to another, beside two brokers joined by a bridge.

docs/benchmarks.md explains the workloads.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import click

from edgebroker.cli import Refused
from edgebroker.cli.parameters import WordChoice, examples
from edgelab.bench import report, rounds
from edgelab.bench.job import LoadJob, LoadSample
from edgelab.bench.mqtt import RUN_FAILED, pinned, stopped_by_sigterm
from edgelab.bench.overlay.pairs import PAIRS, edgebroker
from edgelab.bench.overlay.trial import measure
from edgelab.bench.subjects import Subject, SubjectNotFound
from edgelab.bench.trial import Cores
from edgelab.bench.workloads import BenchWorkload, Target, TargetBasis, WorkloadMeasure, at_least, at_most

KILLED = "killed"


def forwarded(name: str, about: str, job: LoadJob, target: Target | None) -> BenchWorkload:
    """A workload of which the rate counts, and what both brokers together spend on a message."""
    rate = WorkloadMeasure(name, "deliveries_per_s", "msg/s", target)
    return BenchWorkload(name, about, job, (rate, WorkloadMeasure(f"{name}_cpu", "cpu_us", "us")))


WORKLOADS = (
    forwarded(
        "forward_batched",
        "QoS 0, 1:1 over the link, 700 packets per write",
        LoadJob("stream", packets_per_write=700, window=1_400),
        at_least(3),
    ),
    forwarded(
        "forward_single",
        "QoS 0, 1:1 over the link, one packet per write",
        LoadJob("stream", packets_per_write=1, window=1_000),
        None,
    ),
    forwarded(
        "forward_qos1",
        "QoS 1 end to end over the link, 1:1, window 20, kept in memory by both",
        LoadJob("acknowledged", window=20),
        at_least(1),
    ),
    # A disk that takes a commit every 15 ms answers 20 messages 66 times a second; many clients share each commit.
    forwarded(
        "forward_synced",
        "QoS 1 end to end over the link, 20 times 1:1, window 100 each, durable sessions; ours synced, at both ends",
        LoadJob("acknowledged", publishers=20, window=100, is_durable=True),
        at_least(1),
    ),
    BenchWorkload(
        KILLED,
        "QoS 1, 1,000 msg/s to a durable session; the receiving broker is killed in the middle",
        LoadJob(KILLED, rate=1_000, seconds=10.0, is_durable=True),
        (
            WorkloadMeasure("killed_acknowledged", "acknowledged", "messages"),
            WorkloadMeasure("killed_lost", "lost", "messages", at_most(0, TargetBasis.MESSAGES)),
            WorkloadMeasure("killed_twice", "twice", "messages"),
            WorkloadMeasure("killed_out_of_order", "went_back", "messages", at_most(0, TargetBasis.MESSAGES)),
        ),
    ),
)

NAMES = tuple(workload.name for workload in WORKLOADS)


@click.command(
    name="overlay",
    short_help="Measure the link between two gateways.",
    epilog=examples("edgebroker bench overlay --rounds 1"),
)
@click.option(
    "--against",
    type=WordChoice(["mosquitto", "edgebroker", "none"]),
    default="mosquitto",
    show_default=True,
    help="The peer: two of them, joined by a bridge. `edgebroker` shows what --logging costs.",
)
@click.option("--logging", is_flag=True, help="Both of ours write a delivery log.")
@click.option("--only", multiple=True, type=WordChoice(NAMES), help="Only this workload; may be repeated.")
@click.option("--rounds", "round_count", type=click.IntRange(1, 99), default=3, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.1, 60), default=2.0, show_default=True, help="Length of a run.")
@click.option(
    "--outage",
    type=click.FloatRange(0.1, 60),
    default=10.0,
    show_default=True,
    help="How long the receiving broker is dead, in seconds.",
)
@click.option("--quick", is_flag=True, help="One round of very short runs: shows that it works, measures nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    against: str,
    logging: bool,
    only: tuple[str, ...],
    round_count: int,
    seconds: float,
    outage: float,
    quick: bool,
    as_json: bool,
) -> None:
    """Publish at one gateway and subscribe at another, alternating with two Mosquitto brokers and a bridge.

    Both brokers of a side share one core, the load generator has the other; everything stays on the loopback
    interface. So a rate says what both brokers spend on a message together. A run in which a message is lost, doubled
    or damaged is marked failed and is not averaged; but where the receiving broker is killed the losses are the figure.
    Exit code 0: measured; 1: a run failed; 2: it cannot be done here.
    """
    if sys.platform != "linux":
        raise Refused("this benchmark needs Linux: it pins processes to cores and reads /proc")
    try:
        pairs = {rounds.OURS: edgebroker(logging)}
        if against != "none":
            pairs[rounds.PEER] = PAIRS[against]()
    except SubjectNotFound as missing:
        raise Refused(f"skipped: {missing}") from None
    by_name = {pair.subject.name: pair for pair in pairs.values()}

    def measured(subject: Subject, job: LoadJob | None, cores: Cores) -> LoadSample:
        return measure(by_name[subject.name], job, cores)

    with stopped_by_sigterm(), pinned() as cores:
        about = report.machine(cores)
        sides = {role: pair.subject for role, pair in pairs.items()}
        plan = rounds.RoundPlan(sides, cores, 1 if quick else round_count, seconds, quick, measured)
        killed = replace(plan, rounds=1, seconds=outage)  # what is lost is counted, not timed
        rows = [
            row
            for workload in WORKLOADS
            if not only or workload.name in only
            for row in rounds.run(
                killed if workload.name == KILLED else plan, workload, lambda line: click.echo(line, err=True)
            )
        ]
    click.echo((report.as_json if as_json else report.as_table)(about, sides, rows))
    if any(row.failed for row in rows):
        raise SystemExit(RUN_FAILED)


__all__ = ["command"]
