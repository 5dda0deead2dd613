"""The forwarding cache: routes that are the same for every event of a publisher and topic, or for a whole series.

It decides nothing itself: it caches the decisions of `Forwarder`. Its owner must call `clear` when interests,
advertisements or links have changed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edgebroker.federation.effects import SendMessage
from edgebroker.federation.router import FederationRouter
from edgebroker.header import EventHeader
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.log_schema import EventId
from edgebroker.overlay.advertisements import PublisherFlow
from edgebroker.overlay.messages import EventSeries, Forward
from edgebroker.overlay.sent_events import flow_number

CACHED_ROUTES_MAX: Final = 10_000
"""Cached pairs of publisher and topic, 300 bytes each; the cache is cleared when it is full."""


class CachedRoute(NamedTuple):
    """The route of the events of one publisher under one topic."""

    flow: PublisherFlow
    peers: tuple[str, ...]
    """The peers that get each of them, unchanged."""
    civ: int
    """The other clusters that get each of them."""
    number: int
    """The flow's number in `overlay.sent_events`."""


class ForwardingCache:
    """The cached routes of *router*."""

    def __init__(self, router: FederationRouter) -> None:
        self._router = router
        self._routes: dict[tuple[str, str], CachedRoute | None] = {}

    def clear(self) -> None:
        """Remove all routes."""
        self._routes.clear()

    def route_for(self, client: str, topic: str, count_max: int) -> CachedRoute | None:
        """Return the route of up to *count_max* events of a local client.

        None: each event must be routed by itself, because the route depends on its content, it has to wait or make a
        detour, or it is traced.
        """
        key = (client, topic)
        route = self._routes.get(key)
        if route is None:
            if key in self._routes or (flow := self._cacheable_flow(client, topic)) is None:
                return None
            found = self._router.forwarder.unconditional_peers(topic, flow.record)
            number = flow_number(flow.publisher.number, flow.record.advertise.adv)
            route = None if found is None else CachedRoute(flow, *found, number)
            if len(self._routes) >= CACHED_ROUTES_MAX:
                self._routes.clear()
            self._routes[key] = route
        if route is None:
            return None
        publisher = route.flow.publisher
        return None if publisher.sequence + count_max >= publisher.cached_until else route

    def _cacheable_flow(self, client: str, topic: str) -> PublisherFlow | None:
        """Return the flow of such events, if they need not wait and have the same route until `clear`."""
        region = self._router.region
        flow = region.advertisements.find(client, topic)
        return None if flow is None or flow.record in region.pending else flow

    def publish(
        self, route: CachedRoute, topic: str, payload: bytes, qos: int, count: int, now: Instant
    ) -> tuple[EventId, Forward | EventSeries | None]:
        """Publish *count* events whose payloads are concatenated. Returns the identity of the first, and the message
        for the peers of *route*; None if it has none.
        """
        flow, router = route.flow, self._router
        flow.used_at = now
        publisher, advertise = flow.publisher, flow.record.advertise
        sequence = publisher.sequence + 1
        publisher.sequence += count
        header = EventHeader(
            publisher.number,
            sequence,
            advertise.adv,
            advertise.hc,
            0,
            router.interests.epoch,
            0,
            0,
            0,
            now // MILLISECOND + router.unix_offset_ms,
        )
        router.forwarder.count_published(header, route.number, count, route.civ, qos > 0, now)
        if not route.peers:
            return header.eid, None
        forward = Forward(header, topic, payload, qos, False, publisher.client)
        return header.eid, forward if count == 1 else EventSeries(forward, count)

    def receive(self, peer: str, series: EventSeries, now: Instant) -> list[SendMessage] | None:
        """Receive *series* from *peer* and return the copies that leave; all of it may be delivered to local clients.

        None: the series must be handled event by event.
        """
        if self._router.reorder_buffer.has_events_of(series.first.header.publisher):
            return None
        sends = self._router.forwarder.receive_series(peer, series, now)
        return None if sends is None else _series(sends, series.count)

    def receive_one(self, peer: str, forward: Forward, now: Instant) -> tuple[bool, list[SendMessage]] | None:
        """Receive *forward* from *peer*; return whether local clients may get it, and the copies that leave.

        None: it, or another event, may have to wait for it; then nothing was changed.
        """
        if forward.predecessors or self._router.reorder_buffer.has_events_of(forward.header.publisher):
            return None
        return self._router.forwarder.receive(peer, forward, now)


def _series(sends: list[SendMessage], count: int) -> list[SendMessage]:
    """Return *sends* with each event replaced by a series of *count* events."""
    made: dict[int, EventSeries] = {}
    for send in sends:
        first = send.message
        assert isinstance(first, Forward)
        made.setdefault(id(first), EventSeries(first, count))
    return [SendMessage(send.peer, made[id(send.message)], send.service) for send in sends]
