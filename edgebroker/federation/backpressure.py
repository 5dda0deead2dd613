"""Backpressure between gateways: a gateway whose outbox for a neighbour is nearly full asks publishers elsewhere
to stop.

An outbox for a dead neighbour has room for hours, not for days. What does not fit any more is lost, although its
publisher was told that it is safe. So a gateway says in time what the neighbour wants, everybody passes it on, and
whoever has a publisher of such events refuses them, by topic and content; nobody else notices. It holds until the
gateway says that there is room again, and only while that gateway is reached.

Of the gateways next to a dead one each keeps what comes from its own side: an event is refused if it would wait
where there is no room, and not if it would wait at another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgebroker.interest import Interest
from edgebroker.limits import BACKPRESSURE_INTERESTS_MAX
from edgebroker.overlay.link_state import RUN_BITS, LinkStateTable
from edgebroker.overlay.messages import Backpressure
from edgebroker.overlay.topicindex import TopicIndex
from edgebroker.overlay.topology.topology import Topology, TopologyGateway
from edgebroker.predicate import Attributes
from edgebroker.topics import TopicFilter

LinkEnds = tuple[int, int]
"""The numbers of a gateway and of its neighbour."""


class BackpressureTable:
    """Those of a federation, as one gateway knows them."""

    def __init__(self, topology: Topology, gateway: TopologyGateway, reach: LinkStateTable, boot: int) -> None:
        """boot: grows with every run of the gateway."""
        self._topology = topology
        self._gateway = gateway
        self._link_state = reach
        self._last = boot << RUN_BITS
        self._latest: dict[LinkEnds, Backpressure] = {}
        self._index: TopicIndex[tuple[LinkEnds, Interest]] = TopicIndex()
        self._sides: dict[
            LinkEnds, frozenset[str]
        ] = {}  # of crowds that refuse something: who is on the gateway's side
        self._changes: dict[tuple[str, str], bool] = {}

    @property
    def is_active(self) -> bool:
        """Whether anything may have to be refused because of another gateway."""
        return bool(self._sides)

    def active(self) -> list[tuple[str, str]]:
        """At which gateways too much waits, and for which of their neighbours."""
        found = [
            (self._link_state.name_of(one.gateway), self._link_state.name_of(one.neighbour))
            for one in self._latest.values()
            if one.interests
        ]
        return sorted((gateway, neighbour) for gateway, neighbour in found if gateway and neighbour)

    def take_changes(self) -> dict[tuple[str, str], bool]:
        """Where too much has come to wait since this was asked last, and where there is room again (False)."""
        news, self._changes = self._changes, {}
        return news

    def announce(self, neighbour: str, interests: Sequence[Interest] = ()) -> Backpressure:
        """Too much waits for *neighbour*, which has *interests*; or, without any, there is room again. Returns what to
        say of it.
        """
        self._last += 1
        me, number = self._gateway.number, self._link_state.number_of(neighbour)
        said = Backpressure(me, self._last, number, tuple(interests[:BACKPRESSURE_INTERESTS_MAX]))
        self._store(self._gateway.name, neighbour, said)
        return said

    def receive(self, said: Backpressure) -> list[Backpressure]:
        """Somebody passes on what a gateway *said*; return what all others must be told because of it."""
        gateway, neighbour = self._link_state.name_of(said.gateway), self._link_state.name_of(said.neighbour)
        if gateway is None or neighbour not in self._topology.gateway(gateway).neighbours:
            return []
        crowd = said.gateway, said.neighbour
        known = self._latest.get(crowd)
        if known is not None and known.number >= said.number:
            return []
        if gateway == self._gateway.name:  # of an earlier run
            self._last = max(self._last, said.number)
            return [self.announce(neighbour, () if known is None else known.interests)]
        self._store(gateway, neighbour, said)
        for interest in () if known is None else dict.fromkeys(known.interests[:BACKPRESSURE_INTERESTS_MAX]):
            self._index.discard(interest.topic_filter, (crowd, interest))
        for interest in said.interests[:BACKPRESSURE_INTERESTS_MAX]:
            self._index.add(interest.topic_filter, (crowd, interest))
        if said.interests:
            self._sides[crowd] = self._side(gateway, neighbour)
        else:
            self._sides.pop(crowd, None)
        return [said]

    def statements(self) -> tuple[Backpressure, ...]:
        """The last words of everybody, for a peer that may have missed them."""
        return tuple(self._latest.values())

    def blocking_gateway(self, topic: str, attributes: Callable[[frozenset[str]], Attributes]) -> str:
        """The gateway for which too much waits elsewhere, and which wants an event of a client of ours; empty if there
        is none. *attributes*: those of the event, by their names.
        """
        met = [each for each in self._index.overlapping(TopicFilter.parse(topic)) if self._is_on_path(each[0])]
        if not met:
            return ""
        wanted = frozenset(test.attribute for _, interest in met for test in interest.predicate)
        found = attributes(wanted) if wanted else {}
        for (_, neighbour), interest in met:
            if interest.accepts(topic, found):
                return self._link_state.name_of(neighbour) or ""
        return ""

    def _store(self, gateway: str, neighbour: str, said: Backpressure) -> None:
        crowd = said.gateway, said.neighbour
        known = self._latest.get(crowd)
        if bool(said.interests) != bool(known and known.interests):
            self._changes[gateway, neighbour] = bool(said.interests)
        self._latest[crowd] = said

    def _is_on_path(self, crowd: LinkEnds) -> bool:
        """Whether events of ours for its neighbour come past its gateway."""
        name = self._link_state.name_of(crowd[0])
        assert name is not None
        if not self._link_state.is_reachable(name):
            return False
        own = self._gateway
        cluster = self._topology.gateway(name).cluster
        if cluster == own.cluster:
            return own.name in self._sides[crowd]
        mate = own.across[cluster][own.home]
        entry = mate if self._link_state.is_reachable(mate) else self._link_state.nearest(cluster)
        return entry in self._sides[crowd]

    def _side(self, gateway: str, neighbour: str) -> frozenset[str]:
        """The gateways of the cluster from which the way to *neighbour* leads over *gateway*, which is one of them."""
        found = [gateway]
        for each in found:
            around = self._topology.gateway(each).neighbours
            found += [one for one in around if one != neighbour and one not in found]
        return frozenset(found)
