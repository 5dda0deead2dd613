"""The interests of a cluster as one of its gateways knows them: those of its own clients, and those that its neighbours
announced.

They are kept in three places. The search tree has the announced interests, each on the link to its neighbour, and
decides which neighbours get a copy of an event. For each neighbour there are the interests announced to it: all that
are *not* behind itself. An index by topic has all of them, for the cluster's answers to advertisements.

While a neighbour is dead, the gateways behind it are its stand-ins (`dead_peer_relay`): each has a link of its own
then, and is announced the neighbour's interests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import islice
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.filters.announcement import NO_CHANGE, InterestDelta, LinkAnnouncer
from edgebroker.filters.widening import is_covered, octets_of, widened
from edgebroker.interest import Interest
from edgebroker.limits import COVERED_MAX, ROUTES_MAX
from edgebroker.matching.ends import Resolution
from edgebroker.matching.pst import Pst
from edgebroker.overlay.secondary_advertisements import ANYTHING, NOTHING, Answer
from edgebroker.predicate import Attributes, Predicate
from edgebroker.topicindex import TopicIndex
from edgebroker.topics import TopicFilter


class PlainAnnouncer:
    """The announcements of one link on which every interest of a subscription is announced, also covered ones: as the
    published algorithm [SCOT] does.
    """

    def __init__(self) -> None:
        self._counts: dict[Interest, int] = {}
        self._by_topic: TopicIndex[Interest] = TopicIndex()

    def overlaps(self, topic_filter: TopicFilter) -> bool:
        """Return whether an announced interest shares a topic with *topic_filter*."""
        return self._by_topic.overlaps(topic_filter)

    @property
    def interests(self) -> tuple[Interest, ...]:
        """All announced interests, the oldest first."""
        return tuple(self._counts)

    def add(self, interests: Iterable[Interest]) -> InterestDelta:
        """Add a subscription, whose filter is the disjunction of *interests*."""
        new = []
        for one in dict.fromkeys(interests):
            if one not in self._counts:
                self._by_topic.add(one.topic_filter, one)
                new.append(one)
            self._counts[one] = self._counts.get(one, 0) + 1
        return InterestDelta(announce=tuple(new))

    def remove(self, interests: Iterable[Interest]) -> InterestDelta:
        """Remove a subscription that was added with *interests*."""
        gone = []
        for one in dict.fromkeys(interests):
            self._counts[one] -= 1
            if not self._counts[one]:
                del self._counts[one]
                self._by_topic.discard(one.topic_filter, one)
                gone.append(one)
        return InterestDelta(withdraw=tuple(gone))


EPOCH_MODULUS = 1 << 16
EVERYTHING: Final = TopicFilter.parse("#")
CLUSTER: Final = 1
"""The bit of what the whole cluster wants, among those of the links: what is announced to other clusters."""
WIDENED_MAX: Final = 64
"""Widened answers that are remembered: the same interests may be wanted of publishers of a thousand topics."""
SCANNED_MAX: Final = 8
"""Interests of a covering that are tested one by one, 1 us each; the smallest search in a tree takes 5 us."""
TOPICS_MAX: Final = 256
"""Topics whose place in the tree is remembered; the memory is cleared when it is full."""


@dataclass(slots=True)
class InterestUpdate:
    """The consequences of a change of interests."""

    outgoing: dict[str, InterestDelta] = field(default_factory=dict)
    """Neighbour -> the changes to announce to it."""
    topic_filters: dict[TopicFilter, None] = field(default_factory=dict)
    """The topic filters under which the interests of the cluster changed."""
    added: list[Interest] = field(default_factory=list)
    """The interests of the cluster that are new."""
    is_less: bool = False
    """Whether interests of the cluster ended."""
    incoming: dict[str, InterestDelta] = field(default_factory=dict)
    """Neighbour -> its interests that are new or withdrawn."""

    def append(self, other: InterestUpdate) -> None:
        """Merge the later update *other* into this one."""
        for mine, others in ((self.outgoing, other.outgoing), (self.incoming, other.incoming)):
            for peer, change in others.items():
                mine[peer] = _merge(mine[peer], change) if peer in mine else change
        self.topic_filters |= other.topic_filters
        self.added += other.added
        self.is_less |= other.is_less


def _merge(earlier: InterestDelta, later: InterestDelta) -> InterestDelta:
    """Merge two changes; an interest that the second one takes back disappears."""
    announce, withdraw = dict.fromkeys(earlier.announce), dict.fromkeys(earlier.withdraw)
    for same, opposite, new in ((announce, withdraw, later.announce), (withdraw, announce, later.withdraw)):
        for interest in new:
            if interest in opposite:
                del opposite[interest]
            else:
                same[interest] = None
    return InterestDelta(tuple(announce), tuple(withdraw))


class ClusterInterests:
    """The interests of one cluster at one of its gateways."""

    def __init__(self, behind: Mapping[str, Sequence[str]], is_precise: bool, is_covering: bool) -> None:
        """behind: neighbour -> the gateways of the cluster that it leads to.

        is_precise: answer advertisements with covering interests, not only with topics. is_covering: announce no
        interest that another one covers.
        """
        neighbours = tuple(behind)
        peers = (*neighbours, *(far for each in behind.values() for far in each))
        self._links = {peer: 1 << link for link, peer in enumerate(peers, 1)}
        self._numbers = {peer: link for link, peer in enumerate(peers, 1)}
        self._neighbour_of = {far: peer for peer, each in behind.items() for far in (peer, *each)}
        self._side_links = {peer: sum(self._links[far] for far in (peer, *each)) for peer, each in behind.items()}
        self._neighbour_links = self.everywhere = sum(self._links[peer] for peer in neighbours)
        """The links to all neighbours and their stand-ins, one bit each."""
        self._neighbours = {self._links[peer]: peer for peer in neighbours}
        self.tree = Pst()
        self._own: dict[int, tuple[Interest, ...]] = {}  # the subscriptions of local clients
        self._received: dict[str, dict[Interest, int]] = {peer: {} for peer in peers}
        covering = sum(self._links[peer] for peer in neighbours) if is_covering else 0
        self._covering = covering | (CLUSTER if is_precise else 0)
        self._announcer = LinkAnnouncer(CLUSTER if is_precise else 0)
        plain = [link for link in (CLUSTER, *map(self._links.__getitem__, neighbours)) if not self._covering & link]
        self._plain = {link: PlainAnnouncer() for link in plain}
        """By link: how the links are announced that are not in *announcer*."""
        self._is_precise = is_precise
        self._widened: dict[tuple[tuple[Interest, ...], int], Answer] = {}  # interests and bytes -> what `wants` made
        self._resolutions: dict[str, Resolution] = {}
        self._last_number = 0
        self._unknown = 0  # the links to neighbours whose interests are not known yet

    def await_neighbours(self) -> None:
        """Assume after a restart that neighbours may want anything, until `mark_known`."""
        self._unknown = self.everywhere

    def __contains__(self, gateway: str) -> bool:
        """Return whether *gateway* is another gateway of the cluster."""
        return gateway in self._neighbour_of

    def is_known(self, peer: str) -> bool:
        """Return whether all interests of *peer* are known."""
        return not self._unknown & self._links[peer]

    def add_stand_in(self, peer: str) -> InterestUpdate:
        """Add *peer* as a stand-in; until `mark_known` it may want anything."""
        if self.everywhere & self._links[peer]:
            return InterestUpdate()
        self.everywhere |= self._links[peer]
        self._unknown |= self._links[peer]
        return InterestUpdate()

    def remove_stand_in(self, peer: str) -> InterestUpdate:
        """Remove a stand-in, because the neighbour itself has announced the interests behind it."""
        changed = self.mark_known(peer)
        changed.append(self.withdrawn(peer, self.announced_by(peer)))
        self.everywhere &= ~self._links[peer]
        return changed

    def mark_known(self, peer: str) -> InterestUpdate:
        """Record that all interests of *peer* are known, or are no longer waited for."""
        if not self._unknown & self._links[peer]:
            return InterestUpdate()
        self._unknown &= ~self._links[peer]
        return InterestUpdate({}, {EVERYTHING: None} if self._neighbour_links & self._links[peer] else {})

    @property
    def epoch(self) -> int:
        """The number of changes of the tree, modulo 2**16."""
        return self.tree.epoch % EPOCH_MODULUS

    def subscribed(self, number: int, topic_filter: TopicFilter, predicates: Sequence[Predicate]) -> InterestUpdate:
        """Add a local client's subscription. Raises ValueError if the number is in use."""
        if number in self._own:
            raise ValueError(f"subscription {number} is announced already")
        self._own[number] = interests = tuple(Interest(topic_filter, predicate) for predicate in predicates)
        return self._add(None, interests)

    def unsubscribed(self, number: int) -> InterestUpdate:
        """Remove a local client's subscription; an unknown number is ignored."""
        return self._remove(None, self._own.pop(number)) if number in self._own else InterestUpdate()

    def own(self) -> Iterator[tuple[int, TopicFilter, tuple[Predicate, ...]]]:
        """Iterate over the subscriptions of local clients, as they were given to `subscribed`."""
        for number, interests in self._own.items():
            if interests:
                yield number, interests[0].topic_filter, tuple(each.predicate for each in interests)

    def announced(self, peer: str, interests: Iterable[Interest]) -> InterestUpdate:
        """Add *interests* that the neighbour *peer* announced; known ones are ignored."""
        received = self._received[peer]
        new = tuple(interest for interest in dict.fromkeys(interests) if interest not in received)
        for interest in new:
            self._last_number += 1
            received[interest] = self._last_number
            self.tree.insert(self._last_number, interest.topic_filter, (interest.predicate,), self._numbers[peer])
        return self._with_incoming(peer, self._add(peer, new), InterestDelta(announce=new))

    def withdrawn(self, peer: str, interests: Iterable[Interest]) -> InterestUpdate:
        """Remove *interests* that the neighbour *peer* withdrew; unknown ones are ignored."""
        received = self._received[peer]
        gone = tuple(interest for interest in dict.fromkeys(interests) if interest in received)
        for interest in gone:
            self.tree.remove(received.pop(interest))
        return self._with_incoming(peer, self._remove(peer, gone), InterestDelta(withdraw=gone))

    def announced_by(self, peer: str) -> tuple[Interest, ...]:
        """Return the interests that *peer* announced."""
        return tuple(self._received[peer])

    def has_announced(self, peer: str, interest: Interest) -> bool:
        """Return whether *peer* announced *interest*."""
        return interest in self._received[peer]

    def announced_to(self, peer: str) -> tuple[Interest, ...]:
        """Return the interests announced to *peer*, or to be announced when its link is up again."""
        link = self._links[self._neighbour_of[peer]]
        return self._plain[link].interests if link in self._plain else self._announcer.interests(link)

    def is_wanted(self, topic_filter: TopicFilter) -> bool:
        """Return whether the cluster may want anything under *topic_filter*."""
        if self._unknown & self._neighbour_links:
            return True
        if CLUSTER in self._plain:
            return self._plain[CLUSTER].overlaps(topic_filter)
        return next(self._announcer.overlapping(topic_filter, CLUSTER), None) is not None

    def wants(self, topic_filter: TopicFilter, octets: int, may_widen: bool) -> Answer:
        """Return what the cluster wants under *topic_filter*, as interests in at most *octets* bytes.

        may_widen: False, to save time: ANYTHING if the interests neither fit as they are nor were widened before. It is
        ANYTHING too while the interests of a neighbour are unknown. For the gateways behind a dead neighbour these are
        the last ones it announced, until its stand-ins announce more.
        """
        if self._unknown & self._neighbour_links:
            return ANYTHING
        if not self._is_precise:
            return Answer(None, True) if self._plain[CLUSTER].overlaps(topic_filter) else NOTHING
        found = tuple(islice(self._announcer.overlapping(topic_filter, CLUSTER), COVERED_MAX + 1))
        is_small = len(found) <= COVERED_MAX
        if is_small and octets_of(found) <= octets:
            return Answer(found, True)
        key = (found, octets)
        answer = self._widened.get(key)
        if answer is None and may_widen:
            if not is_small:  # their topics alone, if these are few
                every = self._announcer.overlapping(topic_filter, CLUSTER)
                found = tuple(dict.fromkeys(Interest(one.topic_filter, ()) for one in every))
            summary = widened(found, octets) if len(found) <= COVERED_MAX else None
            answer = ANYTHING if summary is None else Answer(*summary)
            if is_small:
                if len(self._widened) >= WIDENED_MAX:
                    self._widened.clear()
                self._widened[key] = answer
        return answer or ANYTHING

    def extended(self, answer: Answer, added: Sequence[Interest], octets: int) -> Answer:
        """Return *answer*, whose covering is not None, with the interests *added*; itself if it covers them.

        If they do not fit in *octets* bytes, all are widened to three quarters of that, so that the next ones fit.
        """
        known = answer.covering or ()
        new = tuple(one for one in added if not is_covered(one, known))
        if not new:
            return answer
        if not self._is_precise:
            return Answer(None, True)
        if octets_of((*known, *new)) <= octets:
            return Answer((*known, *new), answer.is_exact)
        summary = widened((*known, *new), octets * 3 // 4)
        return ANYTHING if summary is None else Answer(summary.interests, answer.is_exact and summary.is_exact)

    def resolution(self, topic: str) -> Resolution:
        """Return the cached resolution of *topic* in the tree."""
        found = self._resolutions.get(topic)
        if found is None or found.epoch != self.tree.epoch:
            if len(self._resolutions) >= ROUTES_MAX:
                self._resolutions.clear()
            found = self._resolutions[topic] = self.tree.resolve(topic)
        return found

    def targets(self, resolution: Resolution, attributes: Attributes, arrival: str | None) -> list[str]:
        """Return the neighbours and stand-ins behind which a client wants an event.

        arrival: the gateway that sent it; if that is in the cluster the event does not go back to its side.
        """
        mask = self.everywhere & ~self._side_links.get(self._neighbour_of.get(arrival or "", ""), 0)
        if not mask:
            return []
        yes = self.tree.decide(resolution, attributes, mask).yes | (self._unknown & mask)
        return [peer for peer, link in self._links.items() if yes & link]

    def _with_incoming(self, peer: str, changed: InterestUpdate, change: InterestDelta) -> InterestUpdate:
        """Add *change* of the neighbour *peer* to *changed*. Interests of a stand-in are left out: it announces them
        again.
        """
        if change and self._neighbour_links & self._links[peer]:
            changed.incoming[peer] = change
        return changed

    def _add(self, source: str | None, interests: tuple[Interest, ...]) -> InterestUpdate:
        links = self._links_but(source)
        deltas = {link: self._plain[link].add(interests) for link in self._plain if link & links}
        if links & self._covering:
            deltas |= self._announcer.add(interests, links & self._covering)
        return self._update(deltas)

    def _remove(self, source: str | None, interests: tuple[Interest, ...]) -> InterestUpdate:
        links = self._links_but(source)
        deltas = {link: self._plain[link].remove(interests) for link in self._plain if link & links}
        if links & self._covering:
            deltas |= self._announcer.remove(interests, links & self._covering)
        return self._update(deltas)

    def _links_but(self, source: str | None) -> int:
        """Return the links to which the interests of *source* are announced; None: of local clients."""
        every = CLUSTER | self._neighbour_links
        return every if source is None else every & ~self._links[self._neighbour_of[source]]

    def _update(self, deltas: dict[int, InterestDelta]) -> InterestUpdate:
        cluster = deltas.pop(CLUSTER, NO_CHANGE)
        topic_filters = dict.fromkeys(interest.topic_filter for interest in (*cluster.announce, *cluster.withdraw))
        return InterestUpdate(
            {peer: deltas[link] for link, peer in self._neighbours.items() if deltas.get(link)},
            topic_filters,
            [*cluster.announce],
            bool(cluster.withdraw),
        )


class InterestScan:
    """The covering of a cluster, as one of its gateways answered an advertisement: a few interests, tested one by
    one.
    """

    def __init__(self, interests: tuple[Interest, ...]) -> None:
        self.interests = interests
        self.wanted = frozenset(test.attribute for one in interests for test in one.predicate)

    def accepts(self, topic: str, attributes: Attributes) -> bool:
        """Return whether any of the interests wants an event."""
        return any(one.accepts(topic, attributes) for one in self.interests)


class InterestTree(InterestScan):
    """A covering of many interests, up to 200 in 4 KiB, in a search tree: every event whose content decides where it
    goes is compared with them.
    """

    def __init__(self, interests: tuple[Interest, ...]) -> None:
        super().__init__(interests)
        self._tree = Pst()  # filled before the first search: a covering may be replaced before there is an event
        self._resolutions: dict[str, Resolution] = {}

    def accepts(self, topic: str, attributes: Attributes) -> bool:
        """As in the base class; the first event for a topic takes longer, because the topic is resolved."""
        resolution = self._resolutions.get(topic)
        if resolution is None:
            if not len(self._tree):
                for number, one in enumerate(self.interests):
                    self._tree.insert(number, one.topic_filter, (one.predicate,))
            if len(self._resolutions) >= TOPICS_MAX:
                self._resolutions.clear()
            resolution = self._resolutions[topic] = self._tree.resolve(topic)
        return bool(self._tree.decide(resolution, attributes, 1).yes)


@lru_cache(maxsize=256)
def covering_search(interests: tuple[Interest, ...]) -> InterestScan:
    """Return the search in *interests*. Equal ones share it: publishers with the same topics get the same answers."""
    return (InterestScan if len(interests) <= SCANNED_MAX else InterestTree)(interests)
