"""The interests of a cluster as one of its gateways knows them: those of its own clients, and those that its
neighbours announced.

They are in three places. The search tree has what neighbours announced, each on the link to its neighbour: it
decides which neighbours get a copy of an event. Each neighbour has been announced what is *not* behind itself. And
by topic all of them together answer what the cluster wants of a publisher elsewhere.

While a neighbour is dead those behind it stand in for it (`dead_peer_relay`): each has a link of its own then, and
is announced what the neighbour would be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.filters.announcement import CoveringAnnouncer, InterestDelta
from edgebroker.interest import Interest
from edgebroker.limits import COVERING_MAX, ROUTES_MAX
from edgebroker.matching.ends import Resolution
from edgebroker.matching.pst import Pst
from edgebroker.overlay.secondary_advertisements import Covering
from edgebroker.overlay.topicindex import TopicIndex
from edgebroker.predicate import Attributes, Predicate
from edgebroker.topics import TopicFilter


class PlainAnnouncer:
    """As `filters.announcement.Announced`, but nothing is hidden: the interests that some subscription has."""

    def __init__(self) -> None:
        self._holders: dict[Interest, int] = {}
        self._subscriptions: dict[int, tuple[Interest, ...]] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._subscriptions

    @property
    def interests(self) -> tuple[Interest, ...]:
        """All that is announced, the oldest first."""
        return tuple(self._holders)

    def items(self) -> Iterator[tuple[int, tuple[Interest, ...]]]:
        """The subscriptions, the oldest first, with their interests."""
        yield from self._subscriptions.items()

    def add(self, number: int, topic_filter: TopicFilter, predicates: Sequence[Predicate]) -> InterestDelta:
        """Take in subscription *number*, whose filter is any of *predicates*. Raises ValueError: it is taken."""
        if number in self._subscriptions:
            raise ValueError(f"subscription {number} is announced already")
        interests = tuple(dict.fromkeys(Interest(topic_filter, predicate) for predicate in predicates))
        self._subscriptions[number] = interests
        new = tuple(one for one in interests if one not in self._holders)
        for one in interests:
            self._holders[one] = self._holders.get(one, 0) + 1
        return InterestDelta(announce=new)

    def remove(self, number: int) -> InterestDelta:
        """Let subscription *number* go. Raises KeyError: there is none."""
        gone = []
        for one in self._subscriptions.pop(number):
            self._holders[one] -= 1
            if not self._holders[one]:
                del self._holders[one]
                gone.append(one)
        return InterestDelta(withdraw=tuple(gone))


EPOCH_MODULUS = 1 << 16
EVERYTHING: Final = TopicFilter.parse("#")


@dataclass(slots=True)
class InterestUpdate:
    """What a change of interests leads to."""

    outgoing: dict[str, InterestDelta] = field(default_factory=dict)
    """By neighbour, what it must be told."""
    topic_filters: dict[TopicFilter, None] = field(default_factory=dict)
    """Under these the cluster wants more or less than before."""
    incoming: dict[str, InterestDelta] = field(default_factory=dict)
    """By neighbour, what it announced that was not known, and withdrew that was."""

    def append(self, other: InterestUpdate) -> None:
        """Take in what comes after."""
        for mine, others in ((self.outgoing, other.outgoing), (self.incoming, other.incoming)):
            for peer, change in others.items():
                mine[peer] = _after(mine[peer], change) if peer in mine else change
        self.topic_filters |= other.topic_filters


def _after(first: InterestDelta, then: InterestDelta) -> InterestDelta:
    """Both changes as one: what the second takes back of the first is never said."""
    announce, withdraw = dict.fromkeys(first.announce), dict.fromkeys(first.withdraw)
    for said, opposite, new in ((announce, withdraw, then.announce), (withdraw, announce, then.withdraw)):
        for interest in new:
            if interest in opposite:
                del opposite[interest]
            else:
                said[interest] = None
    return InterestDelta(tuple(announce), tuple(withdraw))


class ClusterInterests:
    """Those of one cluster at one of its gateways."""

    def __init__(self, behind: Mapping[str, Sequence[str]], is_precise: bool, is_covering: bool) -> None:
        """behind: neighbour -> the gateways of the cluster that it leads to.

        is_precise: know what covers the cluster's interests, not only their topics.
        is_covering: announce no interest that another one covers.
        """
        neighbours = tuple(behind)
        peers = (*neighbours, *(far for each in behind.values() for far in each))
        self._links = {peer: 1 << link for link, peer in enumerate(peers, 1)}
        self._numbers = {peer: link for link, peer in enumerate(peers, 1)}
        self._towards = {far: peer for peer, each in behind.items() for far in (peer, *each)}
        self._beyond = {peer: sum(self._links[far] for far in (peer, *each)) for peer, each in behind.items()}
        self._beside = self.everywhere = sum(self._links[peer] for peer in neighbours)
        """The links to all neighbours, one bit each, and to those who stand in for some."""
        self.tree = Pst()
        self._received: dict[str, dict[Interest, int]] = {peer: {} for peer in peers}
        self._announced: dict[str, CoveringAnnouncer | PlainAnnouncer] = {
            peer: CoveringAnnouncer() if is_covering else PlainAnnouncer() for peer in neighbours
        }
        self._cluster: CoveringAnnouncer | PlainAnnouncer = CoveringAnnouncer() if is_precise else PlainAnnouncer()
        self._is_precise = is_precise
        self._by_topic: TopicIndex[Interest] = TopicIndex()
        self._resolutions: dict[str, Resolution] = {}
        self._last_number = 0
        self._unknown = 0  # the links to neighbours whose interests are not known yet

    def await_neighbours(self) -> None:
        """A restarted gateway: until they are `heard`, neighbours may want anything."""
        self._unknown = self.everywhere

    def __contains__(self, gateway: str) -> bool:
        """Whether *gateway* is another one of the cluster."""
        return gateway in self._towards

    def is_known(self, peer: str) -> bool:
        """Whether all interests of *peer* are known, as far as they were told."""
        return not self._unknown & self._links[peer]

    def add_stand_in(self, peer: str) -> InterestUpdate:
        """*peer* stands in for the neighbour before it: until it is `heard` it may want anything."""
        if self.everywhere & self._links[peer]:
            return InterestUpdate()
        self.everywhere |= self._links[peer]
        self._unknown |= self._links[peer]
        return InterestUpdate()

    def remove_stand_in(self, peer: str) -> InterestUpdate:
        """It does not any more: the neighbour has announced what is behind it."""
        changed = self.mark_known(peer)
        changed.append(self.withdrawn(peer, self.announced_by(peer)))
        self.everywhere &= ~self._links[peer]
        return changed

    def mark_known(self, peer: str) -> InterestUpdate:
        """All interests of *peer* are known, or are waited for no longer."""
        if not self._unknown & self._links[peer]:
            return InterestUpdate()
        self._unknown &= ~self._links[peer]
        return InterestUpdate({}, {EVERYTHING: None} if self._beside & self._links[peer] else {})

    @property
    def epoch(self) -> int:
        """How often the tree has changed, in 16 bits."""
        return self.tree.epoch % EPOCH_MODULUS

    def subscribed(self, number: int, topic_filter: TopicFilter, predicates: Sequence[Predicate]) -> InterestUpdate:
        """A client of ours subscribed. Raises ValueError: the number is taken."""
        return self._add(None, 2 * number, topic_filter, predicates)

    def unsubscribed(self, number: int) -> InterestUpdate:
        """Its subscription ended. One that was not told before is not missed."""
        return self._remove(None, 2 * number) if 2 * number in self._cluster else InterestUpdate()

    def own(self) -> Iterator[tuple[int, TopicFilter, tuple[Predicate, ...]]]:
        """What our clients are subscribed to, as it was given to `subscribed`."""
        for key, interests in self._cluster.items():
            if key % 2 == 0 and interests:
                yield key // 2, interests[0].topic_filter, tuple(each.predicate for each in interests)

    def announced(self, peer: str, interests: Iterable[Interest]) -> InterestUpdate:
        """The neighbour *peer* says that somebody behind it has *interests*; those it said before are not looked at."""
        changed = InterestUpdate()
        held = self._received[peer]
        new = [interest for interest in dict.fromkeys(interests) if interest not in held]
        for interest in new:
            self._last_number += 1
            number = held[interest] = self._last_number
            self.tree.insert(number, interest.topic_filter, (interest.predicate,), self._numbers[peer])
            changed.append(self._add(peer, 2 * number + 1, interest.topic_filter, (interest.predicate,)))
        return self._learned(peer, changed, InterestDelta(announce=tuple(new)))

    def withdrawn(self, peer: str, interests: Iterable[Interest]) -> InterestUpdate:
        """Nobody behind *peer* has them any more; those it never announced are not looked at."""
        changed = InterestUpdate()
        held = self._received[peer]
        gone = [interest for interest in dict.fromkeys(interests) if interest in held]
        for interest in gone:
            number = held.pop(interest)
            self.tree.remove(number)
            changed.append(self._remove(peer, 2 * number + 1))
        return self._learned(peer, changed, InterestDelta(withdraw=tuple(gone)))

    def announced_by(self, peer: str) -> tuple[Interest, ...]:
        """What *peer* announced."""
        return tuple(self._received[peer])

    def has_announced(self, peer: str, interest: Interest) -> bool:
        """Whether *peer* announced it."""
        return interest in self._received[peer]

    def announced_to(self, peer: str) -> tuple[Interest, ...]:
        """What *peer* was announced, or must be when the link to it is up again."""
        return self._announced[self._towards[peer]].interests

    def wants(self, topic_filter: TopicFilter) -> Covering:
        """What covers all that the cluster wants under *topic_filter*.

        Of those behind a dead neighbour that is what it last said, until those say more who stand in for it.
        """
        if self._unknown & self._beside:
            return None
        overlapping = self._by_topic.overlapping(topic_filter)
        if not self._is_precise:
            return () if next(overlapping, None) is None else None
        found: list[Interest] = []
        for interest in overlapping:
            if len(found) == COVERING_MAX:
                return None
            found.append(interest)
        return tuple(found)

    def resolution(self, topic: str) -> Resolution:
        """What *topic* means in the tree."""
        found = self._resolutions.get(topic)
        if found is None or found.epoch != self.tree.epoch:
            if len(self._resolutions) >= ROUTES_MAX:
                self._resolutions.clear()
            found = self._resolutions[topic] = self.tree.resolve(topic)
        return found

    def targets(self, resolution: Resolution, attributes: Attributes, arrival: str | None) -> list[str]:
        """The neighbours, and those who stand in for some, behind which somebody wants an event.

        arrival: the gateway that it came from; if that is one of the cluster the event does not turn back.
        """
        mask = self.everywhere & ~self._beyond.get(self._towards.get(arrival or "", ""), 0)
        if not mask:
            return []
        yes = self.tree.decide(resolution, attributes, mask).yes | (self._unknown & mask)
        return [peer for peer, link in self._links.items() if yes & link]

    def _learned(self, peer: str, changed: InterestUpdate, change: InterestDelta) -> InterestUpdate:
        if change and peer in self._announced:  # what those say who stand in for it, they say again
            changed.incoming[peer] = change
        return changed

    def _add(
        self, source: str | None, key: int, topic_filter: TopicFilter, predicates: Sequence[Predicate]
    ) -> InterestUpdate:
        source = None if source is None else self._towards[source]
        told = {
            peer: announced.add(key, topic_filter, predicates)
            for peer, announced in self._announced.items()
            if peer != source
        }
        return self._changed(told, self._cluster.add(key, topic_filter, predicates))

    def _remove(self, source: str | None, key: int) -> InterestUpdate:
        source = None if source is None else self._towards[source]
        told = {peer: announced.remove(key) for peer, announced in self._announced.items() if peer != source}
        return self._changed(told, self._cluster.remove(key))

    def _changed(self, told: dict[str, InterestDelta], cluster: InterestDelta) -> InterestUpdate:
        for interest in cluster.announce:
            self._by_topic.add(interest.topic_filter, interest)
        for interest in cluster.withdraw:
            self._by_topic.discard(interest.topic_filter, interest)
        topic_filters = dict.fromkeys(interest.topic_filter for interest in (*cluster.announce, *cluster.withdraw))
        return InterestUpdate({peer: change for peer, change in told.items() if change}, topic_filters)
