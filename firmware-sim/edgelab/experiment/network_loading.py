"""`edgebroker experiment network-loading`: the publish rate that overloads a network, with link matching and flooding.

Source: [LM], charts "network loading" and "queue length against time". The brokers have the product's search trees and
announcements (`broker_cluster`), on virtual time (`input_queues`). The control is flooding: every broker sends every
event over all links but the one over which it arrived, and clients filter.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Final, NamedTuple

import click

from edgebroker.cli import Refused
from edgebroker.cli.parameters import examples
from edgebroker.instants import MILLISECOND, SECOND
from edgelab.experiment.broker_cluster import BrokerCluster, ClientSubscription, cluster_of
from edgelab.experiment.input_queues import COSTS, Events, InputQueues
from edgelab.experiment.link_matching import (
    BROKERS_PER_REGION,
    CLIENTS_PER_BROKER,
    PUBLISHERS,
    REGIONS,
    InterestWorkload,
    counts,
    region_of,
)
from edgelab.experiment.report import ChartLine, ExperimentFigure, StatusLine, line_chart, report, write_chart

ATTRIBUTES: Final = 15
DECLINES: Final[Mapping[float, float]] = {0.865: 0.5, 0.85: 0.8, 0.825: 1.3, 0.8: 2.1}
"""How much less often each attribute is tested than the one before -> the percentage of subscriptions that match an
event then.
"""
ONE_REGION: Final[Mapping[float, float]] = {0.88: 0.5, 0.855: 1.0}
"""As DECLINES, for a cluster of one region: all its subscribers have the publisher's preferences, so the same decline
gives a greater share there.
"""
SUBSCRIPTIONS: Final = (5_070, 9_750, 14_820)
"""13, 25 and 38 for each of 390 clients."""
REFERENCE: Final[Mapping[float, tuple[int, ...]]] = {
    0.865: (491, 403, 357),
    0.85: (410, 358, 322),
    0.825: (430, 348, 307),
    0.8: (358, 306, 268),
}
"""Overload rates by decline, for SUBSCRIPTIONS. The source has a chart without figures; these are from one seed of a
model in which every broker searches one tree of all subscriptions.
"""
REFERENCE_FLOODING: Final = 208
EVENTS: Final = 300


class LoadingCell(NamedTuple):
    """The parameters of a measurement."""

    decline: float
    subscriptions: int


class LoadingPoint(NamedTuple):
    """What the brokers do for the events of one cell."""

    selectivity: float
    """The share of subscriptions that match an event, in percent."""
    rate: float
    """The overload rate with link matching: events a second of each publisher at which the busiest broker has no time
    left.
    """
    flooding: float
    """The overload rate with flooding."""
    without_search: float
    """The overload rate if matching took no time, so that only the necessary copies count."""
    steps: float
    """Matching steps per event at the broker with the most."""


class QueueTrace(NamedTuple):
    """The input queue of the busiest broker in one run."""

    share: float
    """The publish rate, as a share of the overload rate."""
    lengths: tuple[int, ...]
    """Every INTERVAL, from the beginning."""

    @property
    def seen(self) -> tuple[int, ...]:
        """Return the lengths from LOOK on, those that the source's chart has."""
        return self.lengths[LOOK // INTERVAL - 1 :]

    @property
    def drains(self) -> bool:
        """Return whether the queue falls to a tenth of its greatest length or less."""
        return min(self.seen) <= max(self.seen) * DRAINED

    @property
    def grows(self) -> bool:
        """Return whether the queue is longer after each third of the time, and never drains."""
        third = len(self.seen) // 3
        return not self.drains and all(one < other for one, other in pairwise(self.seen[::third]))


LOOK: Final = 3 * SECOND // 2
END: Final = 3 * SECOND
INTERVAL: Final = 10 * MILLISECOND
DRAINED: Final = 0.1
SHARES: Final = (0.9, 0.96, 0.98, 1.0, 1.02, 1.04, 1.1)
"""Publish rates of the runs, as shares of the overload rate. The source has 408 to 450 events a second, around a limit
of about 420: 0.97 to 1.07.
"""
NEAR: Final = (0.98, 1.02)
TRACES: Final = 4
"""Runs at each rate with one seed."""
TRACED: Final = LoadingCell(0.85, 9_750)
"""The cell of the queue traces: its overload rate is close to the source's 420."""


@dataclass(frozen=True, slots=True)
class LoadingOutcome:
    """The outcome of one seed, or the means of several."""

    points: Mapping[LoadingCell, LoadingPoint]
    region: Mapping[LoadingCell, LoadingPoint]
    """For a cluster of one region, whose numbers of subscriptions are a third."""
    traces: Sequence[QueueTrace]


Watch = Callable[[str], None]


def measure(seed: int, sizes: Sequence[int], scale: float = 1.0, watch: Watch = lambda _: None) -> LoadingOutcome:
    """Measure all cells with one seed; *sizes* are numbers of subscriptions, ascending.

    scale: the share of the events and of the queue traces.
    """
    events, traces = max(len(PUBLISHERS), round(EVENTS * scale)), max(1, round(TRACES * scale))
    points: dict[LoadingCell, LoadingPoint] = {}
    region: dict[LoadingCell, LoadingPoint] = {}
    found: list[QueueTrace] = []
    for decline in DECLINES:
        run = _LoadingRun(seed, REGIONS, decline, sizes[-1], events)
        for size in sizes:
            watch(f"{DECLINES[decline]} %, {size:,} subscriptions")
            published = run.follow_all(size)
            points[LoadingCell(decline, size)] = point = run.point(published)
            if decline == TRACED.decline and size == traced_size(sizes):
                watch("queues near the overload rate")
                found = [*run.trace(published, point.rate, seed, traces)]
    for decline in ONE_REGION:
        run = _LoadingRun(seed, 1, decline, sizes[-1] // REGIONS, events)
        for size in sizes:
            watch(f"one region, {ONE_REGION[decline]} %, {size // REGIONS:,} subscriptions")
            region[LoadingCell(decline, size // REGIONS)] = run.point(run.follow_all(size // REGIONS))
    return LoadingOutcome(points, region, found)


def traced_size(sizes: Sequence[int]) -> int:
    """Return the number of subscriptions of the queue traces: that of TRACED, or the middle one."""
    return TRACED.subscriptions if TRACED.subscriptions in sizes else sizes[len(sizes) // 2]


class _LoadingRun:
    """A cluster with one decline, to which subscriptions are added. All sizes see the same events."""

    def __init__(self, seed: int, regions: int, decline: float, subscriptions: int, events: int) -> None:
        self._publishers = PUBLISHERS[:regions]
        self._cluster = BrokerCluster(cluster_of(regions), self._publishers)
        workload = InterestWorkload(Random(seed), regions, ATTRIBUTES, decline)
        clients = [number % self._cluster.clients for number in range(subscriptions)]
        self._subscriptions = [
            ClientSubscription(number, client, workload.predicate(region_of(client // CLIENTS_PER_BROKER)))
            for number, client in enumerate(clients)
        ]
        self._subscribed = 0
        each = events // regions
        self._events = {
            publisher: [workload.event(region_of(publisher)) for _ in range(each)] for publisher in self._publishers
        }

    def follow_all(self, subscriptions: int) -> Events:
        """Subscribe until there are *subscriptions*, and follow all events."""
        self._cluster.subscribe(self._subscriptions[self._subscribed : subscriptions])
        self._subscribed = subscriptions
        return {
            publisher: [self._cluster.follow(publisher, event) for event in events]
            for publisher, events in self._events.items()
        }

    def point(self, published: Events) -> LoadingPoint:
        """Return the overload rates for the events *published*."""
        brokers = range(len(self._cluster.brokers))
        work, searched, flooded = ([0.0 for _ in brokers] for _ in range(3))
        matches = 0
        events = sum(map(len, published.values()))
        for publisher, visits in published.items():
            for visit in (each for one in visits for each in one.all_visits()):
                work[visit.broker] += COSTS.of(visit)
                searched[visit.broker] += visit.steps
                matches += len(visit.subscriptions)
            for broker, copies in enumerate(self._cluster.flooding_copies(publisher)):
                flooded[broker] += len(visits) * (COSTS.receive + COSTS.copy * copies)
        copying = [work[broker] - COSTS.step * searched[broker] for broker in brokers]
        budget = SECOND * events / len(published)
        return LoadingPoint(
            100 * matches / events / self._subscribed,
            budget / max(work),
            budget / max(flooded),
            budget / max(copying),
            max(searched) / events,
        )

    def trace(self, published: Events, rate: float, seed: int, runs: int) -> Iterator[QueueTrace]:
        """Yield *runs* traces for each of SHARES of *rate*."""
        work = [0] * len(self._cluster.brokers)
        for visit in (each for visits in published.values() for one in visits for each in one.all_visits()):
            work[visit.broker] += COSTS.of(visit)
        busiest = max(range(len(work)), key=work.__getitem__)
        upstream = self._cluster.ways_to(busiest)
        for share in SHARES:
            for run in range(runs):
                queues = InputQueues(published, COSTS, busiest, upstream, seed * TRACES + run)
                yield QueueTrace(share, tuple(queues.run(rate * share, END, INTERVAL)))


def mean_of(runs: Sequence[LoadingOutcome]) -> LoadingOutcome:
    """Return the means of several seeds, and the traces of all."""

    def means(points: Sequence[Mapping[LoadingCell, LoadingPoint]]) -> dict[LoadingCell, LoadingPoint]:
        return {cell: LoadingPoint(*map(fmean, zip(*(one[cell] for one in points), strict=True))) for cell in points[0]}

    traces = [trace for run in runs for trace in run.traces]
    return LoadingOutcome(means([run.points for run in runs]), means([run.region for run in runs]), traces)


def separating_length(traces: Sequence[QueueTrace]) -> float:
    """Return the length that tells the runs whose queue drains from the others: the one for which the fewest runs drain
    from a greater length or do not drain from a smaller one; the middle, if several lengths do.
    """
    drained = sorted(max(trace.seen) for trace in traces if trace.drains)
    others = sorted(max(trace.seen) for trace in traces if not trace.drains)
    errors = {
        length: len(drained) - bisect_right(drained, length) + bisect_right(others, length)
        for length in range(max([*drained, *others]) + 1)
    }
    best = [length for length, wrong in errors.items() if wrong == min(errors.values())]
    return (best[0] + best[-1]) / 2


def drained_share(traces: Sequence[QueueTrace], low: float, high: float) -> float:
    """Return the share of runs whose queue drains, of those at *low* to *high* of the overload rate."""
    return fmean(trace.drains for trace in traces if low <= trace.share <= high)


def half_drained_at(traces: Sequence[QueueTrace]) -> float:
    """Return the publish rate, as a share of the overload rate, at which half of the queues drain.

    It is found by interpolation; infinity if more than half drain at all rates.
    """
    shares = sorted({trace.share for trace in traces})
    drained = [drained_share(traces, share, share) for share in shares]
    for (low, before), (high, after) in pairwise(zip(shares, drained, strict=True)):
        if before >= 0.5 > after:
            return low + (high - low) * (before - 0.5) / (before - after)
    return float("inf")


RATIO: Final = "{:.2f}"
PERCENT: Final = "{:.0%}"
COUNT: Final = "{:,.0f}"
INVERSION_MAX: Final = 0.1
FLOODING_SPREAD_MAX: Final = 0.05
SELECTIVE_MIN: Final = 1.5
"""The least that link matching wins at 0.5 %; at 13 subscriptions for each client it wins FEW_MIN."""
FEW_MIN: Final = 1.9
PRODUCT_MIN: Final = 2.5
"""What a product should win at 1 % or less, within one cluster."""
STEPS_MAX: Final = 24


def ratio(point: LoadingPoint) -> float:
    """Return how many times the overload rate of flooding link matching has."""
    return point.rate / point.flooding


def reference_of(cell: LoadingCell) -> int | None:
    """Return the reference of an overload rate, None if there is none."""
    if cell.subscriptions not in SUBSCRIPTIONS:
        return None
    return REFERENCE[cell.decline][SUBSCRIPTIONS.index(cell.subscriptions)]


def findings(outcome: LoadingOutcome) -> list[ExperimentFigure]:
    """Return the published figures beside ours."""
    size = traced_size(sorted({cell.subscriptions for cell in outcome.points}))
    return [
        *_rates(outcome.points),
        *_shapes(outcome.points),
        *_queues(outcome.traces),
        _separation(outcome.traces, size in SUBSCRIPTIONS),
    ]


def _rates(points: Mapping[LoadingCell, LoadingPoint]) -> Iterator[ExperimentFigure]:
    flooding = [point.flooding for point in points.values()]
    yield ExperimentFigure("overload rate, flooding", str(REFERENCE_FLOODING), fmean(flooding), COUNT)
    spread = (max(flooding) - min(flooding)) / fmean(flooding)
    yield ExperimentFigure("  differs between cells by", "0 %", spread, PERCENT, high=FLOODING_SPREAD_MAX)
    for cell, point in points.items():
        reference = reference_of(cell)
        name = f"  link matching, {DECLINES[cell.decline]} %, {cell.subscriptions:,}"
        yield ExperimentFigure(name, "" if reference is None else str(reference), point.rate, COUNT)
    for cell, point in points.items():
        if cell.decline == next(iter(DECLINES)):
            low = FEW_MIN if cell.subscriptions == SUBSCRIPTIONS[0] else SELECTIVE_MIN
            reference = reference_of(cell)
            said = "" if reference is None else RATIO.format(reference / REFERENCE_FLOODING)
            name = f"link matching / flooding, 0.5 %, {cell.subscriptions:,}"
            yield ExperimentFigure(name, said, ratio(point), RATIO, low)


def _shapes(points: Mapping[LoadingCell, LoadingPoint]) -> Iterator[ExperimentFigure]:
    sizes = sorted({cell.subscriptions for cell in points})
    curves = [[points[LoadingCell(decline, size)].rate for decline in DECLINES] for size in sizes]
    rises = [[after / before - 1 for before, after in pairwise(curve) if after > before] for curve in curves]
    most, greatest = max(map(len, rises)), max((rise for curve in rises for rise in curve), default=0.0)
    yield ExperimentFigure("rises with more matches, in one curve", "0 or 1", most, COUNT, high=1)
    yield ExperimentFigure("  the greatest", "<= 10 %", greatest, PERCENT, high=INVERSION_MAX)
    more = sum(after >= before for few, many in pairwise(curves) for before, after in zip(few, many, strict=True))
    yield ExperimentFigure("rises with more subscriptions", "0", more, COUNT, high=0)


def _queues(traces: Sequence[QueueTrace]) -> Iterator[ExperimentFigure]:
    low, high = SHARES[0], SHARES[-1]
    below, near, above = (drained_share(traces, *between) for between in ((low, low), NEAR, (high, high)))
    grown = fmean(trace.grows for trace in traces if trace.share == high)
    yield ExperimentFigure(f"queues that drain, at {low:.0%} of the rate", "all", below, PERCENT, low=0.9)
    yield ExperimentFigure(f"  at {NEAR[0]:.0%} to {NEAR[1]:.0%}", "some", near, PERCENT, 0.1, 0.9)
    yield ExperimentFigure(f"  at {high:.0%}", "none", above, PERCENT, high=0.1)
    yield ExperimentFigure("  that only grow, there", "all", grown, PERCENT, low=0.8)
    yield ExperimentFigure("half of them drain, at a share of the rate", "", half_drained_at(traces), RATIO, 0.95, 1.05)


def _separation(traces: Sequence[QueueTrace], is_judged: bool) -> ExperimentFigure:
    """Return the length that tells the regimes apart. It grows with the publish rate, so it is judged only for the
    source's numbers of subscriptions.
    """
    length, name = separating_length(traces), "queue length that tells these regimes apart"
    if not is_judged:
        return ExperimentFigure(name, "", length, COUNT)
    return ExperimentFigure(name, "80 +/- 12", length, COUNT, 60, 120)


def beyond(outcome: LoadingOutcome) -> list[ExperimentFigure]:
    """Return what a product should reach, beside ours."""
    found: list[ExperimentFigure] = []
    networks = ((outcome.points, DECLINES, REGIONS), (outcome.region, ONE_REGION, 1))
    for points, selectivity, regions in networks:
        brokers = regions * BROKERS_PER_REGION
        for cell, point in points.items():
            if selectivity[cell.decline] <= 1:
                each = cell.subscriptions / (brokers * CLIENTS_PER_BROKER)
                name = f"{brokers} brokers, {selectivity[cell.decline]} %, {each:g} a client"
                found.append(ExperimentFigure(f"LM / flooding, {name}", "", ratio(point), RATIO, PRODUCT_MIN))
                most = point.without_search / point.flooding
                found.append(ExperimentFigure("  if matching took no time", "", most, RATIO))
    steps = max(point.steps for points, *_ in networks for point in points.values())
    found.append(ExperimentFigure("steps per event, at any broker", "", steps, "{:.1f}", high=STEPS_MAX))
    return found


FLOODING_COLOUR: Final = "#c2410c"
SIZE_COLOURS: Final = ("#9fb8dc", "#416db3", "#14397a", "#0f766e", "#6d28d9", "#71717a")
"""Colours of the lines, by number of subscriptions; they repeat if there are more."""
DRAWN_SHARES: Final = {0.96: "#9fb8dc", 1.0: "#416db3", 1.04: "#14397a", 1.1: "#c2410c"}
DRAWN_EVERY: Final = 50 * MILLISECOND


@click.command(
    name="network-loading",
    short_help="The rate that overloads a network: link matching, flooding.",
    epilog=examples("edgebroker experiment network-loading --seeds 2 --svg rates.svg --queues-svg queues.svg"),
)
@click.option("--seeds", type=click.IntRange(1, 100), default=5, show_default=True, help="Runs: seeds 1 to N.")
@click.option(
    "--subscriptions",
    callback=counts,
    default=",".join(map(str, SUBSCRIPTIONS)),
    show_default=True,
    help="How many subscriptions there are, with commas between several sizes.",
)
@click.option(
    "--scale",
    type=click.FloatRange(0.01, 10),
    default=1.0,
    show_default=True,
    help=f"How many of the {EVENTS} events and {TRACES * len(SHARES)} queues of a run.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw the overload rates into this file.")
@click.option(
    "--queues-svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw queues near overload into this file."
)
def command(
    seeds: int, subscriptions: tuple[int, ...], scale: float, as_json: bool, svg: Path | None, queues_svg: Path | None
) -> None:
    """Find the publish rate that overloads a network, with link matching and with flooding.

    39 brokers with the product's search trees, on virtual time, 390 clients and three publishers. A network is
    overloaded when one of its brokers is. Ends with exit code 1 if the outcome is not the published one.
    """
    if subscriptions[0] < REGIONS:
        raise click.BadParameter(f"each region needs a subscription: at least {REGIONS}", param_hint="--subscriptions")
    runs = []
    with StatusLine() as progress:
        for seed in range(1, seeds + 1):

            def watch(step: str, seed: int = seed) -> None:
                progress.show(f"seed {seed} of {seeds}: {step}")

            runs.append(measure(seed, subscriptions, scale, watch))
    outcome = mean_of(runs)
    if not all(point.selectivity for point in outcome.points.values()):
        raise Refused("no event matches a subscription in some cell: too few of them for a mean")
    write_chart(svg, drawn(outcome.points))
    write_chart(queues_svg, drawn_queues(runs[0].traces))
    which = "seed 1" if seeds == 1 else f"seeds 1 to {seeds}"
    head = f"overload rates, events a second of each of {len(PUBLISHERS)} publishers, {which}"
    about = {
        "seeds": seeds,
        "scale": scale,
        "cells": as_objects(outcome.points),
        "cells_of_one_region": as_objects(outcome.region),
    }
    report(head, about, findings(outcome), beyond(outcome), as_json)


def as_objects(points: Mapping[LoadingCell, LoadingPoint]) -> list[dict[str, float]]:
    """Return cells with their points as JSON objects."""
    return [{**cell._asdict(), **point._asdict()} for cell, point in points.items()]


def drawn(points: Mapping[LoadingCell, LoadingPoint]) -> str:
    """Return the chart of the overload rates over the share of subscriptions that match; rings are the reference."""
    sizes = sorted({cell.subscriptions for cell in points})
    every = [(points[LoadingCell(decline, sizes[0])].selectivity, decline) for decline in DECLINES]
    flooding = {share: points[LoadingCell(decline, sizes[0])].flooding for share, decline in every}
    lines = [ChartLine("flooding", flooding, FLOODING_COLOUR)]
    for at, size in enumerate(sizes):
        curve = [(points[cell := LoadingCell(decline, size)], reference_of(cell)) for decline in DECLINES]
        lines.append(
            ChartLine(
                f"{size:,}",
                {point.selectivity: point.rate for point, _ in curve},
                SIZE_COLOURS[at % len(SIZE_COLOURS)],
                {point.selectivity: reference for point, reference in curve if reference is not None},
            )
        )
    title, note = "Publish rate that overloads the network, by subscriptions", "rings: reference"
    return line_chart(title, note, "% of the subscriptions match", "events/s of each publisher", lines)


def drawn_queues(traces: Sequence[QueueTrace]) -> str:
    """Return the chart of queues near the overload rate: the first run at some rates."""
    firsts: dict[float, QueueTrace] = {}
    for trace in traces:
        firsts.setdefault(trace.share, trace)
    instants = range(DRAWN_EVERY, END + 1, DRAWN_EVERY)
    lines = [
        ChartLine(
            f"{share:.0%}", {now / SECOND: firsts[share].lengths[now // INTERVAL - 1] for now in instants}, colour
        )
        for share, colour in DRAWN_SHARES.items()
    ]
    title, note = "Input queue of the busiest broker", "lines: share of the overload rate"
    return line_chart(title, note, "s", "events waiting", lines)
