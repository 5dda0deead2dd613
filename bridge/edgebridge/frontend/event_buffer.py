"""The buffer of events for the operator's log: clients that connect, disconnect or are refused, refused messages, and
sessions that clients end.

The front end adds events, and the world takes them when it has time. The buffer is bounded, and counts what did not
fit. A message that takes its usual way makes no event; no event holds a payload or a password.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from edgebridge.frontend.connection import Connection
from edgebroker.instants import Instant

EVENTS_MAX: Final = 1_000
"""About 200 KiB; a world fetches them ten times a second, so 10,000 a second are told, and more are counted."""

TEXT_MAX: Final = 200
"""Characters: a reason may quote a topic of 64 KiB."""

CONNECTED: Final = "connected"
DISCONNECTED: Final = "disconnected"
PRESENCE: Final = frozenset({CONNECTED, DISCONNECTED})
REFUSED: Final = "refused"
TRACED: Final = "traced"
NOT_PUBLISHED: Final = "not-published"
"""A message that is not taken, for what it is or who says it; 3.1.1 has no word for that."""
NOT_SUBSCRIBED: Final = "not-subscribed"
"""A SUBSCRIBE of which something is not granted."""
SESSION_ENDED: Final = "session-ended"
"""A client ended a session before its expiry, and messages for it were dropped."""
SESSION_STRANDED: Final = "session-stranded"
"""A session moved, and the other gateway was taken out of the topology before all had gone, or come."""


class ClientEvent(NamedTuple):
    """`reason` is the MQTT reason code, 0 where all is well."""

    code: str
    client: str
    peer: str
    reason: int
    text: str
    user: str = ""
    dropped: int = 0
    """Messages that were dropped by it."""


class PresenceObserver(Protocol):
    """Whoever publishes the presence of clients."""

    def enqueue(self, code: str, connection: Connection, now: Instant) -> None:
        """*connection*, which has a session, is connected or disconnected, as *code* says."""


class EventBuffer:
    """Bounded; `missed` counts what did not fit since the last `take`."""

    __slots__ = ("_events", "_presence", "missed")

    def __init__(self, presence: PresenceObserver | None = None) -> None:
        """*presence* is notified at once of every client that connects or disconnects."""
        self._events: list[ClientEvent] = []
        self.missed = 0
        self._presence = presence

    def add(
        self, code: str, connection: Connection, reason: int, text: str, client: str = "", now: Instant = 0
    ) -> None:
        """Note what happened to *connection*; *client* if it has no session that says it, *now* if it came or goes."""
        if self._presence is not None and code in PRESENCE:
            self._presence.enqueue(code, connection, now)
        if len(self._events) >= EVENTS_MAX:
            self.missed += 1
            return
        session = connection.session
        who = client[:TEXT_MAX] if session is None else session.client_id
        self._events.append(ClientEvent(code, who, connection.peer, int(reason), text[:TEXT_MAX]))

    def add_absent(self, code: str, client: str, reason: int, text: str) -> None:
        """As `add`, of a *client* that is gone."""
        if len(self._events) >= EVENTS_MAX:
            self.missed += 1
        else:
            self._events.append(ClientEvent(code, client, "", int(reason), text[:TEXT_MAX]))

    def add_session_end(self, client: str, connection: Connection, user: str, dropped: int, text: str) -> None:
        """Note that *user*, empty for an anonymous client, ended the session of *client* on *connection*."""
        if len(self._events) >= EVENTS_MAX:
            self.missed += 1
        else:
            who, by = client[:TEXT_MAX], user[:TEXT_MAX]
            self._events.append(ClientEvent(SESSION_ENDED, who, connection.peer, 0, text, by, dropped))

    def add_often(self, code: str, connection: Connection, reason: int, text: str) -> None:
        """As `add`, of what one client may do as often as it likes: most of the room is for others.

        What is not noted then is counted where it happened.
        """
        if len(self._events) < EVENTS_MAX // 4:
            self.add(code, connection, reason, text)

    def take(self) -> tuple[list[ClientEvent], int]:
        """What was noted since the last call, and how many notes there was no room for."""
        taken, missed = self._events, self.missed
        if taken:
            self._events, self.missed = [], 0
        return taken, missed
