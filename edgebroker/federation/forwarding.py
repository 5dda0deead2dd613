"""Forwarding: which copies of an event leave the gateway, and to which peers [SCOT 2.6, 2.8]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from edgebroker.federation.effects import SendMessage
from edgebroker.federation.interest_gossip import InterestGossip
from edgebroker.federation.options import FederationOptions
from edgebroker.filters.attributes import Extractor, UnreadableCounts
from edgebroker.header import EventHeader, host_of
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.overlay.advertisements import Advertisement
from edgebroker.overlay.congestion import LinkStatus
from edgebroker.overlay.duplicate_filter import DuplicateFilter
from edgebroker.overlay.messages import EventSeries, Forward, Message, Relay
from edgebroker.overlay.routing import (
    CheaperSite,
    RoutedCopy,
    RouteSelector,
    RoutingCase,
    RoutingDecision,
    civ_of,
    clusters_of,
)
from edgebroker.overlay.sent_events import KEPT, SentEvents, flow_number
from edgebroker.overlay.topology.topology import Topology
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.predicate import Attributes
from edgebroker.publication import Publication

Predecessors: TypeAlias = tuple[tuple[int, int], ...]
"""As in `Forward.predecessors`."""
EXTRACTORS_MAX: Final = 1_024
"""Sets of attributes that filters ask for together; the cache is cleared when it is full."""
PATHS_MAX: Final = 10_000
"""Topics of which it is known which cluster hands on their events, 200 bytes each; cleared when there are more."""


class Forwarder:
    """Forwards the events of one gateway."""

    def __init__(
        self, topology: Topology, name: str, gossip: InterestGossip, status: LinkStatus, options: FederationOptions
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
        self._selector = RouteSelector(gateway.neighbours, across, status, options.is_dynamic)
        costs = {site.index: site.uplink.cost for site in topology.sites}
        own_cost = costs[gateway.cluster]
        self._cheaper = tuple(sorted((c for c in across if costs[c] < own_cost), key=lambda c: (costs[c], c)))
        """The clusters whose uplinks cost less than the own one, the cheapest first."""
        self._paths: dict[tuple[int, str], int] = {}
        """Advertisement and topic -> the cluster that handed on its last event."""
        self._sticky: dict[int, str] = {}  # advertisement -> the peer chosen in this window
        self._window = 0
        self._duplicate_filter = DuplicateFilter()
        self._mates_of_hosts = {
            one.number: topology.gateway(one.name).across[gateway.cluster][topology.gateway(one.name).home]
            for one in topology.gateways
            if one.cluster != gateway.cluster
        }
        self._mates = {cluster: peers[0] for cluster, peers in self._across.items()}
        self._sorts = options.sorts
        self._sent = SentEvents()
        self._detoured: dict[int, Instant] = {}  # cluster -> when an event for it last took another path than usual
        self._relayed_events = SentEvents()  # as `_sent`, by the number of a gateway in this cluster
        self._relayed_at: dict[str, Instant] = {}  # gateway of this cluster -> when it last got a relay
        self._extractors: dict[frozenset[str], Extractor] = {}
        self.unreadable = UnreadableCounts()
        """The events whose content decides which gateways get them, and could not be read."""
        self.cases = dict.fromkeys(RoutingCase, 0)
        """How often each case of dynamic routing occurred."""
        self.duplicates = 0
        """Copies that were dropped as duplicates for all their clusters."""

    def resume(self, previous: Forwarder) -> None:
        """Take over the duplicate filter and the counters of *previous*."""
        self._duplicate_filter, self._sent = previous._duplicate_filter, previous._sent
        self.cases, self.duplicates, self.unreadable = previous.cases, previous.duplicates, previous.unreadable

    @property
    def _may_relay(self) -> bool:
        """Whether an event may leave as a relay."""
        return self._relay.is_active or self._link_state.has_lost

    def unconditional_peers(self, topic: str, record: Advertisement) -> tuple[tuple[str, ...], int] | None:
        """Return the peers that get every event for *topic* that *record* advertises, whatever its content, over the
        usual paths, and the other clusters of these peers (CIV).

        None: the peers depend on the content, or the event is changed on its way. The result is valid until interests,
        answers of clusters or links change.
        """
        resolution = self._interests.resolution(topic)
        pending = record.pending(self._cluster)
        if resolution.contents or self._may_relay or self._relayed_at or (pending and record.wanted):
            return None
        if pending and record.covering:
            pending = record.narrowed(pending, topic, {})
        if self._cheaper and pending:
            cheaper = self._cheaper_site(record, pending, topic)
            if cheaper is not None:
                return None
        decision = self._selector.route(self._interests.targets(resolution, {}, None), pending)
        peers = tuple(copy.peer for copy in decision.copies)
        is_plain = not any(copy.civ or copy.passes for copy in decision.copies)
        is_usual = all(self._mates[each] in peers and each not in self._detoured for each in clusters_of(pending))
        return (peers, pending) if is_plain and is_usual else None

    def count_published(
        self, header: EventHeader, flow: int, count: int, civ: int, is_reliable: bool, now: Instant
    ) -> None:
        """Mark *count* events of a local client, from *header* on, as seen, and as sent to the clusters *civ* over the
        usual paths. *flow*: the `flow_number`. *is_reliable*: they are of QoS 1 or 2.
        """
        publisher, first = header.publisher, header.sequence
        if count == 1:
            self._duplicate_filter.new_clusters(publisher, first, self._own | self._others)
        else:
            self._duplicate_filter.is_new(publisher, first, count, self._own | self._others)
        if civ:
            self._sent.add(flow, first + count - 1, civ, is_reliable, now)

    def publish(self, forward: Forward, record: Advertisement | None, now: Instant) -> list[SendMessage]:
        """Mark a local client's event as seen and return its copies. *record* advertises it; None: no cluster has been
        asked.
        """
        header = forward.header
        self._duplicate_filter.new_clusters(header.publisher, header.sequence, self._own | self._others)
        sends = self.copies_of(forward, record, now)
        return self._in_order(forward, sends, now) if self._sorts else sends

    def _in_order(self, forward: Forward, sends: list[SendMessage], now: Instant) -> list[SendMessage]:
        """Return *sends*, the copies of a local client's event, with its predecessors where a copy for the same cluster
        took another path a short time ago, or takes one now.
        """
        header, is_reliable = forward.header, forward.qos > 0
        flow, sequence = flow_number(header.publisher, header.adv), header.sequence
        everywhere = 0
        for at, send in enumerate(sends):
            clusters, is_usual = self._clusters_of(send)
            everywhere |= clusters
            if not is_usual:
                self._detoured |= dict.fromkeys(clusters_of(clusters), now)
            if unsettled := [each for each in clusters_of(clusters) if self._is_sorted(each)]:
                predecessors = tuple(
                    (each, self._sent.distance(flow, sequence, each, is_reliable)) for each in unsettled
                )
                sends[at] = replace(send, message=_following(send.message, predecessors))
        if everywhere:
            self._sent.add(flow, sequence, everywhere, is_reliable, now)
        return sends

    def _is_sorted(self, cluster: int) -> bool:
        """Return whether copies for *cluster* name their predecessors: since a detour, unless its mate, which would put
        them in order, acknowledges nothing.
        """
        return cluster in self._detoured and not self._status.is_stalled(self._mates[cluster])

    def _clusters_of(self, send: SendMessage) -> tuple[int, bool]:
        """Return the other clusters that *send* has to reach (CIV), and whether it takes the usual path to them."""
        message = send.message
        if isinstance(message, Relay):
            return 1 << self._link_state.cluster_of(message.destination) & self._others, False
        assert isinstance(message, Forward)
        civ, cluster = message.header.civ, self._clusters.get(send.peer)
        if cluster is None or message.passed:
            return civ, False
        return civ | 1 << cluster, not civ and self._mates[cluster] == send.peer

    def clusters_around(self, send: SendMessage) -> int:
        """Return the vector of the other clusters to which *send*, an event, is on a detour."""
        message = send.message
        if isinstance(message, Relay):
            name = self._link_state.name_of(message.destination)
            return 0 if name is None else 1 << self._link_state.cluster_of(message.destination) & ~self._own
        return message.header.civ & ~self._own if isinstance(message, Forward) else 0

    @property
    def settle_due(self) -> Instant | None:
        """When to call `settle`; None if there were no detours."""
        return min((at + KEPT for at in (*self._detoured.values(), *self._relayed_at.values())), default=None)

    def settle(self, now: Instant) -> None:
        """Forget the detours of so long ago that all events have arrived that were on the way then."""
        self._detoured = {cluster: at for cluster, at in self._detoured.items() if now - at < KEPT}
        self._relayed_at = {gateway: at for gateway, at in self._relayed_at.items() if now - at < KEPT}

    def dropped(self, forward: Forward) -> None:
        """Handle the loss of a copy that has not left: events that follow need not wait for it."""
        header = forward.header
        self._sent.discard(flow_number(header.publisher, header.adv), header.sequence)

    def publish_inside(self, forward: Forward, now: Instant) -> list[SendMessage]:
        """Mark an event of this gateway as seen and return its copies, which stay in the cluster."""
        header = forward.header
        self._duplicate_filter.new_clusters(header.publisher, header.sequence, self._own | self._others)
        targets = self._interests.targets(self._interests.resolution(forward.topic), {}, None)
        return self._route_all(forward, targets, 0, now)

    def publish_to(self, forward: Forward, cluster: int, now: Instant) -> list[SendMessage]:
        """Mark an event of this gateway as seen and return its copies, which are for *cluster* alone."""
        if cluster == self._cluster:
            return self.publish_inside(forward, now)
        header = forward.header
        self._duplicate_filter.new_clusters(header.publisher, header.sequence, self._own | self._others)
        sends = self._route_all(forward, (), 1 << cluster, now)
        return self._in_order(forward, sends, now) if self._sorts else sends

    def last_events(self) -> dict[int, int]:
        """Return the publishers of recent events that were seen here, each with the sequence of its last one."""
        return self._duplicate_filter.last_sequences(self._own)

    def restore_seen(self, last: Mapping[int, int]) -> None:
        """Know the last events that an earlier run has seen. *last*: publisher -> sequence of its last one."""
        for publisher, sequence in last.items():
            self._duplicate_filter.new_clusters(publisher, sequence, self._own)

    def send_to(self, gateway: int, forward: Forward) -> list[SendMessage]:
        """Return the copy of an event of this gateway that is for the gateway with the number *gateway* alone."""
        name = self._names.get(gateway)
        return [] if name is None else self._relayed(forward, name, is_alone=True)

    def copies_of(
        self, forward: Forward, record: Advertisement | None, now: Instant, is_known: bool = False
    ) -> list[SendMessage]:
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
        return self._route_all(forward, targets, pending, now, record)

    def _cheaper_site(self, record: Advertisement | None, pending: int, topic: str) -> CheaperSite | None:
        """Return which of the clusters *pending* hands on an event for *topic*, and to which of them: its uplink costs
        less than the own one, and as far as this gateway knows, it is connected with them. None: each gets a copy from
        here.

        It wants all events of the topic, whatever their content, and stays the same as long as it can, so that few
        events have to wait for others that took another path.
        """
        if record is None or not self._cheaper or not pending:
            return None
        willing = record.narrowed(pending & ~record.unanswered, topic, {})
        path = record.advertise.adv, topic
        latest = self._paths.get(path)
        for cluster in self._cheaper if latest is None else (latest, *self._cheaper):
            peer = self._selector.free_link(cluster) if willing >> cluster & 1 else None
            if peer is not None:
                behind = pending & ~(1 << cluster) & self._link_state.clusters_beyond(peer)
                if behind:
                    if latest is None and len(self._paths) >= PATHS_MAX:
                        self._paths.clear()
                    self._paths[path] = cluster
                    return CheaperSite(peer, behind)
        return None

    def receive(self, peer: str, forward: Forward, now: Instant) -> tuple[bool, list[SendMessage]]:
        """Handle a copy from *peer*; return whether local clients may get it, and the copies that leave."""
        header = forward.header
        if forward.passed:  # another gateway handed its clusters over; the event itself may be a duplicate here
            return False, self._route_all(forward, (), header.civ & self._others, now)
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
        return is_local, self._route_all(forward, targets, new & self._others, now)

    def mate_of(self, forward: Forward) -> str | None:
        """Return the gateway of this cluster at which the events of the publisher of *forward* enter as a rule, and
        which puts them in order; None if the publisher is in this cluster.
        """
        return self._mates_of_hosts.get(host_of(forward.header.publisher))

    def must_wait(self, forward: Forward, distance: int) -> bool:
        """Return whether the event that is *distance* before *forward* has not been here."""
        header = forward.header
        return distance > 0 and not self._duplicate_filter.has(header.publisher, header.sequence - distance, self._own)

    def hand_over(self, forward: Forward, destination: str, now: Instant) -> list[SendMessage]:
        """Return the copies of *forward*, of which the gateway *destination* of this cluster gets the one for the
        cluster: it puts the publisher's events in order.
        """
        header = forward.header
        if self._duplicate_filter.has(header.publisher, header.sequence, self._own):
            return self.beyond(forward, now)
        distance = forward.distance(self._cluster)
        assert distance is not None
        copy = self._copy(forward, 0, False, False, ((self._cluster, distance),))
        return [*self.beyond(forward, now), *self._relay.relay(destination, copy, TrafficClass.LIVE)]

    def beyond(self, forward: Forward, now: Instant) -> list[SendMessage]:
        """Return the copies of *forward* for other clusters than this one."""
        header = forward.header
        if not header.civ:
            return []
        new = self._duplicate_filter.new_clusters(header.publisher, header.sequence, header.civ)
        return self._route_all(forward, (), new & self._others, now)

    def enter(self, forward: Forward, arrival: str, now: Instant) -> tuple[bool, list[SendMessage]]:
        """As `receive`, for an event in its turn and the gateways of this cluster alone. *arrival*: the neighbour from
        which it came; empty if it entered the cluster here.
        """
        header = replace(forward.header, civ=0)
        return self.receive(arrival, replace(forward, header=header, predecessors=(), walked=0), now)

    def send_again(self, message: Message, peer: str) -> list[SendMessage]:
        """Return the copies that leave instead of *message*, which waited on the broken link to *peer*; none if it is
        no event. They are relays to *peer* itself: it may have passed the event on and lost it in a power cut. Its
        neighbours have seen the event then, and would drop a copy that enters the cluster at one of them.
        """
        if isinstance(message, Relay):  # it only passed through
            return self._relay.forward(message, TrafficClass.LIVE)
        if not isinstance(message, Forward):
            return []
        return self._relay.relay(peer, replace(message, was_marked=True), TrafficClass.LIVE)

    def reroute(self, forward: Forward, cluster: int, now: Instant) -> list[SendMessage]:
        """Return the copies that leave instead of one that waited for a gateway of *cluster* that is no peer any
        more: for its cluster, if that is still there, and for those with which it was marked.
        """
        own = 0 if forward.passed else 1 << cluster
        clusters = clusters_of((forward.header.civ | own) & self._others)
        known = dict(forward.predecessors)
        forward = replace(forward, predecessors=tuple((each, known.get(each, 0)) for each in clusters))
        return self._route_all(forward, (), (forward.header.civ | own) & self._others, now)

    def send_around(self, forward: Forward, now: Instant) -> list[SendMessage]:
        """Return the copies of *forward*, which waits for a peer that does not answer, for the clusters with which it
        is marked.
        """
        late = replace(forward, was_marked=True)
        return self._route_all(late, (), forward.header.civ & self._others, now)

    def receive_for_clients(self, forward: Forward) -> bool:
        """Handle a copy that is for local clients only; return whether they may get it."""
        is_new = bool(self._duplicate_filter.new_clusters(forward.header.publisher, forward.header.sequence, self._own))
        self.duplicates += not is_new
        return is_new

    def receive_series(self, peer: str, series: EventSeries, now: Instant) -> list[SendMessage] | None:
        """Return the copies of *series* that leave; local clients may get it. None: call `receive` for each event
        instead.
        """
        first, header = series.first, series.first.header
        resolution = self._interests.resolution(first.topic)
        clusters = header.civ | self._own
        if first.passed or resolution.contents or self._may_relay or self._relayed_at:
            return None
        if not self._duplicate_filter.is_new(header.publisher, header.sequence, series.count, clusters):
            return None
        targets = self._interests.targets(resolution, {}, peer)
        return self._route_all(first, targets, clusters & self._others, now)

    def _route_all(
        self,
        forward: Forward,
        targets: Sequence[str],
        pending: int,
        now: Instant,
        record: Advertisement | None = None,
    ) -> list[SendMessage]:
        """Return the copies to *targets* and to the clusters *pending*, relays around dead gateways included. *record*:
        advertises it, if it is a local client's.
        """
        if not self._may_relay:
            return self._after_relays(forward, self._route(forward, targets, pending, record), now)
        plain, relayed = self._relay.split(targets)
        away = self._unreachable(pending)
        entries = self._entries(pending & ~away)
        sends = self._route(forward, plain, pending & ~away & ~civ_of(entries), record)
        sends = self._after_relays(forward, sends, now)
        if away:  # no other gateway could do more about them, so their copies wait here and cross no other uplink
            copies = [RoutedCopy(self._across[cluster][0]) for cluster in clusters_of(away)]
            sends += self._copies(forward, RoutingDecision(copies, RoutingCase.STUCK, None))
            self.cases[RoutingCase.STUCK] += 1
        for entry in entries.values():
            sends += self._relayed(forward, entry)
        for destination, is_alone in relayed:
            sends += self._relayed_inside(forward, destination, is_alone, now)
        return sends

    def _relayed_inside(self, forward: Forward, destination: str, is_alone: bool, now: Instant) -> list[SendMessage]:
        """Send a relay with *forward* to a gateway of this cluster, in its place among the publisher's events."""
        if is_alone or not self._sorts:
            return self._relayed(forward, destination, is_alone)
        self._relayed_at[destination] = now
        predecessor = self._predecessor_inside(forward, destination, now)
        sends = self._relayed(forward, destination)
        return [replace(each, message=_following(each.message, (predecessor,))) for each in sends]

    def _predecessor_inside(self, forward: Forward, gateway: str, now: Instant) -> tuple[int, int]:
        """Return the predecessor of *forward* for a gateway of this cluster, which gets it now."""
        header, is_reliable = forward.header, forward.qos > 0
        flow, sequence = flow_number(header.publisher, header.adv), header.sequence
        number = self._link_state.number_of(gateway)
        distance = self._relayed_events.distance(flow, sequence, number, is_reliable)
        self._relayed_events.add(flow, sequence, 1 << number, is_reliable, now)
        return self._cluster, distance

    def _after_relays(self, forward: Forward, sends: list[SendMessage], now: Instant) -> list[SendMessage]:
        """Return *sends*, with the predecessor of *forward* where a neighbour got relays a short time ago."""
        if not self._relayed_at:
            return sends
        for at, send in enumerate(sends):
            message = send.message
            if send.peer in self._relayed_at and isinstance(message, Forward) and not message.passed:
                predecessors = (*message.predecessors, self._predecessor_inside(forward, send.peer, now))
                sends[at] = replace(send, message=replace(message, predecessors=predecessors))
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

    def _route(
        self, forward: Forward, targets: Sequence[str], pending: int, record: Advertisement | None
    ) -> list[SendMessage]:
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
        cheaper = self._cheaper_site(record, pending, forward.topic)
        decision = self._selector.route(targets, pending, self._sticky.get(header.adv), may_walk, avoided, cheaper)
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
                sends += self._relayed(forward, entry)
        return [*self._copies(forward, RoutingDecision(copies, decision.case, decision.chosen)), *sends]

    def _copies(self, forward: Forward, decision: RoutingDecision) -> list[SendMessage]:
        """Return one message for each copy; equal copies share one object."""
        made: dict[tuple[int, bool, bool, Predecessors], Forward] = {}
        sends = []
        for peer, civ, passes in decision.copies:
            is_near = peer in self._neighbours
            predecessors: Predecessors = ()
            if forward.predecessors:
                own = 0 if passes or is_near else 1 << self._clusters[peer]
                predecessors = _for_clusters(forward, civ | own)
            key = (civ, passes, is_near, predecessors)
            copy = made.get(key)
            if copy is None:
                copy = made[key] = self._copy(forward, *key)
            sends.append(SendMessage(peer, copy, TrafficClass.LIVE))
        return sends

    def _copy(self, forward: Forward, civ: int, passes: bool, is_near: bool, predecessors: Predecessors) -> Forward:
        if not (civ or passes or forward.header.civ or forward.walked or forward.passed or forward.predecessors):
            return forward  # most copies are unchanged
        return replace(
            forward,
            header=forward.header if civ == forward.header.civ else replace(forward.header, civ=civ),
            walked=forward.walked + 1 if is_near and civ else 0,
            was_marked=forward.was_marked or civ != 0,
            passed=(*forward.passed, self._number) if passes else (),
            predecessors=predecessors,
        )

    def _relayed(self, forward: Forward, destination: str, is_alone: bool = False) -> list[SendMessage]:
        """Send a relay with *forward* to *destination*, marked because other events may overtake it."""
        number = self._link_state.number_of(destination)
        cluster = 1 << self._link_state.cluster_of(number) & self._others
        copy = self._copy(forward, 0, False, False, _for_clusters(forward, cluster))
        copy = copy if copy.was_marked else replace(copy, was_marked=True)
        return self._relay.relay(destination, copy, TrafficClass.LIVE, is_alone)

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


def _for_clusters(forward: Forward, civ: int) -> Predecessors:
    """Return the predecessors of *forward* for the clusters *civ*."""
    return tuple(pair for pair in forward.predecessors if civ >> pair[0] & 1)


def _following(message: Message, predecessors: Predecessors) -> Message:
    """Return *message*, an event or a relay with one, with *predecessors*."""
    if isinstance(message, Relay):
        return replace(message, message=_following(message.message, predecessors))
    assert isinstance(message, Forward)
    return replace(message, predecessors=predecessors)


def aged(forward: Forward, since: Instant, now: Instant) -> Forward:
    """Return *forward* with its remaining expiry interval reduced by the time it waited."""
    if forward.expires_in_ms is None:
        return forward
    return replace(forward, expires_in_ms=max(0, forward.expires_in_ms - (now - since) // MILLISECOND))
