"""A session that was not kept is from now on: the journal hears of all that it holds."""

from __future__ import annotations

from edgebridge.frontend.keeping import Keeping
from edgebridge.session.durability import Durability
from edgebridge.session.records import ONE, PACKET, Kind
from edgebridge.session.session import Session
from edgebroker.instants import Instant


def go_on(keeping: Keeping, session: Session, durability: Durability, now: Instant) -> None:
    """The client of a session is back, on new terms, which hold from now on: also whether it is kept."""
    if session.number:
        keeping.go_on(session, durability, now)
        return
    keeping.begin(session, durability, now)
    if session.number:
        _adopt(keeping, session, now)


def _adopt(keeping: Keeping, session: Session, now: Instant) -> None:
    """Say what *session* asked for, took and has to get. That it begins was said."""
    for text, record in session.asked.items():
        keeping.subscribed(session, text, ONE.pack(Kind.SUBSCRIBED, session.number) + record[ONE.size :], now)
    for packet_id in session.received:
        keeping.append(PACKET.pack(Kind.RECEIVED, session.number, packet_id), session.waits, now)
    for entry in [*session.inflight, *session.outbox]:
        session.last_copy += 1
        entry.number = session.last_copy
        keeping.published(entry.publication, [(session, entry)], now)
