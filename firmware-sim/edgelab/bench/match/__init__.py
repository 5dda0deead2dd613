"""`edgebroker bench match`: the matching engine alone, on subscriptions and events from files.

A stable door: the files, the options and the names in the JSON object stay as they are, so that results of different
versions, machines and engines can be compared. New names may be added.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from edgebroker.cli import Refused
from edgebroker.cli.call_durations import garbage_collection_off
from edgebroker.cli.parameters import ExistingPath, examples
from edgebroker.cli.subscription_file import JsonLinesFile, LineInvalid, install
from edgebroker.limits import LINKS_MAX
from edgebroker.matching import reference
from edgebroker.matching.pst import Pst
from edgelab.bench.match.report import BenchProgress, Figures, as_table, figures
from edgelab.bench.match.rounds import ask, play

DISAGREEMENT = 1  # exit code: `decide` and `match` contradict each other

_FILE = ExistingPath(dir_okay=False)


@click.command(name="match", epilog=examples("edgebroker bench match --subscriptions M.jsonl --events E.jsonl"))
@click.option(
    "--subscriptions",
    required=True,
    type=_FILE,
    metavar="S.jsonl",
    help='One {"id": 7, "topic": "t/#", "where": "a = 2", "link": 3} a line; "where" and "link" may be left out.',
)
@click.option(
    "--events", required=True, type=_FILE, metavar="E.jsonl", help='One {"topic": "t/x", "payload": {...}} a line.'
)
@click.option(
    "--links",
    type=click.IntRange(1, LINKS_MAX),
    metavar="K",
    help='How many links there are. Subscriptions without "link" get 0, 1, ... K-1, 0, ... in the order of the file. '
    'Without this option there are as many as the greatest "link" says, and subscriptions without one have link 0.',
)
@click.option("--rounds", type=click.IntRange(1, 1_000), default=5, show_default=True, help="How often all is asked.")
@click.option("--pure", is_flag=True, help="Use the engine's pure Python form.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(subscriptions: Path, events: Path, links: int | None, rounds: int, pure: bool, as_json: bool) -> None:
    """Measure the matching engine alone.

    Inserts the subscriptions, removes a tenth and inserts it again, then asks for every event which subscriptions want
    it and which links. Each call is timed by itself, the reading of the clock included; reported is the median over
    all events and rounds, in microseconds. The digest is a SHA-256 over one line `index:id,id,...` per event, events
    counted from 0 and ids ascending: two engines with the same digest found the same.
    """
    try:
        found = measure(Pst(reference if pure else None), subscriptions, events, links, rounds)
    except LineInvalid as error:
        raise Refused(str(error)) from None
    click.echo(json.dumps(found) if as_json else as_table(found))
    if not found["decide_agrees"]:
        click.echo("decide and match contradict each other: this is a bug, please report it", err=True)
        raise SystemExit(DISAGREEMENT)


def measure(tree: Pst, subscriptions: Path, events: Path, links: int | None, rounds: int) -> Figures:
    """The whole benchmark on the empty *tree*. Raises LineInvalid."""
    progress = BenchProgress()
    size = max(1, subscriptions.stat().st_size)
    reading = JsonLinesFile(subscriptions, progress.remark)
    try:
        with garbage_collection_off():
            installed = install(
                tree,
                reading.subscriptions(links),
                links,
                lambda count: progress.show(f"{count:,} subscriptions, {reading.bytes / size:.0%}"),
            )
            if not installed.ids:
                raise LineInvalid(f"{subscriptions}: there is no subscription in this file")
            progress.show("asking once")
            answers = ask(installed, JsonLinesFile(events, progress.remark).events())
            if not answers.events:
                raise LineInvalid(f"{events}: there is no event in this file")
            timings = play(installed.tree, answers.events, installed.mask, rounds, progress.show)
            return figures(installed, answers, timings, rounds)
    finally:
        progress.show("")


__all__ = ["command"]
