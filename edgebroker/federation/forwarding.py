"""Forwarding: which copies of an event leave the gateway, and to which peers [SCOT 2.6, 2.8]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from edgebroker.federation.effects import SendMessage
from edgebroker.federation.interest_gossip import InterestGossip
from edgebroker.filters.attributes import Extractor, UnreadableCounts
from edgebroker.header import EventHeader
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.overlay.advertisements import Advertisement
from edgebroker.overlay.congestion import LinkStatus
from edgebroker.overlay.duplicate_filter import DuplicateFilter
from edgebroker.overlay.messages import EventSeries, Forward
from edgebroker.overlay.routing import RoutedCopy, RouteSelector, RoutingCase, RoutingDecision, civ_of, clusters_of
from edgebroker.overlay.topology.topology import Topology
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.predicate import Attributes
from edgebroker.publication import Publication

EXTRACTORS_MAX: Final = 1_024
"""Sets of attributes that filters ask for together; the cache is cleared when it is full."""


class Forwarder:
    """Forwards the events of one gateway."""

    def __init__(
        self, topology: Topology, name: str, gossip: InterestGossip, status: LinkStatus, is_dynamic: bool
    ) -> None:
        gateway = topology.gateway(name)
        self._cluster = gateway.cluster
        self._own = 1 << gateway.cluster
        self._others = civ_of(site.index for site in topology.sites) & ~self._own
        self._number = gateway.number
        self._names = {one.number: one.name for one in topology.gateways}
        self._neighbours = frozenset(gateway.neighbours)
        self._clusters = {peer: cluster for cluster, peers in gateway.across.items() for peer in peers.values()}
        self._interests = gossip.interests
        self._relay = gossip.relay
        self._link_state = gossip.link_state
        self._status = status
        self._diameter = topology.factor.diameter
        home_first = (gateway.home, *(each for each in gateway.positions if each != gateway.home))
        across = {cluster: [peers[u] for u in home_first] for cluster, peers in gateway.across.items()}
        self._across = {cluster: tuple(dict.fromkeys(peers)) for cluster, peers in across.items()}
        self._selector = RouteSelector(gateway.neighbours, across, status, is_dynamic)
        self._sticky: dict[int, str] = {}  # advertisement -> the peer chosen in this window
        self._window = 0
        self._duplicate_filter = DuplicateFilter()
        self._extractors: dict[frozenset[str], Extractor] = {}
        self.unreadable = UnreadableCounts()
        """The events whose content decides which gateways get them, and could not be read."""
        self.cases = dict.fromkeys(RoutingCase, 0)
        """How often each case of dynamic routing occurred."""
        self.duplicates = 0
        """Copies that were dropped as duplicates for all their clusters."""

    def resume(self, previous: Forwarder) -> None:
        """Take over the duplicate filter and the counters of *previous*."""
        self._duplicate_filter = previous._duplicate_filter
        self.cases, self.duplicates, self.unreadable = previous.cases, previous.duplicates, previous.unreadable

    @property
    def _may_relay(self) -> bool:
        """Whether an event may leave as a relay."""
        return self._relay.is_active or self._link_state.has_lost

    def unconditional_peers(self, topic: str, record: Advertisement) -> tuple[str, ...] | None:
        """Return the peers that get every event for *topic* that *record* advertises, whatever its content.

        None: the peers depend on the content, or the event is changed on its way. The result is valid until interests,
        answers of clusters or links change.
        """
        resolution = self._interests.resolution(topic)
        pending = record.pending(self._cluster)
        if resolution.contents or self._may_relay or (pending and record.wanted):
            return None
        if pending and record.covering:
            pending = record.narrowed(pending, topic, {})
        decision = self._selector.route(self._interests.targets(resolution, {}, None), pending)
        if any(copy.civ or copy.passes for copy in decision.copies):
            return None
        return tuple(copy.peer for copy in decision.copies)

    def count_published(self, header: EventHeader, count: int) -> None:
        """Mark *count* events of a local client, from *header* on, as seen; they leave by a cached route."""
        everywhere = self._own | self._others
        if count == 1:
            self._duplicate_filter.new_clusters(header.publisher, header.sequence, everywhere)
        else:
            self._duplicate_filter.is_new(header.publisher, header.sequence, count, everywhere)

    def publish(self, forward: Forward, record: Advertisement | None) -> list[SendMessage]:
        """Mark a local client's event as seen and return its copies. *record* advertises it; None: no cluster has been
        asked.
        """
        self.count_published(forward.header, 1)
        return self.copies_of(forward, record)

    def publish_inside(self, forward: Forward) -> list[SendMessage]:
        """Mark an event of this gateway as seen and return its copies, which stay in the cluster."""
        self.count_published(forward.header, 1)
        return self._route_all(forward, self._interests.targets(self._interests.resolution(forward.topic), {}, None), 0)

    def copies_of(self, forward: Forward, record: Advertisement | None, is_known: bool = False) -> list[SendMessage]:
        """Return the copies of a local client's event. *record*: None if it is not advertised yet. *is_known*: only
        those for clusters that have answered that they want it.
        """
        resolution = self._interests.resolution(forward.topic)
        wanted = resolution.wanted if resolution.contents else frozenset()
        pending = self._others if record is None else record.pending(self._cluster)
        if is_known:
            pending = 0 if record is None else pending & ~record.unanswered
        is_precise = record is not None and pending and record.covering
        if record is not None and is_precise:
            wanted |= record.wanted
        attributes = self._counted_attributes(forward, wanted) if wanted else {}
        if record is not None and is_precise:
            pending = record.narrowed(pending, forward.topic, attributes)
        targets = self._interests.targets(resolution, attributes, None)
        return self._route_all(forward, targets, pending)

    def receive(self, peer: str, forward: Forward) -> tuple[bool, list[SendMessage]]:
        """Handle a copy from *peer*; return whether local clients may get it, and the copies that leave."""
        header = forward.header
        if forward.passed:  # another gateway handed its clusters over; the event itself may be a duplicate here
            return False, self._route_all(forward, (), header.civ & self._others)
        new = self._duplicate_filter.new_clusters(header.publisher, header.sequence, header.civ | self._own)
        if not new:
            self.duplicates += 1
            return False, []
        targets: list[str] = []
        is_local = bool(new & self._own)
        if is_local:
            resolution = self._interests.resolution(forward.topic)
            attributes = self._counted_attributes(forward, resolution.wanted) if resolution.contents else {}
            targets = self._interests.targets(resolution, attributes, peer)
        return is_local, self._route_all(forward, targets, new & self._others)

    def reroute(self, forward: Forward, cluster: int) -> list[SendMessage]:
        """Return the copies that leave instead of one that waited for a gateway of *cluster* that is no peer any more:
        for its cluster, if that is still there, and for those with which it was marked.
        """
        own = 0 if forward.passed else 1 << cluster
        return self._route_all(forward, (), (forward.header.civ | own) & self._others)

    def receive_for_clients(self, forward: Forward) -> bool:
        """Handle a copy that is for local clients only; return whether they may get it."""
        is_new = bool(self._duplicate_filter.new_clusters(forward.header.publisher, forward.header.sequence, self._own))
        self.duplicates += not is_new
        return is_new

    def receive_series(self, peer: str, series: EventSeries) -> list[SendMessage] | None:
        """Return the copies of *series* that leave; local clients may get it. None: call `receive` for each event
        instead.
        """
        first, header = series.first, series.first.header
        resolution = self._interests.resolution(first.topic)
        clusters = header.civ | self._own
        if first.passed or resolution.contents or self._may_relay:
            return None
        if not self._duplicate_filter.is_new(header.publisher, header.sequence, series.count, clusters):
            return None
        return self._route_all(first, self._interests.targets(resolution, {}, peer), clusters & self._others)

    def _route_all(self, forward: Forward, targets: Sequence[str], pending: int) -> list[SendMessage]:
        """Return the copies to *targets* and to the clusters *pending*, relays around dead gateways included."""
        if not self._may_relay:
            return self._route(forward, targets, pending)
        plain, relayed = self._relay.split(targets)
        away = self._unreachable(pending)
        entries = self._entries(pending & ~away)
        sends = self._route(forward, plain, pending & ~away & ~civ_of(entries))
        if away:  # no other gateway could do more about them, so their copies wait here and cross no other uplink
            copies = [RoutedCopy(self._across[cluster][0]) for cluster in clusters_of(away)]
            sends += self._copies(forward, RoutingDecision(copies, RoutingCase.STUCK, None))
            self.cases[RoutingCase.STUCK] += 1
        relayed += [(entry, False) for entry in entries.values()]
        if relayed:
            copy = self._marked(forward)
            for destination, is_alone in relayed:
                sends += self._relay.relay(destination, copy, TrafficClass.LIVE, is_alone)
        return sends

    def _unreachable(self, pending: int) -> int:
        """Return those clusters of *pending* to none of whose gateways any path of open connections leads."""
        if not pending or not self._link_state.has_lost:
            return 0
        return pending & ~self._link_state.connected_clusters()

    def _entries(self, pending: int) -> dict[int, str]:
        """Return an entry gateway for each cluster of *pending* whose peers of this gateway are all dead.

        No other gateway of the region could do more about such a cluster.
        """
        entries = {}
        for cluster in clusters_of(pending) if self._link_state.has_lost else ():
            if all(
                self._link_state.is_lost(peer) and self._link_state.next_hop(peer) is None
                for peer in self._across[cluster]
            ):
                entry = self._link_state.nearest(cluster)
                if entry is not None:
                    entries[cluster] = entry
        return entries

    def _route(self, forward: Forward, targets: Sequence[str], pending: int) -> list[SendMessage]:
        """Return the copies to *targets* and *pending* without relays."""
        if not pending:  # most events need no decision
            return (
                self._copies(forward, RoutingDecision([RoutedCopy(peer) for peer in targets], RoutingCase.NONE, None))
                if targets
                else []
            )
        header = forward.header
        if self._window != self._status.window:
            self._window = self._status.window
            self._sticky.clear()
        avoided = [self._names[number] for number in forward.passed if number in self._names]
        may_walk = forward.walked < self._diameter
        decision = self._selector.route(targets, pending, self._sticky.get(header.adv), may_walk, avoided)
        self.cases[decision.case] += 1
        if decision.chosen is not None:
            self._sticky[header.adv] = decision.chosen
        if decision.case is RoutingCase.STUCK:
            return self._route_stuck(forward, decision)
        return self._copies(forward, decision)

    def _route_stuck(self, forward: Forward, decision: RoutingDecision) -> list[SendMessage]:
        """Send a relay to the nearest gateway of each cluster behind a dead iLink, because no step of a detour
        is free.
        """
        copies, sends = [], []
        for copy in decision.copies:
            cluster = self._clusters.get(copy.peer)
            is_stuck = cluster is not None and self._link_state.is_lost(copy.peer)
            entry = self._link_state.nearest(cluster) if is_stuck and cluster is not None else None
            if entry is None:
                copies.append(copy)
            else:
                sends += self._relay.relay(entry, self._marked(forward), TrafficClass.LIVE)
        return [*self._copies(forward, RoutingDecision(copies, decision.case, decision.chosen)), *sends]

    def _copies(self, forward: Forward, decision: RoutingDecision) -> list[SendMessage]:
        """Return one message for each copy; equal copies share one object."""
        made: dict[tuple[int, bool, bool], Forward] = {}
        sends = []
        for peer, civ, passes in decision.copies:
            is_near = peer in self._neighbours
            key = (civ, passes, is_near)
            copy = made.get(key)
            if copy is None:
                copy = made[key] = self._copy(forward, civ, passes, is_near)
            sends.append(SendMessage(peer, copy, TrafficClass.LIVE))
        return sends

    def _copy(self, forward: Forward, civ: int, passes: bool, is_near: bool) -> Forward:
        if not (civ or passes or forward.header.civ or forward.walked or forward.passed):
            return forward  # most copies are unchanged
        return replace(
            forward,
            header=forward.header if civ == forward.header.civ else replace(forward.header, civ=civ),
            walked=forward.walked + 1 if is_near and civ else 0,
            was_marked=forward.was_marked or civ != 0,
            passed=(*forward.passed, self._number) if passes else (),
        )

    def _marked(self, forward: Forward) -> Forward:
        """Return the copy for a relay, marked because other events may overtake it."""
        copy = self._copy(forward, 0, False, False)
        return copy if copy.was_marked else replace(copy, was_marked=True)

    def attributes(self, forward: Forward, names: frozenset[str]) -> Attributes:
        """Return the attributes *names* of an event, as far as it has them."""
        return self._extract(forward, self._extractor(names))

    def _counted_attributes(self, forward: Forward, names: frozenset[str]) -> Attributes:
        """As `attributes`, for an event that is forwarded now: one that cannot be read is counted."""
        extractor = self._extractor(names)
        attributes = self._extract(forward, extractor)
        if extractor.is_unreadable:
            self.unreadable.add(forward.topic)
        return attributes

    def _extractor(self, names: frozenset[str]) -> Extractor:
        extractor = self._extractors.get(names)
        if extractor is None:
            if len(self._extractors) >= EXTRACTORS_MAX:
                self._extractors.clear()
            extractor = self._extractors[names] = Extractor(names)
        return extractor

    def _extract(self, forward: Forward, extractor: Extractor) -> Attributes:
        return extractor.extract(
            forward.payload,
            topic=forward.topic,
            qos=forward.qos,
            retain=forward.retain,
            client=forward.client,
            user=forward.user,
            content_type=forward.content_type,
        )


def forward_of(publication: Publication, header: EventHeader, properties: bytes, now: Instant) -> Forward:
    """Return the event that leaves for peers when a local client publishes.

    properties: the encoded MQTT properties, for the front ends of other gateways.
    """
    expires_at = publication.expires_at
    return Forward(
        header,
        publication.topic,
        publication.payload,
        publication.qos,
        publication.retain,
        publication.publisher,
        tuple(publication.user),
        publication.content_type,
        properties,
        None if expires_at is None else max(0, expires_at - now) // MILLISECOND,
    )


def aged(forward: Forward, since: Instant, now: Instant) -> Forward:
    """Return *forward* with its remaining expiry interval reduced by the time it waited."""
    if forward.expires_in_ms is None:
        return forward
    return replace(forward, expires_in_ms=max(0, forward.expires_in_ms - (now - since) // MILLISECOND))
