"""Messages that wait and have expired: their places are for others, whether anybody comes to read or not."""

from __future__ import annotations

from typing import Final

from edgebridge.frontend.delivery import LOOKS_AT_ONCE
from edgebridge.frontend.keeping import Keeping
from edgebridge.session.session import Session
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.node.ledger import Ledger
from edgebroker.node.timers import Timers

PACE: Final = 100 * MILLISECOND
"""A queue is looked at ten times a second at most, and for 1 us of each message in it: what expires is late by that."""

FAR: Final = 1 << 62
"""A damaged journal may say any instant of 64 bits; what stands in the queue is one with a sign."""


class Expiring:
    """Takes what has expired out of the queues it waits in [MQTT-3.3.2-5]. One timer for a session with such messages.

    What is sent is looked at anyway, so nothing that has expired ever is.
    """

    def __init__(self, timers: Timers, ledger: Ledger, keeping: Keeping) -> None:
        self._timers = timers
        self._ledger = ledger
        self._keeping = keeping

    def watch(self, session: Session, at: Instant, now: Instant) -> None:
        """A message that waits in *session* expires *at* that instant."""
        outbox = session.outbox
        if not outbox.looks_at or at < outbox.looks_at:
            self._look(session, max(at, now + PACE))

    def fire(self, session: Session, now: Instant) -> None:
        """Look at what waits in *session*. What has expired meanwhile may take several turns."""
        outbox = session.outbox
        outbox.looks_at = 0
        if not outbox.expiring:
            return
        expired = outbox.take_expired(now, LOOKS_AT_ONCE)
        for entry in expired:
            self._ledger.expire(now, entry.publication, session.client_id, entry.text, entry.qos)
            self._keeping.settled(session, entry, now)
        if len(expired) == LOOKS_AT_ONCE:
            self._look(session, now + 1)
        elif (due := outbox.next_expiry()) is not None:
            self._look(session, max(due, now + PACE, now + len(outbox)))

    def _look(self, session: Session, at: Instant) -> None:
        at = min(at, FAR)
        session.outbox.looks_at = at
        self._timers.set(("expire", session.client_id), at)
