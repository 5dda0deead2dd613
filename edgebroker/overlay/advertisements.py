"""The advertisements of a gateway's own publishers: the topics of each, and the clusters that want them [SCOT, SRT].

MQTT has no advertisements, so a client is advertised when it first publishes under a topic prefix. A cluster that has
not answered yet counts as a target: a bit may be set early, never late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Protocol

from edgebroker.dataclasses import dataclass
from edgebroker.instants import Instant
from edgebroker.interest import Interest
from edgebroker.limits import ADVERTISED_LEVELS, ADVERTISEMENTS_PER_CLIENT_MAX
from edgebroker.overlay.id_allocator import IdAllocator
from edgebroker.overlay.messages import Advertise, ClusterBits
from edgebroker.overlay.topicindex import TopicIndex
from edgebroker.predicate import Attributes
from edgebroker.topics import MULTI_LEVEL, SEPARATOR, TopicFilter


class CoveringTest(Protocol):
    """The interests that cover all that a cluster wants of an advertisement."""

    interests: tuple[Interest, ...]
    wanted: frozenset[str]
    """The attributes that they test."""

    def accepts(self, topic: str, attributes: Attributes) -> bool:
        """Return whether any of them wants an event."""


@dataclass(slots=True)
class LocalPublisher:
    """A local client that publishes. `sequence`: that of its last event."""

    number: int
    sequence: int
    records: dict[str, Advertisement] = field(default_factory=dict)
    """Topic filter -> advertisement."""


@dataclass(slots=True, eq=False)
class Advertisement:
    """The state of one advertisement. The bit of the host cluster itself is set in `targets` too."""

    advertise: Advertise
    publisher: LocalPublisher
    unanswered: int
    """The clusters that have not answered whether they want such events."""
    used_at: Instant
    targets: int = 0
    """The clusters that want such events: the CIV in the advertisement context."""
    covering: dict[int, CoveringTest] = field(default_factory=dict)
    """Cluster -> the test whether it may want an event; a cluster that is missing may want anything."""
    wanted: frozenset[str] = frozenset()
    """The attributes that decide which clusters want an event."""
    numbers: dict[int, int] = field(default_factory=dict)
    """Cluster -> the number of its last answer."""

    def pending(self, own_cluster: int) -> int:
        """Return the clusters to which an event must be sent, whatever its content."""
        return (self.targets | self.unanswered) & ~(1 << own_cluster)

    def forget(self, cluster: int) -> None:
        """Discard the answer of *cluster*; the gateway that answers for it next may begin with any number."""
        self.unanswered |= 1 << cluster
        self.set_covering(cluster, None)
        self.numbers.pop(cluster, None)

    def set_covering(self, cluster: int, covering: CoveringTest | None) -> None:
        """Store what *cluster* may want; None: anything."""
        if covering is None:
            self.covering.pop(cluster, None)
        else:
            self.covering[cluster] = covering
        self.wanted = frozenset(name for each in self.covering.values() for name in each.wanted)

    def narrowed(self, pending: int, topic: str, attributes: Attributes) -> int:
        """Return those of the clusters *pending* that may want an event [SCOT 2.6, precision]."""
        for cluster, covering in self.covering.items():
            if pending >> cluster & 1 and not covering.accepts(topic, attributes):
                pending &= ~(1 << cluster)
        return pending


class Advertisements:
    """The advertisements of one gateway."""

    def __init__(
        self,
        ids: IdAllocator,
        cluster: int,
        others: int,
        lease_s: int,
        wants_answers: bool,
        test_of: Callable[[tuple[Interest, ...]], CoveringTest],
    ) -> None:
        """others: the other clusters (CIV)."""
        self._test_of = test_of
        self._ids = ids
        self._cluster = cluster
        self._others = others
        self._lease_s = lease_s
        self._wants_answers = wants_answers
        self._publishers: dict[str, LocalPublisher] = {}
        self._records: dict[int, Advertisement] = {}
        self._index: TopicIndex[Advertisement] = TopicIndex()
        self._used: set[int] = set()  # numbers of present publishers and advertisements

    def __iter__(self) -> Iterator[Advertisement]:
        return iter(self._records.values())

    def __len__(self) -> int:
        return len(self._records)

    def get(self, adv: int) -> Advertisement | None:
        """Return the record of *adv*, None if there is none."""
        return self._records.get(adv)

    def find(self, client: str, topic: str) -> Advertisement | None:
        """Return the record under which *client* publishes to *topic*; None: it must be advertised first."""
        publisher = self._publishers.get(client)
        if publisher is None:
            return None
        records = publisher.records
        found = records.get(prefix_of(topic))
        if found is None and topic.startswith("$"):
            found = records.get(_tree_of(topic))
        return found or records.get(_widest(topic, publisher))

    def open(self, client: str, topic: str, now: Instant) -> Advertisement:
        """Create an advertisement of *client* for *topic*, for which `find` returned None."""
        publisher = self._publishers.get(client)
        if publisher is None:
            publisher = self._publishers[client] = LocalPublisher(self.reserve_number(), self._ids.before_first)
        has_many = len(publisher.records) >= ADVERTISEMENTS_PER_CLIENT_MAX
        text = _widest(topic, publisher) if has_many else prefix_of(topic)
        topic_filter = TopicFilter.parse(text)
        adv = self.reserve_number()
        advertise = Advertise(
            adv, publisher.number, client, topic_filter, self._cluster, self._lease_s, self._wants_answers
        )
        record = Advertisement(advertise, publisher, self._others if self._wants_answers else 0, now)
        publisher.records[text] = self._records[advertise.adv] = record
        self._index.add(topic_filter, record)
        return record

    def close(self, record: Advertisement) -> None:
        """End an advertisement; a publisher without any gets a new number when it publishes again."""
        client, topic_filter = record.advertise.client, record.advertise.topic_filter
        del self._records[record.advertise.adv]
        self._used.discard(record.advertise.adv)
        self._index.discard(topic_filter, record)
        del record.publisher.records[topic_filter.text]
        if not record.publisher.records:
            del self._publishers[client]
            self._used.discard(record.publisher.number)

    def reserve_number(self) -> int:
        """Return an unused number, which is used from now on.

        Numbers repeat after four million, which queries can use up in weeks.
        """
        while (number := self._ids.next()) in self._used:
            pass
        self._used.add(number)
        return number

    def overlapping(self, topic_filter: TopicFilter) -> Iterator[Advertisement]:
        """Iterate over the records that share a topic with *topic_filter*."""
        return self._index.overlapping(topic_filter)

    def receive_bits(self, bits: ClusterBits) -> list[Advertisement]:
        """Apply the answer of a cluster; return the records for which it was the first one."""
        bit = 1 << bits.cluster
        test = None if bits.covering is None or not bits.is_set else self._test_of(bits.covering)
        answered = []
        for adv in bits.advs:
            record = self._records.get(adv)
            if record is None or bits.number <= record.numbers.get(bits.cluster, -1):
                continue
            record.numbers[bits.cluster] = bits.number
            record.set_covering(bits.cluster, test)
            if bits.is_set:
                record.targets |= bit
            else:
                record.targets &= ~bit
            if record.unanswered & bit:
                record.unanswered &= ~bit
                answered.append(record)
        return answered

    def idle(self, since: Instant, is_needed: Callable[[TopicFilter], bool]) -> list[Advertisement]:
        """Return the records without a publication since *since*, except those that *is_needed* for another reason."""
        quiet = (record for record in self._records.values() if record.used_at < since)
        return [record for record in quiet if not is_needed(record.advertise.topic_filter)]


def prefix_of(topic: str) -> str:
    """Return the topic filter under which an event for *topic* is advertised: its first ADVERTISED_LEVELS levels."""
    levels = topic.split(SEPARATOR, ADVERTISED_LEVELS)[:ADVERTISED_LEVELS]
    return SEPARATOR.join([*levels, MULTI_LEVEL])


def advs_of(records: Iterable[Advertisement]) -> tuple[int, ...]:
    """Return the numbers of *records*."""
    return tuple(record.advertise.adv for record in records)


def _tree_of(topic: str) -> str:
    return f"{topic.partition(SEPARATOR)[0]}{SEPARATOR}{MULTI_LEVEL}"


def _widest(topic: str, publisher: LocalPublisher) -> str:
    """Return the topic filter under which a client with many prefixes is advertised for *topic*.

    `#` matches no topic that begins with `$`, so each such tree has one of its own; beyond twice the usual number of
    advertisements events of further such trees stay at this gateway.
    """
    if not topic.startswith("$") or len(publisher.records) > 2 * ADVERTISEMENTS_PER_CLIENT_MAX:
        return MULTI_LEVEL
    return _tree_of(topic)
