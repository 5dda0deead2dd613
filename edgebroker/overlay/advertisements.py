"""The advertisements of a gateway: the topic prefixes under which its clients publish, and the clusters that want such
events [SCOT, SRT].

MQTT has no advertisements, so the gateway advertises a topic prefix when a client first publishes under it. All clients
of the gateway share the advertisement; each has a flow under it, which ends after some minutes without events. The
advertisement lasts much longer, so that a device that sends every few minutes, or one with a new client identifier,
finds the answers of the other clusters there. A cluster that has not answered yet counts as a target: a bit may be set
early, never late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Final, Protocol

from edgebroker.dataclasses import dataclass
from edgebroker.instants import Duration, Instant
from edgebroker.interest import Interest
from edgebroker.limits import ADVERTISED_LEVELS, ADVERTISEMENTS_PER_CLIENT_MAX
from edgebroker.overlay.id_allocator import IdAllocator
from edgebroker.overlay.messages import Advertise, ClusterBits
from edgebroker.predicate import Attributes
from edgebroker.topicindex import TopicIndex
from edgebroker.topics import MULTI_LEVEL, SEPARATOR, TopicFilter

SEQUENCE_MODULUS: Final = 1 << 32
"""Sequences of events are below."""


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

    client: str
    number: int
    sequence: int
    flows: dict[str, PublisherFlow] = field(default_factory=dict)
    """Topic filter of an advertisement -> the client's events under it."""
    cached_until: int = SEQUENCE_MODULUS
    """Events with lower sequences may take cached routes; 0 while they are traced (`federation.relocation`)."""


@dataclass(slots=True, eq=False)
class PublisherFlow:
    """The events of one client under one advertisement. `used_at`: when it published the last one."""

    publisher: LocalPublisher
    record: Advertisement
    used_at: Instant


@dataclass(slots=True, eq=False)
class Advertisement:
    """The state of one advertisement. The bit of the host cluster itself is set in `targets` too."""

    advertise: Advertise
    unanswered: int
    """The clusters that have not answered whether they want such events."""
    flows: int = 0
    """The clients that publish under it."""
    idle_since: Instant = 0
    """When the last event was published under it, while it has no flows."""
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
        self._by_filter: dict[str, Advertisement] = {}
        self._idle: dict[int, Advertisement] = {}  # those without flows, in the order in which they became idle
        self._index: TopicIndex[Advertisement] = TopicIndex()
        self._used: set[int] = set()  # numbers of present publishers and advertisements

    def __iter__(self) -> Iterator[Advertisement]:
        return iter(self._records.values())

    def __len__(self) -> int:
        return len(self._records)

    def get(self, adv: int) -> Advertisement | None:
        """Return the record of *adv*, None if there is none."""
        return self._records.get(adv)

    def publishers(self) -> Iterable[LocalPublisher]:
        """Return the local clients that publish."""
        return self._publishers.values()

    def publisher(self, client: str) -> LocalPublisher | None:
        """Return the publisher *client*; None if it has no flow."""
        return self._publishers.get(client)

    def find(self, client: str, topic: str) -> PublisherFlow | None:
        """Return the flow in which *client* publishes to *topic*; None: it must be opened first."""
        publisher = self._publishers.get(client)
        if publisher is None:
            return None
        flows = publisher.flows
        found = flows.get(prefix_of(topic))
        if found is None and topic.startswith("$"):
            found = flows.get(_tree_of(topic))
        return found or flows.get(_widest(topic, publisher))

    def open(self, client: str, topic: str, now: Instant) -> tuple[PublisherFlow, bool]:
        """Open the flow of *client* for *topic*, for which `find` returned None; return it, and whether its
        advertisement is new.
        """
        publisher = self._publishers.get(client)
        if publisher is None:
            publisher = self._publishers[client] = LocalPublisher(client, self.reserve_number(), self._ids.before_first)
        has_many = len(publisher.flows) >= ADVERTISEMENTS_PER_CLIENT_MAX
        text = _widest(topic, publisher) if has_many else prefix_of(topic)
        record = self._by_filter.get(text)
        is_new = record is None
        if record is None:
            adv, topic_filter = self.reserve_number(), TopicFilter.parse(text)
            advertise = Advertise(adv, 0, "", topic_filter, self._cluster, self._lease_s, self._wants_answers)
            record = Advertisement(advertise, self._others if self._wants_answers else 0)
            self._records[adv] = self._by_filter[text] = record
            self._index.add(topic_filter, record)
        record.flows += 1
        self._idle.pop(record.advertise.adv, None)
        flow = publisher.flows[text] = PublisherFlow(publisher, record, now)
        return flow, is_new

    def close(self, record: Advertisement) -> None:
        """End an advertisement without flows."""
        adv, topic_filter = record.advertise.adv, record.advertise.topic_filter
        del self._records[adv], self._by_filter[topic_filter.text]
        self._idle.pop(adv, None)
        self._used.discard(adv)
        self._index.discard(topic_filter, record)

    def end_flows(self, since: Instant) -> None:
        """End the flows without an event since *since*; a client without any gets a new number when it publishes
        again.
        """
        for client, publisher in [*self._publishers.items()]:
            for text, flow in [*publisher.flows.items()]:
                if flow.used_at < since:
                    del publisher.flows[text]
                    record = flow.record
                    record.flows -= 1
                    record.idle_since = max(record.idle_since, flow.used_at)
                    if not record.flows:
                        self._idle[record.advertise.adv] = record
            if not publisher.flows:
                del self._publishers[client]
                self._used.discard(publisher.number)

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

    def expired(
        self, since: Instant, most: int, now: Instant, is_needed: Callable[[TopicFilter], bool]
    ) -> list[Advertisement]:
        """Return the advertisements to end: those without an event since *since*, and the ones that have been idle
        longest if more than *most* are; but none that *is_needed* for another reason.
        """
        expired = []
        excess = len(self._idle) - most
        for adv, record in [*self._idle.items()]:
            if record.idle_since >= since and excess <= 0:
                break
            excess -= 1
            if is_needed(record.advertise.topic_filter):
                record.idle_since = now
                self._idle[adv] = self._idle.pop(adv)  # to be looked at again after the others
            else:
                expired.append(record)
        return expired

    def next_due(self, flows_due: Instant, kept: Duration) -> Instant | None:
        """Return when to look for what has ended: at *flows_due* while there are flows, else when the first idle
        advertisement has had no events for *kept*; None without advertisements.
        """
        if self._publishers:
            return flows_due
        return next((record.idle_since + kept + 1 for record in self._idle.values()), None)


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
    if not topic.startswith("$") or len(publisher.flows) > 2 * ADVERTISEMENTS_PER_CLIENT_MAX:
        return MULTI_LEVEL
    return _tree_of(topic)
