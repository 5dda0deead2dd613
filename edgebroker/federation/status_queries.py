"""Queries of operators for the links of all gateways: each gateway sends a query on once, and its report back on the
path on which the query came.

A query reaches every gateway to which some path of open links leads. A gateway that does not answer is not reached, or
is of an older version; whoever asked knows from the topology which ones are missing.
"""

from __future__ import annotations

from typing import Final

from edgebroker.federation.effects import Effect, ReceiveStatus, ReportStatus, SendMessage
from edgebroker.overlay.congestion import LinkStatus
from edgebroker.overlay.id_allocator import IdAllocator
from edgebroker.overlay.messages import Message, StatusQuery, StatusReply
from edgebroker.overlay.topology.topology import TopologyGateway
from edgebroker.overlay.traffic_class import TrafficClass

STATUS_QUERIES_MAX: Final = 256
"""Queries that are remembered; replies to older ones are dropped. Operators ask a few times a minute at most."""


class StatusQueries:
    """The last STATUS_QUERIES_MAX queries that this gateway asked or passed on."""

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
