"""The forwarding cache: the route of events that is the same for every event of a publisher and topic, or for a
whole series.

Nothing is decided here: `Forwarder` is asked, and what it says is remembered while it would say the same. Whoever
has this calls `clear` when interests, advertisements or links have changed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edgebroker.federation.effects import SendMessage
from edgebroker.federation.router import SEQUENCE_MODULUS, FederationRouter
from edgebroker.header import EventHeader
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.overlay.advertisements import Advertisement
from edgebroker.overlay.messages import EventSeries, Forward

CACHED_ROUTES_MAX: Final = 10_000
"""Publishers and topics that are remembered, 300 bytes each; they are all forgotten when there are more."""


class CachedRoute(NamedTuple):
    """How the events of one publisher under one topic leave."""

    record: Advertisement
    peers: tuple[str, ...]
    """Who gets each of them, as it is."""


class ForwardingCache:
    """The usual ways through the gateway of *peers*."""

    def __init__(self, peers: FederationRouter, is_dynamic: bool) -> None:
        """*is_dynamic*: what decides may change at any time; nothing is usual then."""
        self._router = peers
        self._is_dynamic = is_dynamic
        self._routes: dict[tuple[str, str], CachedRoute | None] = {}

    def clear(self) -> None:
        """What decides has changed, or may have."""
        self._routes.clear()

    def route_for(self, client: str, topic: str, count_max: int) -> CachedRoute | None:
        """How up to *count_max* events of a local client leave.

        None: it must be decided for each, for what they contain decides, or they have to wait or to go around.
        """
        key = (client, topic)
        way = self._routes.get(key)
        if way is None:
            if key in self._routes or (record := self._cacheable_record(client, topic)) is None:
                return None
            found = self._router.forwarder.unconditional_peers(topic, record)
            way = None if found is None else CachedRoute(record, found)
            if len(self._routes) >= CACHED_ROUTES_MAX:
                self._routes.clear()
            self._routes[key] = way
        if way is None or way.record.publisher.sequence + count_max >= SEQUENCE_MODULUS:
            return None
        return way

    def _cacheable_record(self, client: str, topic: str) -> Advertisement | None:
        """The advertisement of such events, if they need not wait and go the same way as long as nothing changes."""
        region = self._router.region
        record = None if self._is_dynamic else region.advertisements.find(client, topic)
        return None if record is None or record in region.pending else record

    def publish(
        self, way: CachedRoute, topic: str, payload: bytes, qos: int, count: int, now: Instant
    ) -> Forward | EventSeries | None:
        """*count* events leave, their payloads one behind the other. Returns what to send; None: nobody wants them."""
        record, peers = way.record, self._router
        record.used_at = now
        publisher, advertise = record.publisher, record.advertise
        sequence = publisher.sequence + 1
        publisher.sequence += count
        header = EventHeader(
            publisher.number,
            sequence,
            advertise.adv,
            advertise.hc,
            0,
            peers.interests.epoch,
            0,
            0,
            0,
            now // MILLISECOND + peers.unix_offset_ms,
        )
        peers.forwarder.count_published(header, count)
        if not way.peers:
            return None
        forward = Forward(header, topic, payload, qos, False, advertise.client)
        return forward if count == 1 else EventSeries(forward, count)

    def receive(self, peer: str, series: EventSeries) -> list[SendMessage] | None:
        """*series* came from *peer*: return the copies that leave; local clients may get all of it.

        None: it must be taken event by event.
        """
        if self._router.reorder_buffer.may_reorder(series.first):
            return None
        sends = self._router.forwarder.receive_series(peer, series)
        return None if sends is None else _series(sends, series.count)

    def receive_one(self, peer: str, forward: Forward) -> tuple[bool, list[SendMessage]] | None:
        """*forward* came from *peer*: return whether local clients may get it, and the copies that leave.

        None, and nothing has happened: it may have to wait for others.
        """
        return (
            None if self._router.reorder_buffer.may_reorder(forward) else self._router.forwarder.receive(peer, forward)
        )


def _series(sends: list[SendMessage], count: int) -> list[SendMessage]:
    made: dict[int, EventSeries] = {}
    for send in sends:
        first = send.message
        assert isinstance(first, Forward)
        made.setdefault(id(first), EventSeries(first, count))
    return [SendMessage(send.peer, made[id(send.message)], send.service) for send in sends]
