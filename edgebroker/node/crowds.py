"""Where too much waits: what gateways say of outboxes that are nearly full, and what is to be refused because of it.

An outbox for a dead neighbour has room for hours, not for days. What does not fit any more is lost, although its
publisher was told that it is safe. So a gateway says in time what the neighbour wants, everybody passes it on, and
whoever has a publisher of such events refuses them, by topic and content; nobody else notices. It holds until the
gateway says that there is room again, and only while that gateway is reached.

Of the gateways next to a dead one each keeps what comes from its own side: an event is refused if it would wait where
there is no room, and not if it would wait at another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgebroker.event import Attributes
from edgebroker.interest import Interest
from edgebroker.limits import CROWDED_INTERESTS_MAX
from edgebroker.overlay.messages import Crowded
from edgebroker.overlay.reach import RUN_BITS, Reach
from edgebroker.overlay.topicindex import TopicIndex
from edgebroker.overlay.topology import Gateway, Topology
from edgebroker.topics import TopicFilter

Crowd = tuple[int, int]
"""The numbers of a gateway and of its neighbour."""


class Crowds:
    """Those of a federation, as one gateway knows them."""

    def __init__(self, topology: Topology, gateway: Gateway, reach: Reach, boot: int) -> None:
        """boot: grows with every run of the gateway."""
        self._topology = topology
        self._gateway = gateway
        self._reach = reach
        self._last = boot << RUN_BITS
        self._said: dict[Crowd, Crowded] = {}
        self._index: TopicIndex[tuple[Crowd, Interest]] = TopicIndex()
        self._sides: dict[Crowd, frozenset[str]] = {}  # of crowds that refuse something: who is on the gateway's side
        self._news: dict[tuple[str, str], bool] = {}

    @property
    def is_any(self) -> bool:
        """Whether anything may have to be refused because of another gateway."""
        return bool(self._sides)

    def standing(self) -> list[tuple[str, str]]:
        """At which gateways too much waits, and for which of their neighbours."""
        found = [
            (self._reach.name_of(one.gateway), self._reach.name_of(one.neighbour))
            for one in self._said.values()
            if one.interests
        ]
        return sorted((gateway, neighbour) for gateway, neighbour in found if gateway and neighbour)

    def take_news(self) -> dict[tuple[str, str], bool]:
        """Where too much has come to wait since this was asked last, and where there is room again (False)."""
        news, self._news = self._news, {}
        return news

    def tell(self, neighbour: str, interests: Sequence[Interest] = ()) -> Crowded:
        """Too much waits for *neighbour*, which has *interests*; or, without any, there is room again. Returns what to
        say of it.
        """
        self._last += 1
        me, number = self._gateway.number, self._reach.number_of(neighbour)
        said = Crowded(me, self._last, number, tuple(interests[:CROWDED_INTERESTS_MAX]))
        self._note(self._gateway.name, neighbour, said)
        return said

    def learn(self, said: Crowded) -> list[Crowded]:
        """Somebody passes on what a gateway *said*; return what all others must be told because of it."""
        gateway, neighbour = self._reach.name_of(said.gateway), self._reach.name_of(said.neighbour)
        if gateway is None or neighbour not in self._topology.gateway(gateway).neighbours:
            return []
        crowd = said.gateway, said.neighbour
        known = self._said.get(crowd)
        if known is not None and known.number >= said.number:
            return []
        if gateway == self._gateway.name:  # of an earlier run
            self._last = max(self._last, said.number)
            return [self.tell(neighbour, () if known is None else known.interests)]
        self._note(gateway, neighbour, said)
        for interest in () if known is None else dict.fromkeys(known.interests[:CROWDED_INTERESTS_MAX]):
            self._index.discard(interest.topic_filter, (crowd, interest))
        for interest in said.interests[:CROWDED_INTERESTS_MAX]:
            self._index.add(interest.topic_filter, (crowd, interest))
        if said.interests:
            self._sides[crowd] = self._side(gateway, neighbour)
        else:
            self._sides.pop(crowd, None)
        return [said]

    def statements(self) -> tuple[Crowded, ...]:
        """The last words of everybody, for a peer that may have missed them."""
        return tuple(self._said.values())

    def refusing(self, topic: str, attributes: Callable[[frozenset[str]], Attributes]) -> str:
        """The gateway for which too much waits elsewhere, and which wants an event of a client of ours; empty if there
        is none. *attributes*: those of the event, by their names.
        """
        met = [each for each in self._index.overlapping(TopicFilter.parse(topic)) if self._is_on_our_way(each[0])]
        if not met:
            return ""
        wanted = frozenset(test.attribute for _, interest in met for test in interest.predicate)
        found = attributes(wanted) if wanted else {}
        for (_, neighbour), interest in met:
            if interest.accepts(topic, found):
                return self._reach.name_of(neighbour) or ""
        return ""

    def _note(self, gateway: str, neighbour: str, said: Crowded) -> None:
        crowd = said.gateway, said.neighbour
        known = self._said.get(crowd)
        if bool(said.interests) != bool(known and known.interests):
            self._news[gateway, neighbour] = bool(said.interests)
        self._said[crowd] = said

    def _is_on_our_way(self, crowd: Crowd) -> bool:
        """Whether events of ours for its neighbour come past its gateway."""
        name = self._reach.name_of(crowd[0])
        assert name is not None
        if not self._reach.is_reached(name):
            return False
        own = self._gateway
        cluster = self._topology.gateway(name).cluster
        if cluster == own.cluster:
            return own.name in self._sides[crowd]
        mate = own.across[cluster][own.home]
        entry = mate if self._reach.is_reached(mate) else self._reach.nearest(cluster)
        return entry in self._sides[crowd]

    def _side(self, gateway: str, neighbour: str) -> frozenset[str]:
        """The gateways of the cluster from which the way to *neighbour* leads over *gateway*, which is one of them."""
        found = [gateway]
        for each in found:
            around = self._topology.gateway(each).neighbours
            found += [one for one in around if one != neighbour and one not in found]
        return frozenset(found)
