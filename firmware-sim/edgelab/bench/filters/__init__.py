"""`edgebroker bench filters`: what content filters cost in a gateway, against topics that select the same messages."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import click

from edgebroker.cli import Refused
from edgebroker.cli.parameters import examples
from edgelab.bench import rounds
from edgelab.bench.filters import report
from edgelab.bench.filters.load import BY_CONTENT, BY_TOPIC, DEVICES, Readings
from edgelab.bench.job import LoadJob, LoadSample
from edgelab.bench.mqtt import RUN_FAILED, check_that_it_starts, pinned, stopped_by_sigterm
from edgelab.bench.report import machine
from edgelab.bench.subjects import edgebroker, pure_edgebroker, with_settings

PUBLISHERS = 10
ONE_ADDRESS = "[quota]\nfilter_clients_max = 100_000\n"
"""All clients come from here; nobody says who he is, so they would have the bounds of an address together."""


@click.command(
    name="filters",
    short_help="Measure subscribing by content, next to by topic.",
    epilog=examples("edgebroker bench filters --rate 1000"),
)
@click.option("--subscriptions", type=click.IntRange(1, 100_000), default=10_000, show_default=True)
@click.option("--rate", type=click.IntRange(1, 100_000), default=1_000, show_default=True, help="Messages per second.")
@click.option("--seconds", type=click.FloatRange(0.1, 600), default=10.0, show_default=True, help="Length of a run.")
@click.option("--rounds", "round_count", type=click.IntRange(1, 99), default=3, show_default=True)
@click.option("--pure", is_flag=True, help="Measure without compiled modules as well.")
@click.option("--quick", is_flag=True, help="One round, however disturbed: shows that it works.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    subscriptions: int, rate: int, seconds: float, round_count: int, pure: bool, quick: bool, as_json: bool
) -> None:
    """Measure a gateway whose clients subscribe by content, next to one whose clients subscribe by topic.

    Both get the same messages, JSON objects of eight fields from 10 publishers, and deliver them to the same clients.
    By content, every client has 100 filters over ranges of the fields. By topic, it has as many subscriptions without
    filter, to the topics whose messages its filters would accept. A run in which a client gets a message it must not
    get, or one too few, is failed.
    """
    if sys.platform != "linux":
        raise Refused("this benchmark needs Linux: it pins processes to cores and reads /proc")
    job = LoadJob("readings", subscriptions=subscriptions, publishers=PUBLISHERS, rate=rate, seconds=seconds)
    with stopped_by_sigterm(), tempfile.TemporaryDirectory(prefix="edgebroker-pure-") as folder, pinned() as cores:
        builds = {rounds.OURS: with_settings(edgebroker(), ONE_ADDRESS)}
        if pure:
            builds[rounds.PURE] = with_settings(pure_edgebroker(Path(folder)), ONE_ADDRESS)
        about = machine(cores)
        for build in builds.values():
            check_that_it_starts(build, cores)
        plan = rounds.RoundPlan(builds, cores, 1 if quick else round_count, seconds, quick)
        rows = [row for build in builds for row in _measured(plan, build, job)]
    load = {"subscriptions": subscriptions, "rate": rate, "seconds": seconds, **_about(subscriptions)}
    click.echo((report.as_json if as_json else report.as_table)(about, builds, load, rows))
    if any(row.failed for row in rows):
        raise SystemExit(RUN_FAILED)


def _measured(plan: rounds.RoundPlan, build: str, job: LoadJob) -> list[report.FilterRow]:
    """Alternate between the two ways to subscribe; a failure ends it."""
    samples: dict[str, list[LoadSample]] = {BY_CONTENT: [], BY_TOPIC: []}
    for number in range(1, plan.rounds + 1):
        for shape, taken in samples.items():
            sample = rounds.undisturbed(plan.sides[build], replace(job, shape=shape), plan)
            taken.append(sample)
            figures = [f"{key} {sample.values[key]:,.1f}" for _, key in report.MEASURES if key in sample.values]
            click.echo(f"{build} {number}/{plan.rounds} {shape}: {sample.failure or '  '.join(figures)}", err=True)
            if sample.failure is not None:
                return report.rows_of(build, *samples.values())
    return report.rows_of(build, *samples.values())


def _about(subscriptions: int) -> dict[str, float]:
    """The load in figures, per message."""
    readings = Readings(subscriptions)
    return {
        "clients": readings.clients,
        "matches_per_message": readings.matches / DEVICES,
        "deliveries_per_message": sum(map(len, readings.audiences)) / DEVICES,
    }


__all__ = ["command"]
