"""Queries that pass through a gateway, and the return path of the replies: for retained messages, and those of
operators for the links of all gateways.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.federation.effects import (
    DeliverRetained,
    DeliverUnmodified,
    Effect,
    LookUpRetained,
    ReceiveStatus,
    ReportStatus,
    SendMessage,
)
from edgebroker.federation.interest_gossip import InterestGossip
from edgebroker.federation.retained_cache import RetainedCache
from edgebroker.header import EventHeader, host_of
from edgebroker.instants import Instant
from edgebroker.interest import Interest
from edgebroker.limits import RETAINED_QUERIES_MAX, RETAINED_REPLY_TOPICS_MAX
from edgebroker.overlay.congestion import LinkStatus
from edgebroker.overlay.id_allocator import IdAllocator, is_newer
from edgebroker.overlay.messages import (
    ConditionalRetainedQuery,
    Forward,
    Message,
    RetainedDigest,
    RetainedQuery,
    RetainedReply,
    RetainedUnmodified,
    StatusQuery,
    StatusReply,
)
from edgebroker.overlay.secondary_advertisements import SecondaryAdvertisements
from edgebroker.overlay.topology.topology import Topology, TopologyGateway
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.topics import TopicFilter


@dataclass(slots=True)
class _OpenQuery:
    origin: str | int
    """The peer that sent it, or the number of a local subscription."""
    interest: Interest
    asked_at: Instant
    digests: dict[int, RetainedDigest] = field(default_factory=dict)
    """Of a local query: gateway -> the digest that it gets and has not answered."""
    newest: dict[str, EventHeader] = field(default_factory=dict)
    """Of a local query: topic -> header of the newest reply."""


class RetainedQueries:
    """The last RETAINED_QUERIES_MAX queries; replies to older ones are dropped.

    To drop a reply that is older than one delivered before, about RETAINED_REPLY_TOPICS_MAX replies are remembered; the
    protocol does not mark the last reply to a query.
    """

    def __init__(
        self,
        topology: Topology,
        gateway: TopologyGateway,
        ids: IdAllocator,
        gossip: InterestGossip,
        secondary: SecondaryAdvertisements,
        cache: RetainedCache,
    ) -> None:
        others = [one for one in topology.gateways if one.cluster != gateway.cluster]
        self._hosts = {one.number: (one.name, topology.holder(one.home, gateway.cluster)) for one in others}
        """Number of a gateway elsewhere -> its name, and the gateway of this cluster that forwards queries to it."""
        self._numbers = {one.name: one.number for one in topology.gateways}
        self._name = gateway.name
        self._number = gateway.number
        self._neighbours = gateway.neighbours
        self._ids = ids
        self._gossip = gossip
        self._secondary = secondary
        self.cache = cache
        self._queries: dict[int, _OpenQuery] = {}
        self.remembered = 0
        """Remembered replies of all queries."""
        self.late = 0
        """Replies to queries that were no longer open."""
        self.unmodified = 0
        """Messages that were not sent again, because they were known here."""
        self.repeated = 0
        """Queries that were asked again, because what was known had been forgotten before the answer came."""

    def query(self, number: int, interests: Sequence[Interest], now: Instant) -> list[Effect]:
        """Query other gateways for the messages that *interests* match, for the local subscription *number*."""
        effects: list[Effect] = []
        for interest in interests:
            digests = self.cache.digests(interest, now)
            query = _OpenQuery(number, interest, now, {each.gateway: each for each in digests})
            effects += self._ask(query, digests)
        return effects

    def _ask(self, query: _OpenQuery, digests: tuple[RetainedDigest, ...]) -> list[SendMessage]:
        request = self._ids.next()
        self._open(request, query)
        return self._forward(ConditionalRetainedQuery(request, query.interest, digests), None)

    def receive_query(self, peer: str, query: RetainedQuery | ConditionalRetainedQuery, now: Instant) -> list[Effect]:
        """Handle a query of *peer*, once; it may arrive from several peers."""
        if query.request in self._queries:
            return []
        self._open(query.request, _OpenQuery(peer, query.interest, now))
        if isinstance(query, RetainedQuery):
            query = ConditionalRetainedQuery(query.request, query.interest, ())
        sums = next((each.sums for each in query.digests if each.gateway == self._number), ())
        forwarded = self._forward(query, peer) if peer in self._gossip.interests else []
        return [LookUpRetained(query.request, query.interest, sums), *forwarded]

    def answer(self, request: int, forward: Forward, now: Instant) -> list[Effect]:
        """Reply with a retained message of this gateway.

        A copy of another gateway's message is kept only as a fallback, and is used while that gateway cannot be
        queried.
        """
        return [] if self.is_queried(forward.header) else self.receive_reply(RetainedReply(request, forward), now)

    def answer_unmodified(self, request: int, parts: int) -> list[Effect]:
        """Reply to the digest of a `LookUpRetained` that the sums of *parts*, as bits, agree."""
        query = self._queries.get(request)
        octets = parts.to_bytes(max(1, (parts.bit_length() + 7) // 8))
        return [] if query is None else self._return(query, RetainedUnmodified(request, self._number, octets))

    def receive_unmodified(self, reply: RetainedUnmodified, now: Instant) -> list[Effect]:
        """Return a reply to the peer that queried, or deliver what is known here."""
        query = self._queries.get(reply.request)
        if query is None:
            self.late += 1
            return []
        if isinstance(query.origin, str):
            return self._return(query, reply)
        digest = query.digests.pop(reply.gateway, None)
        if digest is None:
            return []
        parts = int.from_bytes(reply.parts)
        known = self.cache.confirm(query.interest, digest, parts, query.asked_at, now)
        if known is None:
            self.repeated += 1
            query.digests.clear()
            return [*self._ask(query, ())]
        forwards = tuple(forward for forward in known if self._is_newest(query, forward))
        self.unmodified += len(forwards)
        return [DeliverUnmodified(query.origin, forwards)] if forwards else []

    def _return(self, query: _OpenQuery, reply: RetainedUnmodified) -> list[Effect]:
        """Return *reply* to the peer that sent *query*. Whoever forwards a relay may not know the message, so there is
        none while the link to that peer is down.
        """
        peer = query.origin
        if not isinstance(peer, str) or not self._gossip.is_up(peer):
            return []
        return [SendMessage(peer, reply, TrafficClass.LIVE)]

    def know(self, topic_filter: TopicFilter, forward: Forward, now: Instant) -> None:
        """Know a copy that this gateway has of another one's retained message: whoever asks for *topic_filter* here
        needs not get it again.
        """
        self.cache.add(Interest(topic_filter, ()), forward, now)

    def receive_reply(self, reply: RetainedReply, now: Instant) -> list[Effect]:
        """Return a reply to the peer or local subscription that queried, unless that has a newer one."""
        query = self._queries.get(reply.request)
        if query is None:
            self.late += 1
            return []
        if isinstance(query.origin, str):
            return [*self._gossip.send(query.origin, reply, TrafficClass.LIVE)]
        self.cache.add(query.interest, reply.forward, now)
        return [DeliverRetained(query.origin, reply.forward)] if self._is_newest(query, reply.forward) else []

    def _is_newest(self, query: _OpenQuery, forward: Forward) -> bool:
        """Return whether *forward* is newer than what was delivered for *query*; it is delivered then."""
        known = query.newest.get(forward.topic)
        if known is None:
            self.remembered += 1
        elif not is_newer(forward.header, known):
            return False
        query.newest[forward.topic] = forward.header
        if self.remembered > RETAINED_REPLY_TOPICS_MAX:
            self._forget_replies(next(each for each in self._queries.values() if each.newest))
        return True

    def open_queries(self) -> Iterable[_OpenQuery]:
        """Iterate over the queries to which replies are expected."""
        return self._queries.values()

    def is_queried(self, header: EventHeader) -> bool:
        """Return whether the gateway that published with *header* is in another cluster, and this cluster can
        query it.
        """
        host, mate = self._hosts.get(host_of(header.publisher), ("", ""))
        if mate == self._name:
            return self._gossip.is_up(host)
        link_state = self._gossip.link_state
        return bool(host) and link_state.is_reachable(mate) and link_state.are_connected(mate, host)

    def _forward(self, query: ConditionalRetainedQuery, origin: str | None) -> list[SendMessage]:
        """Forward a query in the cluster, and to the hosts of the region that advertise matching events. A host gets
        its own digest, a neighbour those of all others; a gateway without a link to this one, none.
        """
        stand_ins = self._gossip.relay.stand_ins
        receivers: list[str] = []
        for peer in self._neighbours:
            side = (peer, *stand_ins.get(peer, ()))
            receivers += side if origin not in side else ()
        hosts = self._secondary.hosts(query.interest.topic_filter)
        receivers += [peer for peer in hosts if peer != origin and self._gossip.is_up(peer)]
        return [send for peer in receivers for send in self._gossip.send(peer, self._query_for(peer, query))]

    def _query_for(self, peer: str, query: ConditionalRetainedQuery) -> RetainedQuery | ConditionalRetainedQuery:
        if not query.digests or not self._gossip.is_up(peer):
            return query.plain()
        if peer in self._neighbours:
            digests = tuple(each for each in query.digests if each.gateway != self._number)
        else:
            digests = tuple(each for each in query.digests if each.gateway == self._numbers[peer])
        return replace(query, digests=digests) if digests else query.plain()

    def _open(self, request: int, query: _OpenQuery) -> None:
        if len(self._queries) >= RETAINED_QUERIES_MAX:
            self._forget_replies(self._queries.pop(next(iter(self._queries))))
        self._queries[request] = query

    def _forget_replies(self, query: _OpenQuery) -> None:
        """Forget the replies of *query*."""
        self.remembered -= len(query.newest)
        query.newest = {}


STATUS_QUERIES_MAX: Final = 256
"""Queries that are remembered; replies to older ones are dropped. Operators ask a few times a minute at most."""


class StatusQueries:
    """The last STATUS_QUERIES_MAX queries of operators for the links of all gateways.

    A query reaches every gateway to which some path of open links leads. A gateway that does not answer is not reached,
    or is of an older version; whoever asked knows from the topology which ones are missing.
    """

    def __init__(self, gateway: TopologyGateway, ids: IdAllocator, status: LinkStatus) -> None:
        self._number = gateway.number
        self._peers = gateway.peers()
        self._ids = ids
        self._status = status
        self._origins: dict[int, str | None] = {}  # request -> the peer that sent it; None: this gateway
        self.late = 0
        """Replies to queries that are not remembered."""

    def query(self) -> tuple[int, list[Effect]]:
        """Ask all gateways. Returns the number of the query, and what to do."""
        request = self._ids.next()
        self._remember(request, None)
        return request, self._forward(StatusQuery(request), None)

    def receive_query(self, peer: str, query: StatusQuery) -> list[Effect]:
        """Handle a query of *peer*, once; it may arrive from several peers."""
        if query.request in self._origins:
            return []
        self._remember(query.request, peer)
        return [ReportStatus(query.request), *self._forward(query, peer)]

    def answer(self, request: int, report: bytes) -> list[Effect]:
        """Answer a query with the *report* of this gateway."""
        return self.receive_reply(StatusReply(request, self._number, report))

    def receive_reply(self, reply: StatusReply) -> list[Effect]:
        """Return a reply to the peer that sent the query, or to the operator here."""
        if reply.request not in self._origins:
            self.late += 1
            return []
        origin = self._origins[reply.request]
        return [ReceiveStatus(reply)] if origin is None else self._send(origin, reply)

    def _forward(self, query: StatusQuery, origin: str | None) -> list[Effect]:
        return [send for peer in self._peers if peer != origin for send in self._send(peer, query)]

    def _send(self, peer: str, message: Message) -> list[Effect]:
        return [SendMessage(peer, message, TrafficClass.CONTROL)] if self._status.is_up(peer) else []

    def _remember(self, request: int, origin: str | None) -> None:
        if len(self._origins) >= STATUS_QUERIES_MAX:
            del self._origins[next(iter(self._origins))]
        self._origins[request] = origin
