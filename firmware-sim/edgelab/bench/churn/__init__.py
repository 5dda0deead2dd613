"""`edgebroker bench churn`: how long an event waits while subscriptions come and go."""

from __future__ import annotations

import json

import click

from edgebroker.cli.parameters import examples
from edgebroker.limits import LINKS_MAX
from edgebroker.matching import reference
from edgebroker.matching.pst import Pst
from edgelab.bench.churn.report import as_picture, figures
from edgelab.bench.churn.trial import ChurnPlan, ChurnTrial
from edgelab.bench.match.report import BenchProgress

_USUAL = ChurnPlan()


@click.command(name="churn", epilog=examples("edgebroker bench churn --subscriptions 10000 --seconds 5"))
@click.option(
    "--subscriptions",
    type=click.IntRange(1, 10_000_000),
    default=_USUAL.subscriptions,
    show_default=True,
    help="Installed before the churn begins.",
)
@click.option(
    "--changes",
    type=click.IntRange(1, 1_000_000),
    default=_USUAL.changes_per_s,
    show_default=True,
    help="Per second; half subscribe, half unsubscribe.",
)
@click.option(
    "--events", type=click.IntRange(1, 1_000_000), default=_USUAL.events_per_s, show_default=True, help="Per second."
)
@click.option("--seconds", type=click.FloatRange(0.01, 3_600), default=_USUAL.seconds, show_default=True)
@click.option(
    "--leaving",
    type=click.IntRange(1, 10_000_000),
    default=_USUAL.leaving,
    show_default=True,
    help="Subscriptions of the client that leaves at the end.",
)
@click.option("--links", type=click.IntRange(1, LINKS_MAX), default=_USUAL.links, show_default=True)
@click.option(
    "--selectivity",
    type=click.FloatRange(0, 1, min_open=True),
    default=_USUAL.selectivity,
    show_default=True,
    help="The share of the subscriptions that an event matches.",
)
@click.option("--seed", type=int, default=_USUAL.seed, show_default=True)
@click.option("--pure", is_flag=True, help="Use the engine's pure Python form.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    subscriptions: int,
    changes: int,
    events: int,
    seconds: float,
    leaving: int,
    links: int,
    selectivity: float,
    seed: int,
    pure: bool,
    as_json: bool,
) -> None:
    """Measure how long events wait while subscriptions change.

    Installs filters that ask for ranges of sensor readings, then lets changes and events arrive at random times and
    serves them in order. Time is simulated where nothing happens, and measured where something does. At the end one
    client leaves with all its subscriptions at once.
    """
    plan = ChurnPlan(subscriptions, changes, events, seconds, leaving, links, selectivity, seed)
    trial, progress = ChurnTrial(plan, Pst(reference if pure else None)), BenchProgress()
    try:
        trial.run(progress.show)
    finally:
        progress.show("")
    found = figures(trial)
    click.echo(json.dumps(found) if as_json else as_picture(found, trial))


__all__ = ["command"]
