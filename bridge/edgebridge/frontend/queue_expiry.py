"""Message expiry in queues [MQTT-3.3.2-5]: an expired message leaves its queue, also while its reader is away."""

from __future__ import annotations

from typing import Final

from edgebridge.frontend.journal.queue_pager import QueuePager
from edgebridge.frontend.journal.session_journal import SessionJournal
from edgebridge.session.session import Session
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.log_schema import Cause
from edgebroker.node.ledger import Ledger
from edgebroker.node.timers import TimerQueue

CHECKS_AT_ONCE: Final = 500
"""Messages that waited for too long, in one turn: 2 ms at 4 us for each that is dropped."""
CHECK_INTERVAL: Final = 100 * MILLISECOND
"""A queue is looked at ten times a second at most, and for 1 us of each message in it: what expires is late by that."""

LATEST_DEADLINE: Final = 1 << 62
"""A damaged journal may say any instant of 64 bits; what stands in the queue is one with a sign."""


class QueueExpiry:
    """Takes what has expired out of the queues it waits in [MQTT-3.3.2-5]. One timer for a session with such messages.

    What is sent is looked at anyway, so nothing that has expired ever is.
    """

    def __init__(self, timers: TimerQueue, ledger: Ledger, session_journal: SessionJournal, pager: QueuePager) -> None:
        self._timers = timers
        self._ledger = ledger
        self._journal = session_journal
        self._pager = pager

    def watch(self, session: Session, at: Instant, now: Instant) -> None:
        """A message that waits in *session* expires *at* that instant."""
        outbox = session.outbox
        if not outbox.next_expiry_check_at or at < outbox.next_expiry_check_at:
            self._set_timer(session, max(at, now + CHECK_INTERVAL))

    def fire(self, session: Session, now: Instant) -> None:
        """Look at what waits in *session*. What has expired meanwhile may take several turns."""
        outbox = session.outbox
        outbox.next_expiry_check_at = 0
        if not outbox.expiring:
            return
        for page in [page for page in outbox.pages if page.has_expired(now)]:
            self._pager.give_up(session, page, Cause.NONE, now)
        expired = outbox.dequeue_expired(now, CHECKS_AT_ONCE)
        for entry in expired:
            self._ledger.expire(now, entry.publication, session.client_id, entry.text, entry.qos)
            self._journal.settled(session, entry, now)
        if len(expired) == CHECKS_AT_ONCE:
            self._set_timer(session, now + 1)
        elif (due := outbox.next_expiry()) is not None:
            self._set_timer(session, max(due, now + CHECK_INTERVAL, now + len(outbox)))

    def _set_timer(self, session: Session, at: Instant) -> None:
        at = min(at, LATEST_DEADLINE)
        session.outbox.next_expiry_check_at = at
        self._timers.set(("expire", session.client_id), at)
