"""The workload and the networks of the experiment on placement [GRAPE 5.1]: stock quotes and their readers.

The numbers of publishers and subscribers and their rates are lost; these are our choice, like the delays.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import dist
from random import Random
from typing import Final, NamedTuple

from edgebroker import limits
from edgebroker.filters import Filter
from edgebroker.instants import MILLISECOND, Duration
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgebroker.predicate import Predicate

SUBSCRIBERS: Final = 100
"""For each publisher."""
PER_MINUTE: Final = 60
"""Quotes of each publisher."""
VALUES: Final = 1_000
LOW, MEDIUM = 900, 500
"""A low-rated subscriber gets a quote whose spread is at least LOW of VALUES, which is 10 %; a medium-rated one those
whose volume is at least MEDIUM, which is 50 %; a high-rated one gets all.
"""
FILTERS: Final[tuple[Sequence[Predicate], ...]] = (
    Filter.parse(f"highLow >= {LOW}").predicates,
    Filter.parse(f"volume >= {MEDIUM}").predicates,
    ((),),
)
QUOTE: Final = (
    '{"n":"%08d","class":"STOCK","symbol":"%s","open":18.37,"high":18.62,"low":18.37,"close":18.37,"volume":%d,'
    '"date":"5-Sep-96","openClose":0.0,"highLow":%d,"closeEqualsLow":true,"closeEqualsHigh":false}'
)
"""The published twelve attributes, and a number."""


class QuoteReaders(NamedTuple):
    """The subscribers of one publisher at one broker, by their rate."""

    low: int = 0
    medium: int = 0
    high: int = 0

    def wanting(self, volume: int, high_low: int) -> int:
        """Return how many of them get a quote."""
        return self.low * (high_low >= LOW) + self.medium * (volume >= MEDIUM) + self.high


@dataclass(frozen=True, slots=True)
class StockSymbol:
    """One publisher, where it begins, and its readers at each broker."""

    client: str
    topic: str
    host: str
    readers: Mapping[str, QuoteReaders]


def stock_symbols(
    brokers: Sequence[str], publishers: int, spots: int, is_clustered: bool, seed: int
) -> list[StockSymbol]:
    """Return *publishers* publishers, each with readers at *spots* random brokers.

    is_clustered: 95 % of the readers are low-rated and 5 % high-rated, these at one broker, those at the others.
    Otherwise 70 % are low-rated, 25 % medium-rated and 5 % high-rated, each at any of the brokers.
    """
    chance = Random(f"stocks {seed}")
    symbols = []
    for number in range(publishers):
        chosen = chance.sample(brokers, spots)
        counts = {broker: [0, 0, 0] for broker in chosen}
        if is_clustered:
            counts[chosen[0]][2] = SUBSCRIBERS * 5 // 100
            others = chosen[1:] or chosen
            for _ in range(SUBSCRIBERS * 95 // 100):
                counts[chance.choice(others)][0] += 1
        else:
            for rate, percent in enumerate((70, 25, 5)):
                for _ in range(SUBSCRIBERS * percent // 100):
                    counts[chance.choice(chosen)][rate] += 1
        readers = {broker: QuoteReaders(*each) for broker, each in counts.items() if any(each)}
        symbols.append(StockSymbol(f"S{number}", f"stock/S{number}/quote", chance.choice(brokers), readers))
    return symbols


@dataclass(frozen=True, slots=True)
class PlacementCosts:
    """The durations of the steps of a message."""

    match: Duration
    """Time to receive a publication and to find its readers."""
    control: Duration
    """Time to receive any other message."""
    copy: Duration
    """Time to send one copy."""


PLANETLAB: Final = PlacementCosts(20 * MILLISECOND, MILLISECOND, MILLISECOND // 10)
"""Brokers in Java on shared machines. With 40 publishers and random readers the busiest ones work four fifths of the
time; the source reports that some were overloaded.
"""
NEAR: Final[Duration] = 3 * MILLISECOND
FAR: Final[Duration] = 12 * MILLISECOND
"""The time between two machines is NEAR, and FAR for each side of the square in which they are."""
CLUSTER: Final = PlacementCosts(2 * MILLISECOND, MILLISECOND // 10, MILLISECOND // 20)
CLUSTER_LINK: Final[Duration] = MILLISECOND // 10
CLUSTER_MACHINES: Final = 20


@dataclass(frozen=True, slots=True)
class PlacementNetwork:
    """The brokers of a run, and where their machines are."""

    topology: Topology
    costs: PlacementCosts
    places: Mapping[str, tuple[float, float]] | None
    """Broker -> its place in a square with sides of length 1; None: all machines are in one room."""
    machines: Mapping[str, Hashable]

    def one_way(self, broker: str, other: str) -> Duration:
        """Return the time from one broker's machine to another's. Clients are at the machines of brokers."""
        if self.places is None:
            return CLUSTER_LINK
        return round(NEAR + FAR * dist(self.places[broker], self.places[other])) if broker != other else CLUSTER_LINK


def binary_tree(positions: int) -> Factor:
    """Return a balanced tree with a fan-out of two."""
    edges = (f"b{child // 2}-b{child}" for child in range(2, positions + 1))
    return Factor.parse(*edges) if positions > 1 else Factor.parse("b1")


@contextmanager
def _larger_sites(positions: int) -> Iterator[None]:
    usual = limits.POSITIONS_MAX
    limits.POSITIONS_MAX = max(usual, positions)
    try:
        yield
    finally:
        limits.POSITIONS_MAX = usual


def planetlab(positions: int, clusters: int, seed: int) -> PlacementNetwork:
    """Return brokers on machines far from each other. clusters: 1 for the published tree."""
    topology = Topology.product(Scot(binary_tree(positions), clusters))
    chance = Random(f"places {seed}")
    places = {gateway.name: (chance.random(), chance.random()) for gateway in topology.gateways}
    return PlacementNetwork(topology, PLANETLAB, places, {name: name for name in places})


def cluster(positions: int) -> PlacementNetwork:
    """Return brokers on the machines of one room, six or seven on each.

    A site of the product has 64 gateways at most. The published tree of 127 is built in spite of that limit.
    """
    with _larger_sites(positions):
        topology = Topology.product(Scot(binary_tree(positions), 1))
    machines = {gateway.name: number % CLUSTER_MACHINES for number, gateway in enumerate(topology.gateways)}
    return PlacementNetwork(topology, CLUSTER, None, machines)
