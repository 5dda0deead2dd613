"""Who comes and who goes, told as messages: `$SYS/broker/clients/NAME/connected` and `/disconnected`, where wanted.

They are QoS 0 and not retained, and said in a turn of their own, after what made them. Who is asked for by nobody costs
a look at the subscriptions; who is, is a message of the publisher `$SYS` like any other, and rules hold for it.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Final

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.notes import CONNECTED, TEXT_MAX, Notes
from edgebridge.frontend.publishing import Publishing
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.names import ClientId
from edgebroker.node.node import Node
from edgebroker.publication import Publication

PUBLISHER: Final = ClientId("$SYS")
TOPIC: Final = "$SYS/broker/clients/{}/{}"
TIMER: Final = ("sys", "presence")
AT_ONCE: Final = 50
"""Told in one turn: 1 ms at 20 us each."""
WAITING_MAX: Final = 10_000
"""Comings and goings that wait to be told, about 4 MiB; more are counted in `missed`."""
NOT_IN_A_LEVEL: Final = {ord(octet): f"%{ord(octet):02X}" for octet in "%/+#"}


class Presence:
    """Tells of each client."""

    def __init__(self, node: Node, publishing: Publishing, notes: Notes, unix_us: Callable[[], int]) -> None:
        """*unix_us*: what the wall clock says."""
        self.missed = 0
        """Comings and goings that nobody was told of."""
        self._node = node
        self._publishing = publishing
        self._unix_us = unix_us
        self._waiting: deque[tuple[str, str, bytes]] = deque()
        notes.watch = self._noted

    def _noted(self, code: str, connection: Connection, now: Instant) -> None:
        """*connection*, which has a session, came or went."""
        session = connection.session
        if session is None or len(self._waiting) >= WAITING_MAX:
            self.missed += 1
            return
        told: dict[str, str | int | bool] = {
            "client": session.client_id,
            "user": session.user,
            "address": connection.peer,
            "listener": connection.entrance.name,
        }
        if code == CONNECTED:
            resumed = {"session_present": connection.is_resumed, "expiry_s": session.expiry_s}
            told |= {"version": connection.dialect.version, **resumed}
        else:
            reason, why = connection.farewell or (None, "")
            told |= {"reason": "connection_lost" if reason is None else _name_of(reason), "why": why[:TEXT_MAX]}
        told["unix_ms"] = self._unix_us() // MILLISECOND
        if not self._waiting:
            self._node.timers.set(TIMER, now + 1)  # a later instant: what made it comes first
        self._waiting.append((session.client_id, code, json.dumps(told, separators=(",", ":")).encode()))

    def fire(self, now: Instant) -> None:
        """Tell some, and come again for the rest."""
        for _ in range(min(AT_ONCE, len(self._waiting))):
            client, code, payload = self._waiting.popleft()
            topic = TOPIC.format(client.translate(NOT_IN_A_LEVEL), code)
            route = self._node.routes.route(topic)
            if route.copies or route.groups or route.extractor is not None:
                self._publishing.route(Publication(PUBLISHER, topic, payload, 0, False, now), route, now)
        if self._waiting:
            self._node.timers.set(TIMER, now + 1)


def _name_of(reason: int) -> str:
    if not reason:
        return "normal_disconnection"  # of DISCONNECT; the same number has other names elsewhere
    try:
        return ReasonCode(reason).name.lower()
    except ValueError:  # of a client that has its own
        return f"0x{reason:02X}"
