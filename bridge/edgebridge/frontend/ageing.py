"""Messages that may wait only so long: one timer for a session that has such (`Spool.age_us`), none for a message."""

from __future__ import annotations

from typing import Final

from edgebridge.frontend.delivery import LOOKS_AT_ONCE, Delivery
from edgebridge.session.session import Session
from edgebridge.session.spool import Spool
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.node.timers import Timers
from edgebroker.records import Cause

PACE: Final = 100 * MILLISECOND
"""A session is looked at ten times a second at most. What is sent is looked at anyway, so nothing too old ever is."""


class Ageing:
    """Drops what has waited for too long, also while the client is away."""

    def __init__(self, timers: Timers, delivery: Delivery) -> None:
        self._timers = timers
        self._delivery = delivery

    def watch(self, session: Session, now: Instant) -> None:
        """Look after *session* from now on."""
        self._timers.set(("age", session.client_id), now + 1)

    def fire(self, session: Session, now: Instant) -> None:
        """Look at what waits in *session*. What has become too old meanwhile may take several turns."""
        if not session.outbox.age_us:  # its messages may wait as long as they like by now
            return
        spool = session.outbox
        assert isinstance(spool, Spool)
        for entry in spool.take_aged(now, self._delivery.is_state, LOOKS_AT_ONCE):
            self._delivery.give_up(session, entry, Cause.TOO_OLD, now)
        due = spool.next_aged_at()
        if due is not None and due <= now:
            self._timers.set(("age", session.client_id), now + 1)
            return
        self._delivery.release(session, now)
        due = spool.next_aged_at()
        self._timers.set(("age", session.client_id), now + spool.age_us if due is None else max(due, now + PACE))
