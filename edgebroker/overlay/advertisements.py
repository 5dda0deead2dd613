"""The advertisements of a gateway's own publishers: who may publish what, and which clusters want it [SCOT, SRT].

MQTT has no advertisements, so a client is advertised when it first publishes under a topic prefix. A cluster that has
not answered yet counts as a target: a bit may be set early, never late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import TypeVar

from edgebroker.dataclasses import dataclass
from edgebroker.instants import Instant
from edgebroker.interest import Interest
from edgebroker.limits import ADVERTISED_LEVELS, ADVERTISEMENTS_PER_CLIENT_MAX
from edgebroker.overlay.id_allocator import IdAllocator
from edgebroker.overlay.messages import Advertise, ClusterBits
from edgebroker.overlay.topicindex import TopicIndex
from edgebroker.predicate import Attributes
from edgebroker.topics import MULTI_LEVEL, SEPARATOR, TopicFilter

E = TypeVar("E")


@dataclass(slots=True)
class LocalPublisher:
    """A local client that publishes. `sequence`: that of its last event."""

    number: int
    sequence: int
    records: dict[str, Advertisement] = field(default_factory=dict)
    """By the topic filter."""


@dataclass(slots=True, eq=False)
class Advertisement:
    """What is known of one advertisement. The host cluster is its own affair; `targets` has its bit too."""

    advertise: Advertise
    publisher: LocalPublisher
    unanswered: int
    """The clusters that have not said whether they want such events."""
    used_at: Instant
    targets: int = 0
    """The clusters in which somebody wants such events: the CIV in the advertisement's context."""
    covering: dict[int, tuple[Interest, ...]] = field(default_factory=dict)
    """Cluster -> what covers all that it wants; it may be anything where none stands."""
    numbers: dict[int, int] = field(default_factory=dict)
    """Cluster -> the number of its last word."""

    def pending(self, own_cluster: int) -> int:
        """The clusters that an event must be sent to, one way or another, whatever it contains."""
        return (self.targets | self.unanswered) & ~(1 << own_cluster)

    def forget(self, cluster: int) -> None:
        """What *cluster* said does not count any more, and whoever speaks for it now begins with any number."""
        self.unanswered |= 1 << cluster
        self.covering.pop(cluster, None)
        self.numbers.pop(cluster, None)

    @property
    def wanted(self) -> frozenset[str]:
        """The attributes that decide which clusters want an event."""
        return frozenset(
            test.attribute for interests in self.covering.values() for one in interests for test in one.predicate
        )

    def narrowed(self, pending: int, topic: str, attributes: Attributes) -> int:
        """Those of the clusters *pending* that may want an event [SCOT 2.6, precision]."""
        for cluster, interests in self.covering.items():
            if pending >> cluster & 1 and not any(one.accepts(topic, attributes) for one in interests):
                pending &= ~(1 << cluster)
        return pending


class Advertisements:
    """Those of one gateway."""

    def __init__(self, numbers: IdAllocator, cluster: int, others: int, lease_s: int, wants_answers: bool) -> None:
        """others: the other clusters (CIV)."""
        self._numbers = numbers
        self._cluster = cluster
        self._others = others
        self._lease_s = lease_s
        self._wants_answers = wants_answers
        self._publishers: dict[str, LocalPublisher] = {}
        self._records: dict[int, Advertisement] = {}
        self._index: TopicIndex[Advertisement] = TopicIndex()
        self._used: set[int] = set()  # numbers of publishers and advertisements that are there

    def __iter__(self) -> Iterator[Advertisement]:
        return iter(self._records.values())

    def __len__(self) -> int:
        return len(self._records)

    def get(self, adv: int) -> Advertisement | None:
        """The record of *adv*, if it holds."""
        return self._records.get(adv)

    def find(self, client: str, topic: str) -> Advertisement | None:
        """The record under which *client* publishes to *topic*; None: it must be advertised first."""
        publisher = self._publishers.get(client)
        if publisher is None:
            return None
        return publisher.records.get(prefix_of(topic)) or publisher.records.get(MULTI_LEVEL)

    def open(self, client: str, topic: str, now: Instant) -> Advertisement:
        """Advertise *client* for *topic*; `find` must have found nothing."""
        publisher = self._publishers.get(client)
        if publisher is None:
            publisher = self._publishers[client] = LocalPublisher(self._number(), self._numbers.before_first)
        many = len(publisher.records) >= ADVERTISEMENTS_PER_CLIENT_MAX
        text = MULTI_LEVEL if many else prefix_of(topic)
        topic_filter = TopicFilter.parse(text)
        adv = self._number()
        advertise = Advertise(
            adv, publisher.number, client, topic_filter, self._cluster, self._lease_s, self._wants_answers
        )
        record = Advertisement(advertise, publisher, self._others if self._wants_answers else 0, now)
        publisher.records[text] = self._records[advertise.adv] = record
        self._index.add(topic_filter, record)
        return record

    def close(self, record: Advertisement) -> None:
        """End an advertisement; a publisher without any is new when it comes again."""
        client, topic_filter = record.advertise.client, record.advertise.topic_filter
        del self._records[record.advertise.adv]
        self._used.discard(record.advertise.adv)
        self._index.discard(topic_filter, record)
        del record.publisher.records[topic_filter.text]
        if not record.publisher.records:
            del self._publishers[client]
            self._used.discard(record.publisher.number)

    def _number(self) -> int:
        """One that nobody here has: they come again after four million, which questions use up in weeks."""
        while (number := self._numbers.next()) in self._used:
            pass
        self._used.add(number)
        return number

    def overlapping(self, topic_filter: TopicFilter) -> Iterator[Advertisement]:
        """The records that share a topic with *topic_filter*."""
        return self._index.overlapping(topic_filter)

    def receive_bits(self, bits: ClusterBits) -> list[Advertisement]:
        """Take in what a cluster says; return the records that have one unanswered question less."""
        bit = 1 << bits.cluster
        answered = []
        for adv in bits.advs:
            record = self._records.get(adv)
            if record is None or bits.number <= record.numbers.get(bits.cluster, -1):
                continue
            record.numbers[bits.cluster] = bits.number
            record.covering.pop(bits.cluster, None)
            if bits.is_set:
                record.targets |= bit
                if bits.covering is not None:
                    record.covering[bits.cluster] = bits.covering
            else:
                record.targets &= ~bit
            if record.unanswered & bit:
                record.unanswered &= ~bit
                answered.append(record)
        return answered

    def idle(self, since: Instant, is_needed: Callable[[TopicFilter], bool]) -> list[Advertisement]:
        """The records that nobody has published under *since* then and that are not needed for another reason."""
        quiet = (record for record in self._records.values() if record.used_at < since)
        return [record for record in quiet if not is_needed(record.advertise.topic_filter)]


def prefix_of(topic: str) -> str:
    """The topic filter under which an event for *topic* is advertised: its first ADVERTISED_LEVELS levels."""
    levels = topic.split(SEPARATOR, ADVERTISED_LEVELS)[:ADVERTISED_LEVELS]
    return SEPARATOR.join([*levels, MULTI_LEVEL])


def advs_of(records: Iterable[Advertisement]) -> tuple[int, ...]:
    """The numbers of *records*."""
    return tuple(record.advertise.adv for record in records)
