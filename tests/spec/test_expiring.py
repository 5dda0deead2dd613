"""Who looks for what has expired, and when."""

from __future__ import annotations

from edgebridge.frontend.expiring import FAR, PACE, Expiring
from edgebridge.frontend.keeping import Keeping
from edgebridge.session.inflight import Inflight, entry_of
from edgebridge.session.outbox import Outbox
from edgebridge.session.session import Session
from edgebroker.names import ClientId
from edgebroker.node.ledger import Ledger
from edgebroker.node.timers import Timers
from edgebroker.publication import Publication


def test_any_instant_of_a_journal_may_be_waited_for() -> None:
    timers, ledger = Timers(), Ledger()
    session = Session(ClientId("c"), Inflight(1), Outbox(9, 1_000))
    for expires_at in ((1 << 64) - 1, 5):
        publication = Publication("p", "t", b"x", 1, False, 0, expires_at=expires_at)
        session.outbox.restore(entry_of(publication, 1, False, (), "t"))
    expiring = Expiring(timers, ledger, Keeping(timers, None))
    expiring.fire(session, 4)
    assert timers.next_due() == 4 + PACE
    expiring.fire(session, 4 + PACE)
    assert (len(session.outbox), ledger.expired) == (1, 1)
    assert timers.next_due() == FAR
