"""`edgebroker experiment link-matching`: compares matching steps over several hops with one centralised match.

Source: [LM], chart "matching steps": brokers in three regions, and subscribers whose interests depend on the region.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Final, NamedTuple

import click

from edgebroker.cli import Refused
from edgebroker.cli.parameters import examples
from edgebroker.predicate import Attributes, ElementaryTest, Interval, Predicate, Value, ValueType
from edgelab.experiment.published_tree import FixedPst, FixedSubscription, Optimisations, fewest_stars_first
from edgelab.experiment.report import ChartLine, StatusLine, line_chart, write_chart

VALUES: Final = (1, 2, 3)
"""The number of values of every attribute."""
FIRST_TESTED: Final = 0.98
"""The probability that a subscription tests the first attribute."""


class InterestWorkload:
    """Random predicates and events.

    Attribute i (from 1) is tested with probability `FIRST_TESTED * decline ** (i - 1)`. Values have a Zipf distribution
    with s = 1; their order of popularity is drawn for every region and attribute, and is that of the region's
    subscribers and publishers.
    """

    def __init__(self, chance: Random, regions: int, attributes: int, decline: float) -> None:
        self._chance = chance
        self.names = tuple(f"a{number}" for number in range(1, attributes + 1))
        self.domains: dict[str, tuple[Value, ...]] = dict.fromkeys(self.names, VALUES)
        self._tested = [FIRST_TESTED * decline**place for place in range(attributes)]
        self._rankings = [[chance.sample(VALUES, len(VALUES)) for _ in self.names] for _ in range(regions)]
        self._weights = [1 / rank for rank in range(1, len(VALUES) + 1)]
        self._tests = {
            (name, value): ElementaryTest(name, ValueType.NUMBER, (Interval(value, True, value, True),))
            for name in self.names
            for value in VALUES
        }

    def predicate(self, region: int) -> Predicate:
        """Return the predicate of a subscriber in *region*."""
        tested = [place for place, probability in enumerate(self._tested) if self._chance.random() < probability]
        tests = [self._tests[self.names[place], self._value(region, place)] for place in tested]
        return tuple(sorted(tests, key=lambda test: test.attribute))

    def event(self, region: int) -> dict[str, Value]:
        """Return the event of a publisher in *region*."""
        return {name: self._value(region, place) for place, name in enumerate(self.names)}

    def _value(self, region: int, place: int) -> int:
        return self._chance.choices(self._rankings[region][place], self._weights)[0]


REGIONS: Final = 3
BROKERS_PER_REGION: Final = 1 + 3 + 9
CLIENTS_PER_BROKER: Final = 10
PUBLISHERS: Final = (4, 17, 30)
"""The brokers of the three publishers: in each region the first of those farthest from the root."""

BETWEEN_ROOTS_MS: Final = (50.0, 65.0, 75.0)
BELOW_ROOT_MS: Final = 25.0
BELOW_MIDDLE_MS: Final = 10.0
"""Delay to a client. A tree of 13 brokers has only two levels below its root, so the source's 1 ms is that of the
clients.
"""


@dataclass(frozen=True, slots=True)
class NetworkLink:
    """A link from a broker to a neighbour or to one client, and its bit.

    The links of all brokers have bits of their own, side by side: one search tree then holds the annotations of every
    broker, and a search that opens the links of one broker runs as in that broker's own tree.
    """

    neighbour: int | None
    """The neighbour; None for a client."""
    bit: int


class ExperimentNetwork:
    """Brokers, numbered from 0; client c is attached to broker `c // CLIENTS_PER_BROKER`."""

    def __init__(self, neighbours: Sequence[Mapping[int, float]]) -> None:
        """neighbours: for each broker its neighbours and the delay to each, in ms.

        Shortest paths must be unique, so that best paths and spanning trees agree.
        """
        self.neighbours = tuple(dict(around) for around in neighbours)
        self.clients = len(self.neighbours) * CLIENTS_PER_BROKER
        self._trees = [shortest_paths(self.neighbours, root) for root in range(len(self.neighbours))]
        self.links: list[list[NetworkLink]] = []
        """For each broker, a link to every neighbour, then one to every client of its own."""
        number = 0
        for around in self.neighbours:
            ends = [*around, *[None] * CLIENTS_PER_BROKER]
            self.links.append([NetworkLink(end, 1 << at) for at, end in enumerate(ends, start=number)])
            number += len(ends)
        self.own_clients = [sum(link.bit for link in links if link.neighbour is None) for links in self.links]
        """For each broker, the bits of the links to its clients."""

    def next_hop(self, broker: int, destination: int) -> int:
        """Return the neighbour of *broker* on its best path to *destination*, another broker."""
        neighbour = self._trees[destination][broker]
        assert neighbour is not None, "a broker has no hop to itself"
        return neighbour

    def links_to(self, client: int) -> int:
        """Return the bits of the links that lead towards *client*, one for each broker."""
        home, place = divmod(client, CLIENTS_PER_BROKER)
        bits = self.links[home][len(self.neighbours[home]) + place].bit
        for broker in range(len(self.neighbours)):
            if broker != home:
                bits |= self._bit_towards(home, broker)
        return bits

    def masks(self, publisher: int) -> list[int]:
        """Return for each broker the links that are MAYBE for events from the broker *publisher*.

        These are the links over which some client lies below the broker in the publisher's spanning tree [LM,
        initialisation masks].
        """
        masks = list(self.own_clients)
        for home in range(len(self.neighbours)):
            broker = publisher
            while broker != home:
                masks[broker] |= self._bit_towards(home, broker)
                broker = self.next_hop(broker, home)
        return masks

    def _bit_towards(self, destination: int, broker: int) -> int:
        neighbour = self.next_hop(broker, destination)
        return next(link.bit for link in self.links[broker] if link.neighbour == neighbour)


def shortest_paths(neighbours: Sequence[Mapping[int, float]], root: int) -> list[int | None]:
    """Return for each broker its parent in the tree of shortest paths from *root*, which is its next hop towards
    *root*.
    """
    parents: list[int | None] = [None] * len(neighbours)
    reached: set[int] = set()
    frontier: list[tuple[float, int, int | None]] = [(0.0, root, None)]
    while frontier:
        delay_ms, broker, parent = heapq.heappop(frontier)
        if broker in reached:
            continue
        reached.add(broker)
        parents[broker] = parent
        for next_, hop_ms in neighbours[broker].items():
            if next_ not in reached:
                heapq.heappush(frontier, (delay_ms + hop_ms, next_, broker))
    return parents


def region_of(broker: int) -> int:
    """Return the region of *broker* in the network of `three_regions`."""
    return broker // BROKERS_PER_REGION


def three_regions() -> ExperimentNetwork:
    """Return 39 brokers in three regions, each a tree of 1 + 3 + 9 brokers; the roots are connected with each other.

    The source has lateral links between the regions as well, but does not specify them; there are none here.
    """
    neighbours: list[dict[int, float]] = [{} for _ in range(REGIONS * BROKERS_PER_REGION)]

    def connect(a: int, b: int, delay_ms: float) -> None:
        neighbours[a][b] = neighbours[b][a] = delay_ms

    roots = range(0, REGIONS * BROKERS_PER_REGION, BROKERS_PER_REGION)
    for (a, b), delay_ms in zip(combinations(roots, 2), BETWEEN_ROOTS_MS, strict=True):
        connect(a, b, delay_ms)
    for root in roots:
        for middle in range(3):
            connect(root, root + 1 + middle, BELOW_ROOT_MS)
            for leaf in range(3):
                connect(root + 1 + middle, root + 4 + 3 * middle + leaf, BELOW_MIDDLE_MS)
    return ExperimentNetwork(neighbours)


EVENTS: Final = 300
HOPS_MAX: Final = 6
"""Hops from a broker at the edge of one region to one at the edge of another."""
ATTRIBUTES: Final = 10
DECLINE: Final = 0.82
FACTORED: Final = Optimisations(index_attributes=3)


class MatchingSteps(NamedTuple):
    """Mean matching steps per event."""

    centralised: float
    """Steps to find all subscriptions that match."""
    hops: tuple[float, ...]
    """Steps of all brokers on the path to one whose clients match, if it is the 1st to the HOPS_MAX-th broker."""


REFERENCE: Final[Mapping[int, MatchingSteps]] = {
    2_000: MatchingSteps(67, (15, 32, 46, 64, 78, 87)),
    6_000: MatchingSteps(98, (20, 41, 64, 85, 106, 121)),
    10_000: MatchingSteps(113, (24, 47, 72, 96, 120, 137)),
}
"""Figures to reproduce, by the number of subscriptions. The source has a chart without figures; these are from one seed
of a model with the same shape.
"""
TOLERANCE: Final = 0.15
"""The tolerance of the mean of five seeds, relative to a figure of REFERENCE."""
CROSSING: Final = 10_000
"""At this number of subscriptions 4 hops cost no more than a centralised match, and 5 hops cost more, as published."""
GROWTH: Final = (2_000, 10_000)
"""From the first to the second number of subscriptions, a factor of 5, no figure becomes twice as large."""


class EventArrival(NamedTuple):
    """The arrival of an event at a broker with matching clients."""

    hops: int
    """Brokers on the path, the first and this one included."""
    steps: int
    """Matching steps of all of them together."""


def measure(
    chance: Random, subscriptions: int, events: int = EVENTS, optimisations: Optimisations = FACTORED
) -> MatchingSteps:
    """Run once: *subscriptions* are assigned to all clients in turn, *events* are published by the three publishers in
    turn.

    Raises ValueError if some distance has no arrival: too few subscriptions or events for a mean.
    """
    network = three_regions()
    interests = InterestWorkload(chance, REGIONS, ATTRIBUTES, DECLINE)
    clients = [number % network.clients for number in range(subscriptions)]
    predicates = [interests.predicate(region_of(client // CLIENTS_PER_BROKER)) for client in clients]
    towards = [network.links_to(client) for client in range(network.clients)]
    tree = FixedPst(fewest_stars_first(interests.names, predicates), interests.domains, optimisations)
    tree.insert_all(
        FixedSubscription(number, predicate, towards[client])
        for number, (client, predicate) in enumerate(zip(clients, predicates, strict=True))
    )
    masks = {publisher: network.masks(publisher) for publisher in PUBLISHERS}
    centralised: list[int] = []
    on_the_way: list[list[int]] = [[] for _ in range(HOPS_MAX)]
    for number in range(events):
        publisher = PUBLISHERS[number % len(PUBLISHERS)]
        event = interests.event(region_of(publisher))
        centralised.append(tree.match(event)[1])
        for arrival in journey(network, tree, masks[publisher], publisher, event):
            on_the_way[arrival.hops - 1].append(arrival.steps)
    if not all(on_the_way):
        raise ValueError(f"{events} events for {subscriptions} subscriptions leave a distance without any arrival")
    return MatchingSteps(fmean(centralised), tuple(map(fmean, on_the_way)))


def journey(
    network: ExperimentNetwork, tree: FixedPst, masks: Sequence[int], publisher: int, event: Attributes
) -> Iterator[EventArrival]:
    """Follow *event* from broker to broker, each matching it with its mask of *masks*, to all matching clients."""
    on_its_way = [(publisher, 1, 0)]
    while on_its_way:
        broker, hops, steps = on_its_way.pop()
        decision = tree.decide(event, masks[broker])
        steps += decision.steps
        if decision.yes & network.own_clients[broker]:
            yield EventArrival(hops, steps)
        for link in network.links[broker]:
            if link.neighbour is not None and decision.yes & link.bit:
                on_its_way.append((link.neighbour, hops + 1, steps))


def mean_of(runs: Sequence[MatchingSteps]) -> MatchingSteps:
    """Return the mean of several runs, one per seed."""
    hops = tuple(fmean(run.hops[place] for run in runs) for place in range(HOPS_MAX))
    return MatchingSteps(fmean(run.centralised for run in runs), hops)


def deviations(measured: MatchingSteps, reference: MatchingSteps) -> MatchingSteps:
    """Return the deviation of each figure from its reference, relative to it."""
    hops = tuple(here / there - 1 for here, there in zip(measured.hops, reference.hops, strict=True))
    return MatchingSteps(measured.centralised / reference.centralised - 1, hops)


def complaints(rows: Mapping[int, MatchingSteps]) -> list[str]:
    """Return the differences of *rows* (subscriptions -> means) from the published figures, as far as *rows* cover
    them.
    """
    return [*_complaints_about_cells(rows), *_complaints_about_crossing(rows), *_complaints_about_growth(rows)]


def _complaints_about_cells(rows: Mapping[int, MatchingSteps]) -> Iterator[str]:
    for subscriptions, reference in REFERENCE.items():
        if subscriptions in rows:
            measured = rows[subscriptions]
            away = deviations(measured, reference)
            for name, part, here, there in zip(CELLS, cells(away), cells(measured), cells(reference), strict=True):
                if abs(part) > TOLERANCE:
                    yield f"{subscriptions:,} subscriptions, {name}: {here:.1f} steps, {part:+.0%} from {there:.0f}"


def _complaints_about_crossing(rows: Mapping[int, MatchingSteps]) -> Iterator[str]:
    if CROSSING in rows:
        row = rows[CROSSING]
        if not row.hops[3] <= row.centralised < row.hops[4]:
            yield f"{CROSSING:,} subscriptions: a centralised match does not lie between 4 and 5 hops"


def _complaints_about_growth(rows: Mapping[int, MatchingSteps]) -> Iterator[str]:
    few, many = GROWTH
    if few in rows and many in rows:
        for name, before, after in zip(CELLS, cells(rows[few]), cells(rows[many]), strict=True):
            if after >= 2 * before:
                yield f"{name}: {after / before:.2f} times the steps for 5 times the subscriptions, not less than 2"


CELLS: Final = ("centralised", *(f"{hops} hop{'s' * (hops > 1)}" for hops in range(1, HOPS_MAX + 1)))


def cells(steps: MatchingSteps) -> tuple[float, ...]:
    """Return the figures in the order of CELLS."""
    return (steps.centralised, *steps.hops)


OTHERWISE = 1  # exit code: the outcome differs from the published one
SUBSCRIPTIONS_MAX = 100_000
CENTRALISED_COLOUR = "#c2410c"
HOPS_COLOURS = ("#9fb8dc", "#7f9fd0", "#5f86c3", "#416db3", "#28549a", "#14397a")
"""Colours of the lines, darker with the distance."""

Rows = Mapping[int, MatchingSteps]
"""Number of subscriptions -> mean over the seeds."""


def counts(_ctx: click.Context, _parameter: click.Parameter, text: str) -> tuple[int, ...]:
    """Parse numbers of subscriptions from a list with commas; returned ascending, without repetitions."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) <= SUBSCRIPTIONS_MAX for part in parts):
        raise click.BadParameter(f"{text!r} is no list of numbers from 1 to {SUBSCRIPTIONS_MAX}, as in 2000,6000")
    return tuple(sorted(set(map(int, parts))))


@click.command(name="link-matching", epilog=examples("edgebroker experiment link-matching --seeds 3"))
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
    """Return the means by number of subscriptions. Raises Refused if there are too few for a mean."""
    rows = {}
    with StatusLine() as progress:
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
    """Yield the outcome in plain text, legible without colour and when pasted into a document."""
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
    return f"{round(part, 2) + 0.0:+.0%}"  # + 0.0: avoids a minus sign before zero


def verdict(rows: Rows, judged: bool, wrong: Sequence[str]) -> list[str]:
    """Return lines that judge the reproduction."""
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
    """Return the outcome as JSON objects."""
    return [
        {
            "subscriptions": size,
            "measured": _as_object(steps),
            "reference": _as_object(REFERENCE[size]) if size in REFERENCE else None,
        }
        for size, steps in rows.items()
    ]


def _as_object(steps: MatchingSteps) -> dict[str, object]:
    return {"centralised": round(steps.centralised, 2), "hops": [round(value, 2) for value in steps.hops]}


def drawn(rows: Rows) -> str:
    """Return the chart: a line for the centralised match and one for every distance; rings are the reference."""
    colours = (CENTRALISED_COLOUR, *HOPS_COLOURS)
    assert len(colours) == len(CELLS) == HOPS_MAX + 1
    lines = [
        ChartLine(
            name,
            {size: cells(steps)[place] for size, steps in rows.items()},
            colour,
            {size: cells(REFERENCE[size])[place] for size in rows if size in REFERENCE},
        )
        for place, (name, colour) in enumerate(zip(CELLS, colours, strict=True))
    ]
    title, note = "Matching steps of an event on its way", "lines: measured, rings: reference"
    return line_chart(title, note, "subscriptions", "steps, mean per event", lines)
