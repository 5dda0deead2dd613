"""The network of the experiments [LM]: brokers with clients in three regions, and the links of every broker."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

REGIONS: Final = 3
BROKERS_PER_REGION: Final = 1 + 3 + 9
CLIENTS_PER_BROKER: Final = 10
PUBLISHERS: Final = (4, 17, 30)
"""The brokers of the three publishers: in each region the first of those that are farthest from the root."""

BETWEEN_ROOTS_MS: Final = (50.0, 65.0, 75.0)
BELOW_ROOT_MS: Final = 25.0
BELOW_MIDDLE_MS: Final = 10.0
"""A tree of 13 brokers has only two levels below its root, so the source's 1 ms is that of the clients."""


@dataclass(frozen=True, slots=True)
class Link:
    """A way out of a broker, to a neighbour or to one client, and its bit.

    The links of all brokers have bits of their own, side by side: one search tree then holds the annotations of every
    broker, and a search that opens the links of one broker runs as in that broker's own tree.
    """

    neighbour: int | None
    """None: a client."""
    bit: int


class Network:
    """Brokers, numbered from 0; client c is attached to broker `c // CLIENTS_PER_BROKER`."""

    def __init__(self, neighbours: Sequence[Mapping[int, float]]) -> None:
        """neighbours: for each broker its neighbours and the delay to each, in ms.

        Shortest paths must be unique, so that best paths and spanning trees agree.
        """
        self.neighbours = tuple(dict(around) for around in neighbours)
        self.clients = len(self.neighbours) * CLIENTS_PER_BROKER
        self._trees = [shortest_paths(self.neighbours, root) for root in range(len(self.neighbours))]
        self.links: list[list[Link]] = []
        """For each broker: a link to every neighbour, then one to every client of its own."""
        number = 0
        for around in self.neighbours:
            ends = [*around, *[None] * CLIENTS_PER_BROKER]
            self.links.append([Link(end, 1 << at) for at, end in enumerate(ends, start=number)])
            number += len(ends)
        self.own_clients = [sum(link.bit for link in links if link.neighbour is None) for links in self.links]
        """For each broker the bits of the links to its clients."""

    def next_hop(self, broker: int, destination: int) -> int:
        """The neighbour of *broker* on its best path to *destination*, another broker."""
        neighbour = self._trees[destination][broker]
        assert neighbour is not None, "a broker has no hop to itself"
        return neighbour

    def links_to(self, client: int) -> int:
        """The bits of the links that lead towards *client*, one for each broker."""
        home, place = divmod(client, CLIENTS_PER_BROKER)
        bits = self.links[home][len(self.neighbours[home]) + place].bit
        for broker in range(len(self.neighbours)):
            if broker != home:
                bits |= self._bit_towards(home, broker)
        return bits

    def masks(self, publisher: int) -> list[int]:
        """For each broker the links that are MAYBE for events from the broker *publisher* [LM, initialisation masks].

        These are the links over which some client lies below the broker in the publisher's spanning tree.
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
    """For each broker its parent in the tree of shortest paths from *root*, which is its next hop towards *root*."""
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
    """The region of *broker* in the network of `three_regions`."""
    return broker // BROKERS_PER_REGION


def three_regions() -> Network:
    """39 brokers in three regions, each a tree of 1 + 3 + 9 brokers; the roots are connected with each other.

    The source has lateral links between the regions as well, but not where; there are none here.
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
    return Network(neighbours)
