"""`edgebroker bench overlay`: messages from one gateway to another, beside two brokers joined by a bridge."""

from __future__ import annotations

import sys
from dataclasses import replace

import click

from edgebroker.cli import Refused
from edgebroker.cli.word import Word

from .. import report, rounds
from ..job import Job, Sample
from ..mqtt import RUN_FAILED, pinned, stopped_by_sigterm
from ..subjects import Subject, SubjectMissing
from ..trial import Cores
from .pairs import PAIRS
from .trial import measure
from .workloads import KILLED, NAMES, WORKLOADS


@click.command(name="overlay", short_help="Measure the link between two gateways.")
@click.option(
    "--against",
    type=Word(["mosquitto", "none"]),
    default="mosquitto",
    show_default=True,
    help="The peer: two of them, joined by a bridge.",
)
@click.option("--only", multiple=True, type=Word(NAMES), help="Only this workload; may be repeated.")
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
        pairs = {rounds.OURS: PAIRS["edgebroker"]()}
        if against != "none":
            pairs[rounds.PEER] = PAIRS[against]()
    except SubjectMissing as missing:
        raise Refused(f"skipped: {missing}") from None
    by_name = {pair.subject.name: pair for pair in pairs.values()}

    def measured(subject: Subject, job: Job | None, cores: Cores) -> Sample:
        return measure(by_name[subject.name], job, cores)

    with stopped_by_sigterm(), pinned() as cores:
        about = report.machine(cores)
        sides = {role: pair.subject for role, pair in pairs.items()}
        plan = rounds.Plan(sides, cores, 1 if quick else round_count, seconds, quick, measured)
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
