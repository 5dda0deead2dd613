"""A session that was not kept is from now on: the journal hears of all that it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgebridge.session.records import ONE, PACKET, Kind
from edgebridge.session.session import Session
from edgebroker.instants import Instant

if TYPE_CHECKING:
    from edgebridge.frontend.keeping import Keeping


def adopt(keeping: Keeping, session: Session, now: Instant) -> None:
    """Say what *session* asked for, took and has to get. That it begins was said."""
    for text, record in session.asked.items():
        keeping.subscribed(session, text, ONE.pack(Kind.SUBSCRIBED, session.number) + record[ONE.size :], now)
    for packet_id in session.received:
        keeping.append(PACKET.pack(Kind.RECEIVED, session.number, packet_id), session.waits, now)
    for entry in [*session.inflight, *session.outbox]:
        session.last_copy += 1
        entry.number = session.last_copy
        keeping.published(entry.publication, [(session, entry)], now)
