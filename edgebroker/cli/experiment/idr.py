"""`edgebroker experiment idr`: static and dynamic routing beside each other while publishers burst."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import click

from edgebroker.simworld.experiments.burst import GROUP, Outcome
from edgebroker.simworld.experiments.idr import SCALE, SEEDS, Both, Case, beyond, cases, findings, labels, run

from .linechart import Line, line_chart, write_chart
from .progress import Progress
from .report import report

STATIC_COLOUR = "#c2410c"
DYNAMIC_COLOUR = "#28549a"


@click.command(name="idr", short_help="Static and dynamic routing while publishers burst.")
@click.option(
    "--seeds", type=click.IntRange(1, 100), default=SEEDS, show_default=True, help="Runs of the burst: seeds 1 to N."
)
@click.option(
    "--scale",
    type=click.FloatRange(0.005, 1),
    default=SCALE,
    show_default=True,
    help="How many of the published 300,000 events, at the same rates.",
)
@click.option(
    "--jobs", type=click.IntRange(1, 64), default=os.cpu_count() or 1, show_default="all cores", help="Runs at once."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw a chart into this file as well.")
def command(seeds: int, scale: float, jobs: int, as_json: bool, svg: Path | None) -> None:
    """Let publishers say more than their gateway's links can carry, with static and with dynamic routing.

    70 brokers of the product, on virtual time, 2,000 subscribers and 100 publishers. Ends with exit code 1 if the
    outcome is not the published one.
    """
    outcomes = measured(seeds, scale, jobs)
    write_chart(svg, drawn(outcomes[Case(1)]))
    head = f"a publisher bursts: dynamic against static routing, {scale:g} of the events, {seeds} seeds"
    report(head, {"seeds": seeds, "scale": scale}, findings(outcomes, seeds), beyond(outcomes, seeds), as_json)


def measured(seeds: int, scale: float, jobs: int) -> dict[Case, Both]:
    """All runs, so many at once."""
    wanted = [(case, is_dynamic) for case in cases(seeds) for is_dynamic in (False, True)]
    found: dict[tuple[Case, bool], Outcome] = {}
    with ProcessPoolExecutor(jobs) as pool, Progress() as progress:
        running = {pool.submit(run, case, is_dynamic, scale): (case, is_dynamic) for case, is_dynamic in wanted}
        for done in as_completed(running):
            case, is_dynamic = running[done]
            found[case, is_dynamic] = done.result()
            progress.show(f"{len(found)} of {len(wanted)}: {', '.join(labels(case, is_dynamic))}")
    return {case: (found[case, False], found[case, True]) for case in cases(seeds)}


def drawn(both: Both) -> str:
    """The chart: the greatest delay in each thousand events, in the order in which they were published."""
    lines = [
        Line(name, {(at + 1) * GROUP: delay for at, delay in enumerate(both[place].maxima_s)}, colour)
        for place, (name, colour) in enumerate((("static", STATIC_COLOUR), ("dynamic", DYNAMIC_COLOUR)))
    ]
    return line_chart("Events published while one publisher bursts", "", "events", "s, greatest delay", lines)
