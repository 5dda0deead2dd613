"""`edgebroker simulate`: storms over simulated federations, and what they broke."""

from __future__ import annotations

import time

import click

from edgebroker.simworld.storms.scenario import draw
from edgebroker.simworld.storms.shrink import shrink
from edgebroker.simworld.storms.storm import live

from ..experiment.progress import Progress
from .crew import outcomes
from .report import Tally, as_object, as_text, timetable

BROKEN = 1  # exit code: a promise was not kept


@click.command(name="simulate")
@click.option("--scenarios", type=click.IntRange(1), default=100, show_default=True, help="How many storms.")
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="That of the first; the next follow."
)
@click.option("--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="How many processes.")
@click.option("--until-broken", is_flag=True, help="Stop at the first storm that breaks a promise.")
@click.option("--shrink", "shrinks", is_flag=True, help="Make the first such storm as small as can be, and print it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(scenarios: int, seed: int, jobs: int, until_broken: bool, shrinks: bool, as_json: bool) -> None:
    """Let storms blow over simulated federations, and check every promise of docs/promises.md.

    Each scenario is a federation, its devices and a timetable of faults, all drawn from its seed: the same seed is the
    same run, bit for bit. Ends with exit code 1 if anything was broken; what repeats it and what makes it smaller is
    printed.
    """
    tally = Tally(seed)
    began = time.monotonic()
    with Progress() as progress:
        for outcome in outcomes(range(seed, seed + scenarios), jobs):
            tally.add(outcome)
            broken = f", {len(tally.broken)} broken" if tally.broken else ""
            progress.show(f"{tally.scenarios:,} of {scenarios:,} storms{broken}")
            if outcome.broken and (until_broken or shrinks):
                break
        tally.elapsed_s = time.monotonic() - began
        smallest = None
        if shrinks and tally.broken:
            first = live(draw(tally.broken[0].scenario.seed))
            smallest = shrink(first, lambda count: progress.show(f"making it smaller, attempt {count:,}"))
    click.echo(as_object(tally, smallest) if as_json else as_text(tally))
    if smallest is not None and not as_json:
        click.echo("\n" + timetable(smallest))
    if tally.broken:
        raise SystemExit(BROKEN)


__all__ = ["command"]
