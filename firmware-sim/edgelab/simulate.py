"""`edgebroker simulate`: runs simulated federations under faults (storms), and reports the promises that they broke.

Several storms run at once in processes of their own; outcomes are in the order of seeds.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context

import click

from edgebroker.cli.parameters import examples
from edgebroker.instants import SECOND
from edgebroker.limits import JOURNAL_PAGE_MESSAGES, JOURNAL_PAGE_MESSAGES_MAX
from edgelab.experiment.report import StatusLine
from edgelab.simworld.storms.scenario import StormScenario
from edgelab.simworld.storms.storm import StormOutcome, live, shrink, storm


def outcomes(seeds: range, jobs: int, page_messages: int) -> Iterator[StormOutcome]:
    """Yield the outcome of each seed. If the iteration is stopped, the processes end."""
    run = partial(storm, page_messages=page_messages)
    if jobs == 1:
        yield from map(run, seeds)
        return
    with get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(run, seeds)


LINES_MAX = 10
"""The most broken promises shown of one storm; there are usually several."""


@dataclass(slots=True)
class StormTotals:
    """Totals over all storms so far, from the seed *seed* on."""

    seed: int
    scenarios: int = 0
    said: int = 0
    heard: int = 0
    elapsed_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    traces: dict[int, str] = field(default_factory=dict)
    broken: list[StormOutcome] = field(default_factory=list)

    def add(self, outcome: StormOutcome) -> None:
        """Add one outcome."""
        self.scenarios += 1
        self.said += outcome.said
        self.heard += outcome.heard
        self.faults.update(outcome.faults)
        self.traces[outcome.scenario.seed] = outcome.trace
        if outcome.broken:
            self.broken.append(outcome)


def as_text(tally: StormTotals) -> str:
    """Return a table, legible without colour and when pasted into a document."""
    promises = Counter(promise for outcome in tally.broken for promise in outcome.promises)
    rows = [("storms", f"{tally.scenarios:,}"), ("said", f"{tally.said:,}"), ("heard", f"{tally.heard:,}")]
    rows += [(f"  {kind}", f"{count:,}") for kind, count in sorted(tally.faults.items())]
    rows += [(f"broken {promise}", f"{count:,}") for promise, count in sorted(promises.items())]
    rows += [("seconds", f"{tally.elapsed_s:,.1f}")]
    lines = [f"storms from seed {tally.seed} on", "", *(f"{name:<20}{value:>12}" for name, value in rows), ""]
    for outcome in tally.broken:
        lines += _report(outcome)
    lines.append("every promise was kept" if not tally.broken else f"broken in {len(tally.broken):,} storms")
    return "\n".join(lines)


def as_object(tally: StormTotals, smallest: StormOutcome | None) -> str:
    """Return one JSON object; `smallest`: the shrunk version of the first storm that broke a promise."""
    result: dict[str, object] = {
        "seed": tally.seed,
        "scenarios": tally.scenarios,
        "said": tally.said,
        "heard": tally.heard,
        "elapsed_s": round(tally.elapsed_s, 3),
        "faults": dict(sorted(tally.faults.items())),
        "hashes": {str(seed): trace for seed, trace in tally.traces.items()},
        "broken": [_broken(outcome) for outcome in tally.broken],
    }
    if smallest is not None:
        result["smallest"] = _broken(smallest)
    return json.dumps(result, indent=2)


def timetable(outcome: StormOutcome) -> str:
    """Return a storm line by line, and the promises that it broke."""
    scenario = outcome.scenario
    lines = [f"the smallest storm that still breaks it, of seed {scenario.seed}:", f"  {scenario.shape}"]
    lines += [f"  {device}" for device in scenario.devices]
    lines += [f"  {fault}" for fault in scenario.faults]
    lines += [f"  {scenario.length / SECOND:.1f} s: the weather is good again"]
    return "\n".join([*lines, *_broken_promises(outcome)])


def repeat(scenario: StormScenario) -> str:
    """Return the command that repeats the storm."""
    pages = scenario.page_messages
    option = "" if pages == JOURNAL_PAGE_MESSAGES else f" --page-messages {pages}"
    return f"edgebroker simulate --scenarios 1 --seed {scenario.seed}{option}"


def _report(outcome: StormOutcome) -> list[str]:
    again = repeat(outcome.scenario)
    head = f"seed {outcome.scenario.seed} broke {', '.join(outcome.promises)}"
    commands = [f"  again:   {again}", f"  smaller: {again} --shrink", ""]
    return [head, *_broken_promises(outcome), *commands]


def _broken_promises(outcome: StormOutcome) -> list[str]:
    lines = [f"  {promise}: {text}" for promise, text in outcome.broken[:LINES_MAX]]
    more = len(outcome.broken) - LINES_MAX
    return [*lines, *([f"  and {more:,} more"] if more > 0 else [])]


def _broken(outcome: StormOutcome) -> dict[str, object]:
    again = repeat(outcome.scenario)
    return {
        "seed": outcome.scenario.seed,
        "promises": list(outcome.promises),
        "what": [f"{promise}: {text}" for promise, text in outcome.broken],
        "scenario": str(outcome.scenario),
        "repeat": again,
        "shrink": f"{again} --shrink",
    }


BROKEN = 1  # exit code: a promise was broken


@click.command(name="simulate", epilog=examples("edgebroker simulate --scenarios 100 --seed 1"))
@click.option("--scenarios", type=click.IntRange(1), default=100, show_default=True, help="How many storms.")
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="That of the first; the next follow."
)
@click.option("--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="How many processes.")
@click.option(
    "--page-messages",
    type=click.IntRange(1, JOURNAL_PAGE_MESSAGES_MAX),
    default=JOURNAL_PAGE_MESSAGES,
    help="Of queues, moved to the disk together; with 2 nearly every queue is on the disk.",
)
@click.option("--until-broken", is_flag=True, help="Stop at the first storm that breaks a promise.")
@click.option("--shrink", "shrinks", is_flag=True, help="Make the first such storm as small as can be, and print it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    scenarios: int, seed: int, jobs: int, page_messages: int, until_broken: bool, shrinks: bool, as_json: bool
) -> None:
    """Let storms blow over simulated federations, and check every promise of docs/promises.md.

    Each scenario is a federation, its devices and a timetable of faults, all drawn from its seed: the same seed is the
    same run, bit for bit. Ends with exit code 1 if anything was broken; what repeats it and what makes it smaller is
    printed.
    """
    tally = StormTotals(seed)
    began = time.monotonic()
    with StatusLine() as progress:
        for outcome in outcomes(range(seed, seed + scenarios), jobs, page_messages):
            tally.add(outcome)
            broken = f", {len(tally.broken)} broken" if tally.broken else ""
            progress.show(f"{tally.scenarios:,} of {scenarios:,} storms{broken}")
            if outcome.broken and (until_broken or shrinks):
                break
        tally.elapsed_s = time.monotonic() - began
        smallest = None
        if shrinks and tally.broken:
            first = live(tally.broken[0].scenario)
            smallest = shrink(first, lambda count: progress.show(f"making it smaller, attempt {count:,}"))
    click.echo(as_object(tally, smallest) if as_json else as_text(tally))
    if smallest is not None and not as_json:
        click.echo("\n" + timetable(smallest))
    if tally.broken:
        raise SystemExit(BROKEN)


__all__ = ["command"]
