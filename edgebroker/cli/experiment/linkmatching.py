"""`edgebroker experiment link-matching`: the steps of link matching over several hops beside a centralised match."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

import click

from edgebroker.cli import Refused
from edgebroker.matching.published.fixed import Optimisations
from edgebroker.simworld.experiments.matchingsteps import (
    CELLS,
    CROSSING,
    EVENTS,
    FACTORED,
    GROWTH,
    HOPS_MAX,
    REFERENCE,
    TOLERANCE,
    Steps,
    cells,
    complaints,
    deviations,
    mean_of,
    measure,
)

from .linechart import Line, line_chart, write_chart
from .progress import Progress

OTHERWISE = 1  # exit code: the outcome is not the published one
SUBSCRIPTIONS_MAX = 100_000
CENTRALISED_COLOUR = "#c2410c"
HOPS_COLOURS = ("#9fb8dc", "#7f9fd0", "#5f86c3", "#416db3", "#28549a", "#14397a")
"""Darker with the distance."""

Rows = Mapping[int, Steps]
"""Number of subscriptions -> mean over the seeds."""


def counts(_ctx: click.Context, _parameter: click.Parameter, text: str) -> tuple[int, ...]:
    """Numbers of subscriptions from a list with commas, ascending and each once."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) <= SUBSCRIPTIONS_MAX for part in parts):
        raise click.BadParameter(f"{text!r} is no list of numbers from 1 to {SUBSCRIPTIONS_MAX}, as in 2000,6000")
    return tuple(sorted(set(map(int, parts))))


@click.command(name="link-matching")
@click.option(
    "--seeds",
    type=click.IntRange(1, 1_000),
    default=5,
    show_default=True,
    help="Runs to take the mean of: seeds 1 to N.",
)
@click.option(
    "--subscriptions",
    callback=counts,
    default=",".join(map(str, REFERENCE)),
    show_default=True,
    help="How many subscriptions there are, with commas between several sizes.",
)
@click.option(
    "--scale",
    type=click.FloatRange(0.01, 100),
    default=1.0,
    show_default=True,
    help=f"How many of the {EVENTS} events of a run.",
)
@click.option(
    "--index-attributes",
    type=click.IntRange(0, 5),
    default=FACTORED.index_attributes,
    show_default=True,
    help="Factoring: how many attributes choose a tree.",
)
@click.option("--eliminate-trivial-tests", is_flag=True, help="Leave out nodes with a * edge alone.")
@click.option("--delay-branches", is_flag=True, help="Skip a * edge if everything behind it requires what fails.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw a chart into this file as well.")
def command(
    seeds: int,
    subscriptions: tuple[int, ...],
    scale: float,
    index_attributes: int,
    eliminate_trivial_tests: bool,
    delay_branches: bool,
    as_json: bool,
    svg: Path | None,
) -> None:
    """Count the matching steps of events on their way.

    39 brokers in three regions match every event link by link; the steps of all brokers up to one that has clients for
    the event are added up, and compared with one centralised match. Ends with exit code 1 if the outcome is not the
    published one. With other optimisations than the published ones nothing is judged.
    """
    optimisations = Optimisations(index_attributes, eliminate_trivial_tests, delay_branches)
    events = max(1, round(EVENTS * scale))
    rows = measured(seeds, subscriptions, events, optimisations)
    judged = optimisations == FACTORED and any(size in REFERENCE for size in rows)
    wrong = complaints(rows) if judged else []
    write_chart(svg, drawn(rows))
    if as_json:
        about = {
            "seeds": seeds,
            "events": events,
            "index_attributes": index_attributes,
            "eliminate_trivial_tests": eliminate_trivial_tests,
            "delay_branches": delay_branches,
        }
        click.echo(json.dumps({**about, "rows": as_objects(rows), "judged": judged, "complaints": wrong}, indent=2))
    else:
        click.echo("\n".join([*table(rows, seeds, events), "", *verdict(rows, judged, wrong)]))
    if wrong:
        raise SystemExit(OTHERWISE)


def measured(seeds: int, sizes: Sequence[int], events: int, optimisations: Optimisations) -> Rows:
    """The means by number of subscriptions. Raises Refused if there are too few for a mean."""
    rows = {}
    with Progress() as progress:
        for size in sizes:
            runs = []
            for seed in range(1, seeds + 1):
                progress.show(f"{size:,} subscriptions: seed {seed} of {seeds}")
                try:
                    runs.append(measure(Random(seed), size, events, optimisations))
                except ValueError as error:
                    raise Refused(str(error)) from None
            rows[size] = mean_of(runs)
    return rows


def table(rows: Rows, seeds: int, events: int) -> Iterator[str]:
    """The outcome in plain text, legible without colour and when pasted into a document."""
    which = "seed 1" if seeds == 1 else f"seeds 1 to {seeds}"
    yield f"mean matching steps per event; {events:,} events, {which}"
    yield ""
    yield f"{'subscriptions':<24}" + "".join(f"{name:>12}" if name == CELLS[0] else f"{name:>8}" for name in CELLS)
    for size, steps in rows.items():
        yield _line(f"{size:>13,}  measured", [f"{value:.1f}" for value in cells(steps)])
        if size in REFERENCE:
            yield _line(f"{'':13}  reference", [f"{value:.0f}" for value in cells(REFERENCE[size])])
            yield _line(f"{'':13}  off by", [_percent(part) for part in cells(deviations(steps, REFERENCE[size]))])


def _line(head: str, figures: Sequence[str]) -> str:
    first, *others = figures
    return f"{head:<24}{first:>12}" + "".join(f"{figure:>8}" for figure in others)


def _percent(part: float) -> str:
    return f"{round(part, 2) + 0.0:+.0%}"  # + 0.0: no minus before a zero


def verdict(rows: Rows, judged: bool, wrong: Sequence[str]) -> list[str]:
    """What the figures say about the reproduction."""
    if not judged:
        return ["not judged: there is no reference for such a run"]
    if wrong:
        return ["not as published:", *(f"  {complaint}" for complaint in wrong)]
    found = [f"every figure is within {TOLERANCE:.0%} of its reference"]
    if CROSSING in rows:
        found.append(f"at {CROSSING:,} subscriptions a centralised match costs as much as 4 to 5 hops")
    if rows.keys() >= set(GROWTH):
        found.append("5 times the subscriptions cost less than 2 times the steps")
    return ["as published:", *(f"  {finding}" for finding in found)]


def as_objects(rows: Rows) -> list[dict[str, object]]:
    """The outcome for programs."""
    return [
        {
            "subscriptions": size,
            "measured": _as_object(steps),
            "reference": _as_object(REFERENCE[size]) if size in REFERENCE else None,
        }
        for size, steps in rows.items()
    ]


def _as_object(steps: Steps) -> dict[str, object]:
    return {"centralised": round(steps.centralised, 2), "hops": [round(value, 2) for value in steps.hops]}


def drawn(rows: Rows) -> str:
    """The chart: a line for the centralised match and one for every distance; rings are the reference."""
    colours = (CENTRALISED_COLOUR, *HOPS_COLOURS)
    assert len(colours) == len(CELLS) == HOPS_MAX + 1
    lines = [
        Line(
            name,
            {size: cells(steps)[place] for size, steps in rows.items()},
            colour,
            {size: cells(REFERENCE[size])[place] for size in rows if size in REFERENCE},
        )
        for place, (name, colour) in enumerate(zip(CELLS, colours, strict=True))
    ]
    title, note = "Matching steps of an event on its way", "lines: measured, rings: reference"
    return line_chart(title, note, "subscriptions", "steps, mean per event", lines)
