"""The fast path of events between clients and links: ordinary events, and whole batches of QoS 0.

A batch of a local publisher leaves as a series, and a series arrives as a batch; at QoS 1 its events are delivered one
by one. Everything else goes through `FederationMember`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from edgebridge.frontend.connection import OutBatch
from edgebridge.frontend.delivery import Delivery
from edgebridge.frontend.fast_path.fan_out import FanOutCache
from edgebridge.frontend.fast_path.qos0_batch import Qos0Batches
from edgebridge.frontend.federation.peer_copies import PeerCopyLedger
from edgebridge.frontend.federation.roaming.roaming import RoamingSessions
from edgebroker.federation.effects import SendMessage
from edgebroker.federation.forwarding_cache import CachedRoute, ForwardingCache
from edgebroker.instants import Instant
from edgebroker.log_schema import EventId, MessageOrigin
from edgebroker.node.node import Node
from edgebroker.node.routes import Route
from edgebroker.node.subscriptions import Copy
from edgebroker.overlay.link.class_queue import events_of
from edgebroker.overlay.link.outbox import reliable_parts
from edgebroker.overlay.messages import EventSeries, Forward, Message
from edgebroker.publication import Publication, plain
from edgebroker.topics import has_disallowed, is_reserved


class FederationFastPath:
    """Where the usual passes. *send* and *pass_on* give something to links, *accept* is the long way in."""

    def __init__(
        self,
        serial: ForwardingCache,
        node: Node,
        delivery: Delivery,
        plans: FanOutCache,
        runs: Qos0Batches,
        send: Callable[[Collection[str], Message, Instant], None],
        pass_on: Callable[[Collection[SendMessage], Instant], None],
        accept: Callable[[Publication, Route, Instant], tuple[Copy, ...]],
        is_tight: Callable[[int, int], bool],
        peer_copies: PeerCopyLedger,
    ) -> None:
        self._forwarding_cache = serial
        self._node = node
        self._delivery = delivery
        self._fan_out_cache = plans
        self._qos0_batches = runs
        self._send = send
        self._send_all = pass_on
        self._accept = accept
        self._peer_copies = peer_copies
        self.roaming: RoamingSessions | None = None
        """While sessions move, events of QoS 1 take the long way."""
        self.may_refuse = is_tight
        """Whether one of several events may have to be refused, for too much waits for a peer: their bytes in all, and
        their number.
        """
        self.invalidate = serial.clear
        """To be called when interests, advertisements or links have changed."""

    @property
    def is_roaming(self) -> bool:
        """Whether sessions move, so that events of QoS 1 take the long way."""
        return self.roaming is not None and self.roaming.is_active

    def route_of(self, client: str, topic: str, count_max: int) -> CachedRoute | None:
        """The way of a run of up to *count_max* messages; None: each takes the long way."""
        return self._forwarding_cache.route_for(client, topic, count_max)

    def send_batch(
        self, way: CachedRoute, topic: str, payloads: bytes, count: int, now: Instant, qos: int = 0
    ) -> EventId:
        """Send a run of QoS 0 or 1 to the peers of *way*, and return the identity of its first event.

        The ledger does not know its copies yet: `open_batch` follows at QoS 0.
        """
        eid, message = self._forwarding_cache.publish(way, topic, payloads, qos, count, now)
        if message is not None and qos and len(way.peers) > 1 and isinstance(message, EventSeries):
            for part in reliable_parts(message):  # each is one record of the journal for all peers
                self._send(way.peers, part, now)
        elif message is not None:
            self._send(way.peers, message, now)
        return eid

    def open_batch(
        self,
        peers: Iterable[str],
        eid: EventId,
        publisher: str,
        first: int,
        count: int,
        topic: str,
        payload_bytes: int,
        now: Instant,
        origin: int = 0,
    ) -> None:
        """Tell the delivery log, if there is one, of the copies of a run for *peers*. *first*: its first number."""
        ledger = self._node.ledger
        if ledger.log is not None:
            has_rows = ledger.is_sampled(first, count)
            for peer in peers:
                batch = OutBatch(publisher, first, count, topic, "", now, payload_bytes, has_rows, None, origin)
                self._peer_copies.open_batch(peer, eid, batch, now)

    def accept(self, publication: Publication, route: Route, now: Instant) -> tuple[Copy, ...]:
        """As `Overlay.accept`, for a publication of QoS 1 without properties that is not to be retained."""
        way = None
        if not self.is_roaming:
            way = self.route_of(publication.publisher, publication.topic, 1)
        if way is None:
            return self._accept(publication, route, now)
        eid, message = self._forwarding_cache.publish(
            way, publication.topic, publication.payload, publication.qos, 1, now
        )
        if message is not None:
            self._send(way.peers, message, now)
        copies = route.accept(publication, self._node.ledger, now, len(way.peers), eid)
        self.open_copies(way.peers, eid, publication, now)
        return copies

    def open_copies(self, peers: Iterable[str], eid: EventId, publication: Publication, now: Instant) -> None:
        """Tell the delivery log, if there is one, of the copies of *publication* for *peers*."""
        if self._node.ledger.log is not None:
            for peer in peers:
                self._peer_copies.open_copy(peer, eid, publication, now)

    def receive(self, peer: str, message: Forward | EventSeries, now: Instant) -> bool:
        """Hand *message* to local clients and pass it on. False, and nothing has happened: it must go the long way."""
        first, roaming = message if isinstance(message, Forward) else message.first, self.roaming
        if (
            first.qos == 2  # nobody may have it before its group of records is on disk
            or first.retain
            or first.user
            or first.properties
            or first.content_type is not None
            or first.expires_in_ms is not None
            or first.header.trace  # its deliveries are recorded
            or is_reserved(first.topic)
            or (roaming is not None and roaming.is_active and (first.qos or roaming.is_late(*first.header.eid)))
        ):
            return False
        if isinstance(message, Forward):
            return self._receive_event(peer, message, now)
        return self._receive_series(peer, message, now)

    def _receive_event(self, peer: str, forward: Forward, now: Instant) -> bool:
        found = self._forwarding_cache.receive_one(peer, forward, now)
        if found is None:
            return False
        is_ours, sends = found
        if sends:
            self._send_all(sends, now)
        ledger, eid = self._node.ledger, forward.header.eid
        if not is_ours and not sends:
            return True
        publication = plain(forward.client, forward.topic, forward.payload, forward.qos, now)
        publication.origin = MessageOrigin.PEER
        if is_ours:
            route = self._node.routes.route(forward.topic)
            copies = route.accept(publication, ledger, now, len(sends), eid)
            self._delivery.deliver_promised(publication, copies, now)
        else:
            publication.number = ledger.accept(
                now,
                forward.client,
                1,
                forward.topic,
                forward.qos,
                len(forward.payload),
                len(sends),
                event=eid,
                origin=MessageOrigin.PEER,
            )
        if ledger.log is not None:
            for send in sends:
                self._peer_copies.open_copy(send.peer, eid, publication, now)
        return True

    def _receive_series(self, peer: str, series: EventSeries, now: Instant) -> bool:
        first = series.first
        if first.qos:
            return self._receive_reliable_series(peer, series, now)
        if has_disallowed(first.topic):  # of an older version; here no client may say it, and no plan is made for it
            return False
        plan = self._fan_out_cache.fan_out(first.topic.encode())
        if not plan.is_uniform:
            return False
        sends = self._forwarding_cache.receive(peer, series, now)
        if sends is None:
            return False
        self._send_all(sends, now)
        eid = first.header.eid
        number = self._qos0_batches.deliver_payloads(
            plan, first.payload, series.count, first.client, len(sends), eid, now
        )
        size = len(first.payload) // series.count
        peers = [send.peer for send in sends]
        self.open_batch(peers, eid, first.client, number, series.count, first.topic, size, now, MessageOrigin.PEER)
        return True

    def _receive_reliable_series(self, peer: str, series: EventSeries, now: Instant) -> bool:
        """Do what `_receive_event` does for each event of *series*, which is of QoS 1. An error in one delivery is
        raised when all others are done.
        """
        first, (publisher, sequence) = series.first, series.first.header.eid
        routes, ledger = self._node.routes, self._node.ledger
        if routes.route(first.topic).extractor is not None:  # each has readers of its own
            return False
        sends = self._forwarding_cache.receive(peer, series, now)
        if sends is None:
            return False
        if len(sends) == 1 and not _is_marked(sends[0]):
            self._send_all(sends, now)
        elif sends:  # each event is one record for all, with the marks of each copy
            for events in zip(*[events_of(send.message) for send in sends], strict=True):
                pairs = zip(sends, events, strict=True)
                self._send_all([SendMessage(send.peer, event, send.service) for send, event in pairs], now)
        failure: Exception | None = None
        peers = [send.peer for send in sends]
        payload, size, end = first.payload, len(first.payload) // series.count, len(first.payload)
        for number, at in enumerate(range(0, end, size), sequence):
            publication = plain(first.client, first.topic, payload[at : at + size], 1, now)
            publication.origin = MessageOrigin.PEER
            copies = routes.route(first.topic).accept(publication, ledger, now, len(sends), (publisher, number))
            try:
                self._delivery.deliver_promised(publication, copies, now)
            except Exception as error:
                failure = error
            self.open_copies(peers, (publisher, number), publication, now)
        if failure is not None:
            raise failure
        return True


def _is_marked(send: SendMessage) -> bool:
    """Return whether a series is for other clusters than the peer's too."""
    return isinstance(send.message, EventSeries) and send.message.first.header.civ != 0
