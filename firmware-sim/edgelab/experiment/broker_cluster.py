"""The brokers of one cluster, for the experiment on network loading: how an event is matched and copied on its way.

Each broker finds its clients and links as a gateway does: it has one search tree (`matching.pst`) for the subscriptions
of its own clients and another one for the interests that its neighbours announced, and it announces no interest that
another one covers (`filters.announcement`). In a cluster, which is a tree, the link over which an event arrived decides
which links may need a copy: all others. A test compares the copies with those of `federation.router`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, NamedTuple

from edgebroker.filters.announcement import CoveringAnnouncer, InterestDelta
from edgebroker.interest import Interest
from edgebroker.matching.pst import Pst
from edgebroker.predicate import Attributes, Predicate
from edgebroker.topics import TopicFilter
from edgelab.experiment.link_matching import BROKERS_PER_REGION, CLIENTS_PER_BROKER, shortest_paths, three_regions

TOPIC: Final = "event"
TOPIC_FILTER: Final = TopicFilter.parse(TOPIC)
BUCKET: Final = 2_048
"""Predicates that a search tree tests in place, the default of the kernel in Python. That of the compiled kernel is
larger; both must visit the same nodes here.
"""
SLOWEST_ROOT_LINK: Final = frozenset((BROKERS_PER_REGION, 2 * BROKERS_PER_REGION))
"""The link between two roots that is left out, so that the cluster is a tree: the slowest of three."""

Neighbours = Sequence[Mapping[int, float]]
"""For each broker, numbered from 0, its neighbours and the delay to each, in ms."""


def cluster_of(regions: int) -> Neighbours:
    """Return the brokers of the first *regions* regions of `three_regions`, joined in a tree."""
    brokers = regions * BROKERS_PER_REGION
    return [
        {
            neighbour: delay_ms
            for neighbour, delay_ms in around.items()
            if neighbour < brokers and {broker, neighbour} != SLOWEST_ROOT_LINK
        }
        for broker, around in enumerate(three_regions().neighbours[:brokers])
    ]


class ClientSubscription(NamedTuple):
    """A subscription of client *client*, which is attached to broker `client // CLIENTS_PER_BROKER`."""

    number: int
    client: int
    predicate: Predicate


@dataclass(frozen=True, slots=True)
class EventVisit:
    """One event at one broker, and its copies from there on."""

    broker: int
    steps: int
    """Matching steps: the nodes of both search trees that were visited."""
    subscriptions: tuple[int, ...]
    """The subscriptions of the broker's own clients that match."""
    clients: int
    """The broker's own clients that get a copy."""
    copies: tuple[tuple[float, EventVisit], ...]
    """The copies to neighbours: the delay in ms, and the visit there."""

    @property
    def sent(self) -> int:
        """Return the number of copies that the broker sends, to clients and neighbours."""
        return self.clients + len(self.copies)

    def all_visits(self) -> Iterator[EventVisit]:
        """Iterate over this visit and all that follow from it."""
        yield self
        for _, visit in self.copies:
            yield from visit.all_visits()


class ClusterBroker:
    """The search trees of one broker, and what it has announced."""

    __slots__ = ("announcers", "clients", "interests", "links", "received")

    def __init__(self, neighbours: Iterable[int], readers: Iterable[int]) -> None:
        """readers: the neighbours to which interests are announced."""
        self.links = {neighbour: link for link, neighbour in enumerate(neighbours)}
        self.clients = Pst(bucket_max=BUCKET)
        """The subscriptions of the broker's own clients."""
        self.interests = Pst(bucket_max=BUCKET)
        """The interests that neighbours announced, each on its link."""
        self.received: dict[int, dict[Interest, int]] = {neighbour: {} for neighbour in self.links}
        """For each neighbour, the numbers of its interests in `interests`."""
        self.announcers = {reader: CoveringAnnouncer() for reader in readers}

    def matching_subscriptions(self, attributes: Attributes) -> tuple[int, ...]:
        """Return the subscriptions of own clients that accept an event."""
        resolution = self.clients.resolve(TOPIC)
        return (*resolution.plain, *self.clients.match(resolution, attributes))

    def matching_neighbours(self, attributes: Attributes, arrival: int | None) -> list[int]:
        """Return the neighbours that need a copy. arrival: the neighbour that sent the event; None: a client."""
        mask = sum(1 << link for neighbour, link in self.links.items() if neighbour != arrival)
        if not mask:
            return []
        yes = self.interests.decide(self.interests.resolve(TOPIC), attributes, mask).yes
        return [neighbour for neighbour, link in self.links.items() if yes >> link & 1]

    @property
    def steps(self) -> int:
        """Return the matching steps in both trees so far."""
        return self.clients.steps + self.interests.steps


class BrokerCluster:
    """All brokers of a cluster.

    An interest is announced over the links that lead towards a publisher. No event of these publishers crosses any
    other link in the opposite direction, so what would be announced over it would never be looked up.
    """

    def __init__(self, neighbours: Neighbours, publishers: Sequence[int]) -> None:
        """neighbours: a tree. publishers: the brokers at which events are published."""
        self.neighbours = neighbours
        self._publishers = tuple(publishers)
        towards: list[set[int]] = [set() for _ in neighbours]
        for publisher in publishers:
            for broker, parent in enumerate(shortest_paths(neighbours, publisher)):
                if parent is not None:
                    towards[broker].add(parent)
        self.brokers = [
            ClusterBroker(around, sorted(readers)) for around, readers in zip(neighbours, towards, strict=True)
        ]
        self._client_of: dict[int, int] = {}  # by subscription
        self._numbers = count()

    @property
    def clients(self) -> int:
        """Return the number of clients."""
        return len(self.brokers) * CLIENTS_PER_BROKER

    def subscribe(self, subscriptions: Iterable[ClientSubscription]) -> None:
        """Add *subscriptions*.

        What is announced in the end does not depend on their order. Those with the fewest tests come first, so that an
        interest is rarely announced and withdrawn again: that takes half of the time.
        """
        for number, client, predicate in sorted(subscriptions, key=lambda one: len(one.predicate)):
            self._client_of[number] = client
            broker = client // CLIENTS_PER_BROKER
            self.brokers[broker].clients.insert(number, TOPIC_FILTER, (predicate,))
            self._announce(broker, None, next(self._numbers), predicate)

    def follow(self, publisher: int, attributes: Attributes, arrival: int | None = None) -> EventVisit:
        """Follow an event that arrives at the broker *publisher*, from a client or from the neighbour *arrival*."""
        broker = self.brokers[publisher]
        before = broker.steps
        subscriptions = broker.matching_subscriptions(attributes)
        targets = broker.matching_neighbours(attributes, arrival)
        steps = broker.steps - before
        delays = self.neighbours[publisher]
        copies = tuple((delays[target], self.follow(target, attributes, publisher)) for target in targets)
        clients = len({self._client_of[number] for number in subscriptions})
        return EventVisit(publisher, steps, subscriptions, clients, copies)

    def ways_to(self, broker: int) -> set[int]:
        """Return the brokers on the paths from all publishers to *broker*, these included."""
        parents = shortest_paths(self.neighbours, broker)
        found = {broker}
        for publisher in self._publishers:
            on_path: int | None = publisher
            while on_path is not None:
                found.add(on_path)
                on_path = parents[on_path]
        return found

    def flooding_copies(self, publisher: int) -> list[int]:
        """Return for each broker the copies that it sends of an event of *publisher* when all events are flooded: one
        over every link, those to its clients included, except the one over which the event arrived.
        """
        return [
            CLIENTS_PER_BROKER + len(around) - (broker != publisher) for broker, around in enumerate(self.neighbours)
        ]

    def _announce(self, broker: int, source: int | None, number: int, predicate: Predicate) -> None:
        """Announce an interest of *broker*'s own clients or of its neighbour *source* to the others."""
        for reader, announcer in self.brokers[broker].announcers.items():
            if reader != source:
                self._receive(broker, reader, announcer.add(number, TOPIC_FILTER, (predicate,)))

    def _receive(self, sender: int, receiver: int, change: InterestDelta) -> None:
        broker = self.brokers[receiver]
        received = broker.received[sender]
        for interest in change.announce:
            number = received[interest] = next(self._numbers)
            broker.interests.insert(number, TOPIC_FILTER, (interest.predicate,), broker.links[sender])
            self._announce(receiver, sender, number, interest.predicate)
        for interest in change.withdraw:
            number = received.pop(interest)
            broker.interests.remove(number)
            for reader, announcer in broker.announcers.items():
                if reader != sender:
                    self._receive(receiver, reader, announcer.remove(number))
