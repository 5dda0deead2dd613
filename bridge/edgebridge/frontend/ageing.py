"""Messages that may wait only so long: one timer for a session that has such (`Spool.age_us`), none for a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from edgebridge.frontend.delivery import LOOKS_AT_ONCE, Delivery
from edgebridge.session.session import Session
from edgebridge.session.spool import Spool
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.names import ClientId
from edgebroker.node.timers import Timers
from edgebroker.records import Cause

PACE: Final = 100 * MILLISECOND
"""A session is looked at ten times a second at most. What is sent is looked at anyway, so nothing too old ever is."""


class Ageing:
    """Drops what has waited for too long, also while the client is away."""

    def __init__(self, timers: Timers, sessions: Mapping[ClientId, Session], delivery: Delivery) -> None:
        self._timers = timers
        self._sessions = sessions
        self._delivery = delivery

    def watch(self, session: Session, now: Instant) -> None:
        """Look after *session* from now on."""
        self._timers.set(("age", session.client_id), now + 1)

    def fire(self, client: ClientId, now: Instant) -> None:
        """Look at what waits for *client*. What has become too old meanwhile may take several turns."""
        session = self._sessions.get(client)
        if session is None or not session.outbox.age_us:  # it ended, or its messages may wait as long as they like
            return
        spool = session.outbox
        assert isinstance(spool, Spool)
        for entry in spool.take_aged(now, self._delivery.is_state, LOOKS_AT_ONCE):
            self._delivery.give_up(session, entry, Cause.TOO_OLD, now)
        due = spool.next_aged_at()
        if due is not None and due <= now:
            self._timers.set(("age", client), now + 1)
            return
        self._delivery.release(session, now)
        due = spool.next_aged_at()
        self._timers.set(("age", client), now + spool.age_us if due is None else max(due, now + PACE))
