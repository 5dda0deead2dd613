"""`edgebroker experiment scot`: what routing state costs with clusters and without."""

from __future__ import annotations

from pathlib import Path

import click

from edgebroker.simworld.experiments.subgrouping import Outcome, findings, measure

from .linechart import Line, line_chart, write_chart
from .progress import Progress
from .report import report

CLUSTERED_COLOUR = "#28549a"
CONTROL_COLOUR = "#c2410c"


@click.command(name="scot", short_help="What routing state costs, with clusters and without.")
@click.option("--seed", type=int, default=1, show_default=True, help="Chooses brokers and symbols.")
@click.option(
    "--scale",
    type=click.FloatRange(0.01, 10),
    default=1.0,
    show_default=True,
    help="How many of the published 500 advertisements and 5,000 subscriptions.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw a chart into this file as well.")
def command(seed: int, scale: float, as_json: bool, svg: Path | None) -> None:
    """Count what an advertisement and a subscription cost, with clusters and without.

    70 brokers of the product, on virtual time, beside the same graph without clusters, where advertisements flood and
    subscriptions follow their trees. Ends with exit code 1 if the outcome is not the published one.
    """
    with Progress() as progress:
        outcome = measure(seed, scale, progress.show)
    write_chart(svg, drawn(outcome))
    head = f"what routing state costs, 70 brokers in 5 clusters, seed {seed}"
    report(head, {"seed": seed, "scale": scale}, findings(outcome), [], as_json)


def drawn(outcome: Outcome) -> str:
    """The chart: brokers' delays over the number of subscriptions."""
    rows = outcome.subscriptions
    lines = [
        Line("clusters", {row.count: row.clustered.delay_ms for row in rows}, CLUSTERED_COLOUR),
        Line("control", {row.count: row.control.delay_ms for row in rows}, CONTROL_COLOUR),
    ]
    return line_chart("Until brokers know a subscription", "", "subscriptions", "ms, mean", lines)
