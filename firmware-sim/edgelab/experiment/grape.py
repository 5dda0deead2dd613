"""`edgebroker experiment grape`: lets publishers move to where their readers are, with GRAPE, with POP, and not at all.

Source: [GRAPE], experiments on PlanetLab and on a cluster of machines.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from statistics import correlation, fmean
from typing import Final

import click

from edgebroker.cli.parameters import examples
from edgebroker.instants import MINUTE
from edgebroker.relocation.placement import PlacementGoal, PlacementPriority
from edgebroker.relocation.pop import PopOptions
from edgebroker.relocation.publisher_sessions import PUBLISHED_SESSIONS, SessionOptions
from edgelab.experiment.placement_world import PlacementOutcome, PlacementScheme, PlacementWorld
from edgelab.experiment.report import ChartLine, ExperimentFigure, StatusLine, line_chart, report, write_chart
from edgelab.experiment.stock_quotes import PlacementNetwork, cluster, planetlab, stock_symbols

SPOTS: Final = (1, 2, 4, 8, 16, 32, 63)
"""X: the number of brokers at which a publisher's readers are."""
USUAL: Final = 16
"""X of the runs in which something else varies."""
WEIGHTS: Final = (100, 75, 50, 25, 1)
THRESHOLDS: Final = (10, 50, 100, 200)
"""G_threshold: events of a trace session. The usual one is 100."""
STUDIED_ON: Final = "cluster"
"""The network on which weights and thresholds were studied."""
PUBLISHED_MINUTES: Final = 18
"""After so many minutes the published figures are read."""
READ_FROM: Final = 2 / 3
"""The part of a run in which figures are read is its last third."""


def grape(priority: str, weight: int) -> PlacementScheme:
    """Return GRAPE as published: sessions follow each other, no move must gain anything, links take no time."""
    return PlacementScheme(PlacementGoal(PlacementPriority(priority), weight, gain_min=0.0))


def product(priority: str) -> PlacementScheme:
    """Return GRAPE as the product has it."""
    goal = PlacementGoal(PlacementPriority(priority), 100)
    return PlacementScheme(goal, sessions=SessionOptions(), with_links=True, pause=10 * MINUTE)


SCHEMES: Final[Mapping[str, PlacementScheme]] = {
    "none": PlacementScheme(),
    "pop": PlacementScheme(pop=PopOptions()),
    **{f"{priority}{weight}": grape(priority, weight) for priority in ("load", "delay") for weight in WEIGHTS},
    **{
        f"delay100 of {events}": replace(grape("delay", 100), sessions=replace(PUBLISHED_SESSIONS, events=events))
        for events in THRESHOLDS
        if events != PUBLISHED_SESSIONS.events
    },
    **{f"product {priority}": product(priority) for priority in ("load", "delay")},
}
MAIN: Final = ("none", "load100", "delay100", "pop")


@dataclass(frozen=True, slots=True, order=True)
class PlacementCase:
    """The parameters of a run."""

    seed: int
    scheme: str
    spots: int = USUAL
    network: str = "planetlab"
    is_clustered: bool = True
    is_long: bool = False
    """Whether it takes three times as long, for what must pay in the long run."""


NETWORKS: Final[Mapping[str, Callable[[int], PlacementNetwork]]] = {
    "planetlab": lambda seed: planetlab(63, 1, seed),
    "cluster": lambda seed: cluster(127),
    "scot": lambda seed: planetlab(21, 3, seed),
}
"""The published networks of 63 and 127 brokers, and a federation of three clusters with 21 brokers each."""


def cases(seeds: int) -> list[PlacementCase]:
    """Return all runs."""
    found = []
    for seed in range(1, seeds + 1):
        found += [PlacementCase(seed, scheme, spots) for spots in SPOTS for scheme in MAIN]
        found += [PlacementCase(seed, scheme, is_clustered=False) for scheme in MAIN]
        studied = [scheme for scheme in SCHEMES if scheme not in MAIN and "product" not in scheme]
        found += [PlacementCase(seed, scheme, network=STUDIED_ON) for scheme in studied]
        for spots in (1, USUAL):
            found += [PlacementCase(seed, scheme, spots, "cluster") for scheme in MAIN]
            for scheme in ("product load", "product delay"):
                found.append(PlacementCase(seed, scheme, spots, is_long=True))
            for scheme in ("none", "product load", "product delay"):
                found.append(PlacementCase(seed, scheme, spots, "scot"))
    return found


def run(case: PlacementCase, publishers: int, minutes: float) -> PlacementOutcome:
    """Run one case."""
    network = NETWORKS[case.network](case.seed)
    brokers = [gateway.name for gateway in network.topology.gateways]
    symbols = stock_symbols(brokers, publishers, case.spots, case.is_clustered, case.seed)
    length = round(minutes * MINUTE * (3 if case.is_long else 1))
    world = PlacementWorld(network, symbols, SCHEMES[case.scheme], case.seed)
    return world.outcome(length, round(length * READ_FROM))


PERCENT: Final = "{:+.1%}"
SHARE: Final = "{:.1%}"
COUNT: Final = "{:,.0f}"
PLAIN: Final = "{:,.3g}"
RATE, LOAD, DELAY, HOPS, CONTROL = map(attrgetter, ("message_rate", "input_load", "delay_ms", "hops", "control"))

Quantity = Callable[[PlacementOutcome], float]


class PlacementResults:
    """The outcomes of all runs."""

    def __init__(self, outcomes: Mapping[PlacementCase, PlacementOutcome]) -> None:
        self.outcomes = outcomes
        self.seeds = sorted({case.seed for case in outcomes})

    def each(self, scheme: str, spots: int = USUAL, network: str = "planetlab", **more: bool) -> list[PlacementOutcome]:
        """Return the outcomes of a scheme, by seed."""
        return [self.outcomes[PlacementCase(seed, scheme, spots, network, **more)] for seed in self.seeds]

    def mean(
        self, quantity: Quantity, scheme: str, spots: int = USUAL, network: str = "planetlab", **more: bool
    ) -> float:
        """Return the mean of a quantity over the seeds."""
        return fmean(map(quantity, self.each(scheme, spots, network, **more)))

    def change(self, quantity: Quantity, scheme: str, spots: int, network: str = "planetlab", **more: bool) -> float:
        """Return the relative change against no placement, -0.2 is a fifth less."""
        return self.mean(quantity, scheme, spots, network, **more) / self.mean(quantity, "none", spots, network) - 1

    def best(self, quantity: Quantity, scheme: str) -> float:
        """Return the change where it is the greatest fall."""
        return min(self.change(quantity, scheme, spots) for spots in SPOTS)

    def outside(self, quantity: Quantity) -> float:
        """Return how far POP is at most outside of the range between the extremes of GRAPE, relative to their bound."""
        found = []
        for spots in SPOTS:
            ends = [self.mean(quantity, scheme, spots) for scheme in ("load100", "delay100")]
            pop = self.mean(quantity, "pop", spots)
            found.append(max(pop / max(ends) - 1, 1 - pop / min(ends), 0.0))
        return max(found)

    @property
    def agreement(self) -> float:
        """Return the share of publishers that all three schemes place at one broker where all their readers are."""
        hosts = zip(*(self.each(scheme, 1) for scheme in ("load100", "delay100", "pop")), strict=True)
        same = [one == two == three for each in hosts for one, two, three in zip(*(o.hosts for o in each), strict=True)]
        return fmean(same)

    @property
    def moves(self) -> list[tuple[int, float]]:
        """Return the hops and the silence of all moves in a tree of brokers."""
        return [
            move
            for case, outcome in self.outcomes.items()
            if case.network == "planetlab" and case.scheme != "pop"
            for move in outcome.moves
        ]


NOISE: Final = 0.01
"""Means that differ by less count as equal: the best placements for some weights are the same but for chance."""


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Spearman's coefficient; 0 if all values of one are equal. Values within NOISE count as equal."""
    ranks = [
        [
            fmean(at for at, each in enumerate(sorted(values)) if abs(each - value) <= NOISE * abs(value))
            for value in values
        ]
        for values in (one, other)
    ]
    return correlation(*ranks) if all(len({*each}) > 1 for each in ranks) else 0.0


def weight_correlation(results: PlacementResults) -> float:
    """Return the least rank correlation of a weight with the delay and the message rate that follow from it.

    The less the load weighs, the less delay and the more messages; with the weight of the delay it is the reverse.
    """
    found = []
    for priority, sign in (("load", 1), ("delay", -1)):
        for quantity, direction in ((DELAY, sign), (RATE, -sign)):
            means = [results.mean(quantity, f"{priority}{weight}", network=STUDIED_ON) for weight in WEIGHTS]
            found.append(rank_correlation([direction * weight for weight in WEIGHTS], means))
    return min(found)


def linearity(moves: Iterable[tuple[int, float]]) -> float:
    """Return R squared of a line through the mean silence for each number of hops."""
    silences: dict[int, list[float]] = {}
    for hops, silence in moves:
        silences.setdefault(hops, []).append(silence)
    means = {hops: fmean(each) for hops, each in silences.items() if len(each) >= MOVES_MIN}
    return correlation([*means], [*means.values()]) ** 2 if len(means) > 1 else 0.0


MOVES_MIN: Final = 5
"""Moves over a number of hops for a mean."""


def findings(results: PlacementResults) -> list[ExperimentFigure]:
    """Return the published figures beside ours."""
    figure = ExperimentFigure
    ends = [
        abs(results.mean(quantity, one, network=STUDIED_ON) / results.mean(quantity, other, network=STUDIED_ON) - 1)
        for one, other in (("load1", "delay100"), ("delay1", "load100"))
        for quantity in (DELAY, RATE)
    ]
    spread = [
        abs(results.mean(each, "load100", is_clustered=False) / results.mean(each, "delay100", is_clustered=False) - 1)
        for each in (RATE, DELAY)
    ]
    overhead = results.mean(CONTROL, "pop", is_clustered=False) / results.mean(CONTROL, "delay100", is_clustered=False)
    by_threshold = [
        "delay100" if events == PUBLISHED_SESSIONS.events else f"delay100 of {events}" for events in THRESHOLDS
    ]
    controls = [results.mean(CONTROL, scheme, network=STUDIED_ON) for scheme in by_threshold]
    hops = [results.mean(HOPS, scheme, network=STUDIED_ON) for scheme in by_threshold]
    more_hops = hops[0] / hops[THRESHOLDS.index(PUBLISHED_SESSIONS.events)] - 1
    everything = results.outcomes.values()
    single = [outcome.visits for scheme in MAIN[1:] for outcome in results.each(scheme, 1)]
    return [
        figure("clustered, best X: message rate, load100", "-85 %", results.best(RATE, "load100"), PERCENT, high=-0.7),
        figure("  input load, load100", "-68 %", results.best(LOAD, "load100"), PERCENT, high=-0.55),
        figure("  delay, delay100", "-68 %", results.best(DELAY, "delay100"), PERCENT, high=-0.5),
        figure("  message rate, POP", "-85 %", results.best(RATE, "pop"), PERCENT),
        figure("  input load, POP", "-64 %", results.best(LOAD, "pop"), PERCENT),
        figure("  delay, POP", "-63 %", results.best(DELAY, "pop"), PERCENT),
        figure("POP's delay outside of GRAPE's, at most", "0", results.outside(DELAY), SHARE, high=0.1),
        figure("  input load", "0", results.outside(LOAD), SHARE, high=0.1),
        figure("X = 1: publishers placed alike by all three", "all", results.agreement, SHARE, low=1.0),
        figure("  brokers that an event enters", "1", max(single), PLAIN, 1, 1),
        figure("random: message rates of GRAPE differ by", "0", spread[0], SHARE, high=0.1),
        figure("  delays", "0", spread[1], SHARE, high=0.1),
        figure("  POP's control messages / GRAPE's", "11", overhead, PLAIN, low=5.0),
        figure("weights: least rank correlation", "1", weight_correlation(results), "{:.2f}", low=0.8),
        figure("  load1, delay100 and delay1, load100 differ by", "0", max(ends), SHARE, high=0.1),
        figure("sessions of 10 events: hops, against 100", "more", more_hops, PERCENT, low=0.0),
        figure("  longer sessions with more control messages", "0", _rises(controls), COUNT, 0, 0),
        figure("silence over hops, R squared", "linear", linearity(results.moves), "{:.3f}", low=0.95),
        figure("deliveries lost or doubled", "0", sum(outcome.wrong for outcome in everything), COUNT, 0, 0),
        figure("  events out of order", "", sum(outcome.disordered for outcome in everything), COUNT, 0, 0),
        *(
            figure(
                f"{head}127 brokers, X = {spots}: {name}, {scheme}",
                "",
                results.change(each, scheme, spots, "cluster"),
                PERCENT,
            )
            for spots in (1, USUAL)
            for head, name, each, scheme in (
                ("", "message rate", RATE, "load100"),
                ("  ", "delay", DELAY, "load100"),
                ("  ", "delay", DELAY, "delay100"),
            )
        ),
    ]


def beyond(results: PlacementResults) -> list[ExperimentFigure]:
    """Return the figures that a product should reach."""
    figure = ExperimentFigure
    schemes = ("product load", "product delay")
    long = [
        outcome for spots in (1, USUAL) for scheme in schemes for outcome in results.each(scheme, spots, is_long=True)
    ]
    shares = [outcome.control_share for outcome in long]
    federation = [
        outcome for spots in (1, USUAL) for scheme in schemes for outcome in results.each(scheme, spots, "scot")
    ]
    silences = [silence for outcome in (*long, *federation) for _, silence in outcome.moves]
    rate = results.change(RATE, "product load", 1, is_long=True)
    delay = results.change(DELAY, "product delay", 1, is_long=True)
    found = [
        figure("best X: message rate", "-85 %", rate, PERCENT, high=-0.85),
        figure("  delay", "-68 %", delay, PERCENT, high=-0.68),
        figure(f"X = {USUAL}: message rate", "", results.change(RATE, "product load", USUAL, is_long=True), PERCENT),
        figure("  delay", "", results.change(DELAY, "product delay", USUAL, is_long=True), PERCENT),
        figure("control messages, mean", "<= 16 %", fmean(shares), SHARE, high=0.03),
        figure("  of the worst run", "", max(shares), SHARE),
        figure("a publisher is silent, s", "<= 5", max(silences, default=0.0), "{:.2f}", high=1.0),
        figure("moves of one publisher in 18 minutes", "", max(outcome.most_moves for outcome in long), COUNT, high=2),
    ]
    for spots in (1, USUAL):
        before = {
            each: results.mean(each, "none", spots, "scot") / results.mean(each, "none", spots) - 1
            for each in (RATE, DELAY)
        }
        found += [
            figure(f"SCOT, X = {spots}, without placement: message rate", "", before[RATE], PERCENT),
            figure("  delay, against the tree", "", before[DELAY], PERCENT),
            figure("  message rate, by load", "", results.change(RATE, "product load", spots, "scot"), PERCENT),
            figure("  delay, by delay", "", results.change(DELAY, "product delay", spots, "scot"), PERCENT),
        ]
    return found


def _rises(values: Sequence[float]) -> int:
    return sum(after >= before for before, after in pairwise(values))


SEEDS: Final = 5
COLOURS: Final = {"none": "#555555", "load100": "#28549a", "delay100": "#c2410c", "pop": "#15803d"}


@click.command(
    name="grape",
    short_help="Publishers that move to where their readers are.",
    epilog=examples("edgebroker experiment grape --seeds 1 --svg rate.svg --delay-svg delay.svg"),
)
@click.option("--seeds", type=click.IntRange(1, 100), default=SEEDS, show_default=True, help="Runs: seeds 1 to N.")
@click.option(
    "--publishers",
    type=click.IntRange(1, 200),
    default=10,
    show_default=True,
    help="Publishers, each with 100 readers.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(6, 60),
    default=6,
    show_default=True,
    help=f"Virtual time of a run, {PUBLISHED_MINUTES} as published; figures are those of its last third.",
)
@click.option(
    "--jobs", type=click.IntRange(1, 64), default=os.cpu_count() or 1, show_default="all cores", help="Runs at once."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw the message rates into this file.")
@click.option("--delay-svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw the delays into this file.")
def command(
    seeds: int, publishers: int, minutes: float, jobs: int, as_json: bool, svg: Path | None, delay_svg: Path | None
) -> None:
    """Let publishers move to where their readers are, with GRAPE and POP, and compare with staying.

    63 and 127 brokers of the product in a tree, and 63 in a federation of three clusters, on virtual time. Ends with
    exit code 1 if the outcome is not the published one.
    """
    results = PlacementResults(measured(seeds, publishers, minutes, jobs))
    write_chart(svg, drawn(results, RATE, "Messages that enter a broker", "messages/s, mean"))
    write_chart(delay_svg, drawn(results, DELAY, "Delay of deliveries", "ms, mean"))
    scale = f"{minutes:g} of the published {PUBLISHED_MINUTES} minutes"
    head = f"where publishers are placed: {publishers} publishers, {seeds} seeds, {scale}"
    about = {"seeds": seeds, "publishers": publishers, "minutes": minutes, "cells": cells(results)}
    report(head, about, findings(results), beyond(results), as_json)


def measured(seeds: int, publishers: int, minutes: float, jobs: int) -> dict[PlacementCase, PlacementOutcome]:
    """Return the outcomes of all runs, *jobs* at a time."""
    found: dict[PlacementCase, PlacementOutcome] = {}
    with ProcessPoolExecutor(jobs) as pool, StatusLine() as progress:
        running = {pool.submit(run, case, publishers, minutes): case for case in cases(seeds)}
        for done in as_completed(running):
            case = running[done]
            found[case] = done.result()
            progress.show(f"{len(found)} of {len(running)}: {case.scheme}, X = {case.spots}, seed {case.seed}")
    return {case: found[case] for case in cases(seeds)}


def cells(results: PlacementResults) -> list[dict[str, object]]:
    """Return the means of the seeds of each kind of run, as JSON objects."""
    found = []
    for case in results.outcomes:
        if case.seed == results.seeds[0]:
            each = results.each(
                case.scheme, case.spots, case.network, is_clustered=case.is_clustered, is_long=case.is_long
            )
            names = ("message_rate", "visits", "input_load", "delay_ms", "hops", "control_share")
            means = {name: round(fmean(map(attrgetter(name), each)), 4) for name in names}
            about = {"scheme": case.scheme, "spots": case.spots, "network": case.network}
            found.append({**about, "clustered": case.is_clustered, "long": case.is_long, **means})
    return found


def drawn(results: PlacementResults, quantity: Quantity, title: str, unit: str) -> str:
    """Return a chart over the number of brokers with readers, for the clustered workload."""
    lines = [
        ChartLine(
            "not moved" if scheme == "none" else scheme,
            {spots: results.mean(quantity, scheme, spots) for spots in SPOTS},
            COLOURS[scheme],
        )
        for scheme in MAIN
    ]
    return line_chart(title, "clustered readers, 63 brokers", "brokers with readers", unit, lines)
