"""Presence of clients on $SYS: `$SYS/broker/clients/NAME/connected` and `/disconnected`, where it is enabled.

These messages are QoS 0 and not retained, and are published in a later turn than their cause. A message that no
subscription matches is not published; one with readers counts as a message of the publisher `$SYS`.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Final

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.event_buffer import CONNECTED, TEXT_MAX
from edgebridge.frontend.handlers.publish import PublishHandler
from edgebridge.frontend.options import FrontendHost
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.names import ClientId
from edgebroker.node.node import Node
from edgebroker.publication import Publication

PUBLISHER: Final = ClientId("$SYS")
TOPIC: Final = "$SYS/broker/clients/{}/{}"
TIMER: Final = ("sys", "presence")
PUBLISHED_AT_ONCE: Final = 50
"""Told in one turn: 1 ms at 20 us each."""
WAITING_MAX: Final = 10_000
"""Comings and goings that wait to be told, about 4 MiB; more are counted in `missed`."""
ESCAPES: Final = {ord(octet): f"%{ord(octet):02X}" for octet in "%/+#"}


class ClientPresence:
    """Tells of each client."""

    def __init__(self, node: Node, host: FrontendHost) -> None:
        self.missed = 0
        """Comings and goings that nobody was told of."""
        self._node = node
        self._host = host
        self._waiting: deque[tuple[str, str, bytes]] = deque()

    def enqueue(self, code: str, connection: Connection, now: Instant) -> None:
        """*connection*, which has a session, came or went."""
        session = connection.session
        if session is None or len(self._waiting) >= WAITING_MAX:
            self.missed += 1
            return
        told: dict[str, str | int | bool] = {
            "client": session.client_id,
            "user": session.user,
            "address": connection.peer,
            "listener": connection.listener_context.name,
        }
        if code == CONNECTED:
            resumed = {"session_present": connection.is_resumed, "expiry_s": session.expiry_s}
            told |= {"version": connection.dialect.version, **resumed}
        else:
            reason, why = connection.disconnect_reason or (None, "")
            told |= {"reason": "connection_lost" if reason is None else _reason_name(reason), "why": why[:TEXT_MAX]}
        told["unix_ms"] = self._host.unix_us() // MILLISECOND
        if not self._waiting:
            self._node.timers.set(TIMER, now + 1)  # a later instant: what made it comes first
        self._waiting.append((session.client_id, code, json.dumps(told, separators=(",", ":")).encode()))

    def publish(self, publish_handler: PublishHandler, now: Instant) -> None:
        """Publish some of what waits, and set the timer for the rest."""
        for _ in range(min(PUBLISHED_AT_ONCE, len(self._waiting))):
            client, code, payload = self._waiting.popleft()
            topic = TOPIC.format(client.translate(ESCAPES), code)
            route = self._node.routes.route(topic)
            if route.copies or route.groups or route.extractor is not None:
                publish_handler.route(Publication(PUBLISHER, topic, payload, 0, False, now), route, now)
        if self._waiting:
            self._node.timers.set(TIMER, now + 1)


def _reason_name(reason: int) -> str:
    if not reason:
        return "normal_disconnection"  # of DISCONNECT; the same number has other names elsewhere
    try:
        return ReasonCode(reason).name.lower()
    except ValueError:  # of a client that has its own
        return f"0x{reason:02X}"
