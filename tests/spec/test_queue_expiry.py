"""The timer of queue expiry: who sets it, and when."""

from __future__ import annotations

from edgebridge.frontend.journal.queue_pager import QueuePager
from edgebridge.frontend.journal.session_journal import SessionJournal
from edgebridge.frontend.queue_expiry import CHECK_INTERVAL, LATEST_DEADLINE, QueueExpiry
from edgebridge.session.inflight import Inflight, new_queue_entry
from edgebridge.session.queue.outbox import SessionOutbox
from edgebridge.session.session import Session
from edgebroker.names import ClientId
from edgebroker.node.ledger import Ledger
from edgebroker.node.timers import TimerQueue
from edgebroker.publication import Publication


def test_any_instant_of_a_journal_may_be_waited_for() -> None:
    timers, ledger = TimerQueue(), Ledger()
    session = Session(ClientId("c"), Inflight(1), SessionOutbox(9, 1_000))
    for expires_at in ((1 << 64) - 1, 5):
        publication = Publication("p", "t", b"x", 1, False, 0, expires_at=expires_at)
        session.outbox.restore(new_queue_entry(publication, 1, False, (), "t"))
    session_journal = SessionJournal(timers, None)
    expiring = QueueExpiry(timers, ledger, session_journal, QueuePager(timers, ledger, session_journal))
    expiring.fire(session, 4)
    assert timers.next_due() == 4 + CHECK_INTERVAL
    expiring.fire(session, 4 + CHECK_INTERVAL)
    assert (len(session.outbox), ledger.expired) == (1, 1)
    assert timers.next_due() == LATEST_DEADLINE
