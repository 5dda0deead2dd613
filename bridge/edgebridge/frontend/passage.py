"""The short way of events between clients and links: what is usual, and for runs of messages all at once.

A run of a local publisher leaves as a series, and a series comes out as a run. Whatever is not usual goes through
`Overlay`, as all does while there is a delivery log: that notes the identity of each event.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from edgebridge.frontend.delivery import Delivery
from edgebridge.frontend.plans import Plans
from edgebridge.frontend.runs import Runs
from edgebroker.codepoints import has_disallowed
from edgebroker.instants import Instant
from edgebroker.node.node import Node
from edgebroker.node.peereffects import Send
from edgebroker.node.routes import Route
from edgebroker.node.serial import Serial, Way
from edgebroker.node.subscriptions import Copy
from edgebroker.overlay.messages import Forward, Message, Series
from edgebroker.publication import Publication, plain


class Passage:
    """Where the usual passes. *send* and *pass_on* give something to links, *accept* is the long way in."""

    def __init__(
        self,
        serial: Serial,
        node: Node,
        delivery: Delivery,
        plans: Plans,
        runs: Runs,
        send: Callable[[Collection[str], Message, Instant], None],
        pass_on: Callable[[Iterable[Send], Instant], None],
        accept: Callable[[Publication, Route, Instant], tuple[Copy, ...]],
        is_tight: Callable[[int], bool],
    ) -> None:
        self._serial = serial
        self._node = node
        self._delivery = delivery
        self._plans = plans
        self._runs = runs
        self._send = send
        self._pass_on = pass_on
        self._accept = accept
        self.is_tight = is_tight
        """Whether an event of so many bytes may have to be refused, for too much waits for a peer."""
        self.forget = serial.forget
        """To be called when interests, advertisements or links have changed."""

    def way(self, client: str, topic: str, count_max: int) -> Way | None:
        """The way of a run of up to *count_max* messages; None: each takes the long way."""
        return None if self._node.ledger.log is not None else self._serial.way(client, topic, count_max)

    def leave(self, way: Way, topic: str, payloads: bytes, count: int, now: Instant) -> int:
        """Send a run of QoS 0 on its way. Returns to how many peers: the books do not know of them yet."""
        message = self._serial.leave(way, topic, payloads, 0, count, now)
        if message is not None:
            self._send(way.peers, message, now)
        return len(way.peers)

    def accept(self, publication: Publication, route: Route, now: Instant) -> tuple[Copy, ...]:
        """As `Overlay.accept`, for a publication of QoS 1 without properties that is not to be retained."""
        way = self.way(publication.publisher, publication.topic, 1)
        if way is None:
            return self._accept(publication, route, now)
        message = self._serial.leave(way, publication.topic, publication.payload, publication.qos, 1, now)
        if message is not None:
            self._send(way.peers, message, now)
        return route.accept(publication, self._node.ledger, now, len(way.peers))

    def came(self, peer: str, message: Forward | Series, now: Instant) -> bool:
        """Hand *message* to local clients and pass it on. False, and nothing has happened: it must go the long way."""
        first = message if isinstance(message, Forward) else message.first
        if (
            first.qos == 2  # nobody may have it before its group of records is on disk
            or first.retain
            or first.user
            or first.properties
            or first.content_type is not None
            or first.expires_in_ms is not None
            or first.topic.startswith("$")
            or self._node.ledger.log is not None
        ):
            return False
        if isinstance(message, Forward):
            return self._came_alone(peer, message, now)
        return self._came_together(peer, message, now)

    def _came_alone(self, peer: str, forward: Forward, now: Instant) -> bool:
        found = self._serial.receive_one(peer, forward)
        if found is None:
            return False
        is_ours, sends = found
        if sends:
            self._pass_on(sends, now)
        if is_ours:
            publication = plain(forward.client, forward.topic, forward.payload, forward.qos, now)
            route = self._node.routes.route(forward.topic)
            copies = route.accept(publication, self._node.ledger, now, len(sends))
            self._delivery.deliver_promised(publication, copies, now)
        elif sends:
            payload_bytes = len(forward.payload)
            self._node.ledger.accept(now, forward.client, 1, forward.topic, forward.qos, payload_bytes, len(sends))
        return True

    def _came_together(self, peer: str, series: Series, now: Instant) -> bool:
        first = series.first
        if has_disallowed(first.topic):  # of an older version; here no client may say it, and no plan is made for it
            return False
        plan = self._plans.plan(first.topic.encode())
        if not plan.is_quick:
            return False
        sends = self._serial.receive(peer, series)
        if sends is None:
            return False
        self._pass_on(sends, now)
        self._runs.hand_payloads(plan, first.payload, series.count, first.client, len(sends), now)
        return True
