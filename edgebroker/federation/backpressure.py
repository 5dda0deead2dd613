"""Backpressure between gateways: a gateway whose outbox for a neighbour is nearly full asks publishers elsewhere to
stop.

An outbox for a dead neighbour has room for hours, not for days. When it is full, events are lost that were already
acknowledged to their publishers. So the gateway floods the neighbour's interests in time, and every gateway refuses
events of its own clients that match them by topic and content; other events are not affected. Backpressure lasts until
the gateway floods that it has room again, and applies only while that gateway is reachable.

Each gateway next to a dead one queues the events from its own side of the cluster. So an event is refused only if it
would be queued at a gateway without room.

An outbox for a gateway of another cluster holds the events of its own clients, and those that go around a congested or
failed iLink. For these its gateway floods that the iLink is full, and gateways refuse an event that they would send to
that cluster on a detour.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from edgebroker.interest import Interest
from edgebroker.limits import BACKPRESSURE_INTERESTS_MAX
from edgebroker.overlay.link_state import RUN_BITS, LinkStateTable
from edgebroker.overlay.messages import Backpressure
from edgebroker.overlay.topology.topology import Topology, TopologyGateway
from edgebroker.predicate import Attributes
from edgebroker.topicindex import TopicIndex
from edgebroker.topics import TopicFilter

LinkEnds = tuple[int, int]
"""The numbers of a gateway and of its neighbour, or its peer in another cluster."""
ANYTHING: Final = (Interest(TopicFilter.parse("#"), ()),)


class BackpressureTable:
    """The backpressure in a federation, as one gateway knows it."""

    def __init__(self, topology: Topology, gateway: TopologyGateway, link_state: LinkStateTable, boot: int) -> None:
        """boot: the number of the gateway's run, which grows with every start."""
        self._topology = topology
        self._gateway = gateway
        self._link_state = link_state
        self._last = boot << RUN_BITS
        self._latest: dict[LinkEnds, Backpressure] = {}
        self._index: TopicIndex[tuple[LinkEnds, Interest]] = TopicIndex()
        self._sides: dict[LinkEnds, frozenset[str]] = {}  # active backpressure -> the gateways on the sender's side
        self._full_uplinks: dict[LinkEnds, int] = {}  # active backpressure of an iLink -> the cluster behind it
        self._changes: dict[tuple[str, str], bool] = {}

    @property
    def is_active(self) -> bool:
        """Whether an event may have to be refused because of another gateway."""
        return bool(self._sides or self._full_uplinks)

    def active(self) -> list[tuple[str, str]]:
        """Return the active backpressure as (gateway, neighbour) pairs."""
        found = [
            (self._link_state.name_of(one.gateway), self._link_state.name_of(one.neighbour))
            for one in self._latest.values()
            if one.interests
        ]
        return sorted((gateway, neighbour) for gateway, neighbour in found if gateway and neighbour)

    def take_changes(self) -> dict[tuple[str, str], bool]:
        """Return the pairs whose backpressure began (True) or ended (False) since the last call."""
        changes, self._changes = self._changes, {}
        return changes

    def announce(self, neighbour: str, interests: Sequence[Interest] = ()) -> Backpressure:
        """Begin backpressure for *neighbour*, which has *interests*; without interests, end it. Returns the message to
        flood.
        """
        self._last += 1
        number = self._link_state.number_of(neighbour)
        update = Backpressure(self._gateway.number, self._last, number, _summary(interests))
        self._store(self._gateway.name, neighbour, update)
        return update

    def receive(self, update: Backpressure) -> list[Backpressure]:
        """Handle a flooded *update*. Returns the messages to flood in turn; none if it was known."""
        gateway, neighbour = self._link_state.name_of(update.gateway), self._link_state.name_of(update.neighbour)
        if gateway is None or neighbour is None or neighbour not in self._topology.gateway(gateway).peers():
            return []
        ends = update.gateway, update.neighbour
        known = self._latest.get(ends)
        if known is not None and known.number >= update.number:
            return []
        if gateway == self._gateway.name:  # sent by an earlier run of this gateway
            self._last = max(self._last, update.number)
            return [self.announce(neighbour, () if known is None else known.interests)]
        self._store(gateway, neighbour, update)
        if neighbour not in self._topology.gateway(gateway).neighbours:
            self._full_uplinks.pop(ends, None)
            if update.interests:
                self._full_uplinks[ends] = self._topology.gateway(neighbour).cluster
            return [update]
        for interest in () if known is None else dict.fromkeys(known.interests[:BACKPRESSURE_INTERESTS_MAX]):
            self._index.discard(interest.topic_filter, (ends, interest))
        for interest in update.interests[:BACKPRESSURE_INTERESTS_MAX]:
            self._index.add(interest.topic_filter, (ends, interest))
        if update.interests:
            self._sides[ends] = self._side(gateway, neighbour)
        else:
            self._sides.pop(ends, None)
        return [update]

    def statements(self) -> tuple[Backpressure, ...]:
        """Return the latest message of every gateway, for a peer that may have missed some."""
        return tuple(self._latest.values())

    def blocking_gateway(self, topic: str, attributes: Callable[[frozenset[str]], Attributes]) -> str:
        """Return the neighbour whose backpressure blocks an event of a local client; empty if there is none.

        attributes: returns those attributes of the event that it is given the names of.
        """
        matching = [each for each in self._index.overlapping(TopicFilter.parse(topic)) if self._is_on_path(each[0])]
        if not matching:
            return ""
        wanted = frozenset(test.attribute for _, interest in matching for test in interest.predicate)
        values = attributes(wanted) if wanted else {}
        for (_, neighbour), interest in matching:
            if interest.accepts(topic, values):
                return self._link_state.name_of(neighbour) or ""
        return ""

    @property
    def has_full_uplinks(self) -> bool:
        """Whether an iLink of another gateway is full."""
        return bool(self._full_uplinks)

    def full_uplink(self, clusters: int) -> str:
        """Return a peer in one of *clusters* for which too much waits at another gateway; empty if there is none."""
        for (gateway, peer), cluster in self._full_uplinks.items():
            name = self._link_state.name_of(gateway)
            if clusters >> cluster & 1 and name is not None and self._link_state.is_reachable(name):
                return self._link_state.name_of(peer) or ""
        return ""

    def _store(self, gateway: str, neighbour: str, update: Backpressure) -> None:
        ends = update.gateway, update.neighbour
        known = self._latest.get(ends)
        if bool(update.interests) != bool(known and known.interests):
            self._changes[gateway, neighbour] = bool(update.interests)
        self._latest[ends] = update

    def _is_on_path(self, ends: LinkEnds) -> bool:
        """Return whether local events for the neighbour pass its gateway."""
        name = self._link_state.name_of(ends[0])
        assert name is not None
        if not self._link_state.is_reachable(name):
            return False
        own = self._gateway
        cluster = self._topology.gateway(name).cluster
        if cluster == own.cluster:
            return own.name in self._sides[ends]
        mate = own.across[cluster][own.home]
        entry = mate if self._link_state.is_reachable(mate) else self._link_state.nearest(cluster)
        return entry in self._sides[ends]

    def _side(self, gateway: str, neighbour: str) -> frozenset[str]:
        """Return the gateways of the cluster from which the path to *neighbour* leads over *gateway*, itself
        included.
        """
        side = [gateway]
        for each in side:
            neighbours = self._topology.gateway(each).neighbours
            side += [one for one in neighbours if one != neighbour and one not in side]
        return frozenset(side)


def _summary(interests: Sequence[Interest]) -> tuple[Interest, ...]:
    """Return *interests*, or fewer that cover them: their topics alone, or all topics."""
    if len(interests) > BACKPRESSURE_INTERESTS_MAX:
        interests = tuple(dict.fromkeys(Interest(one.topic_filter, ()) for one in interests))
    return tuple(interests) if len(interests) <= BACKPRESSURE_INTERESTS_MAX else ANYTHING
