"""Promotion of a session to a durable one: the journal gets records of all that the session holds."""

from __future__ import annotations

from collections.abc import Iterable

from edgebridge.frontend.journal.session_journal import SessionJournal
from edgebridge.session.durability import Durability
from edgebridge.session.inflight import QueueEntry
from edgebridge.session.journal.session_records import ONE, PACKET, SessionRecordKind, paged_record
from edgebridge.session.session import Session
from edgebroker.instants import Instant


def resume_session(session_journal: SessionJournal, session: Session, durability: Durability, now: Instant) -> None:
    """The client of a session is back, on new terms, which hold from now on: also whether it is kept."""
    if session.number:
        session_journal.resume_session(session, durability, now)
        return
    session_journal.begin_session(session, durability, now)
    if session.number:
        _promote(session_journal, session, now)


def _promote(session_journal: SessionJournal, session: Session, now: Instant) -> None:
    """Say what *session* asked for, took and has to get. That it begins was said."""
    for text, record in session.subscription_records.items():
        session_journal.subscribed(
            session, text, ONE.pack(SessionRecordKind.SUBSCRIBED, session.number) + record[ONE.size :], now
        )
    for packet_id in session.received:
        session_journal.append(
            PACKET.pack(SessionRecordKind.RECEIVED, session.number, packet_id), session.waits_for_sync, now
        )
    _promote_entries(session_journal, session, [*session.inflight, *session.outbox.before_pages()], now)
    for page in session.outbox.pages:
        if page.entries is not None:
            _promote_entries(session_journal, session, page.entries, now)
            continue
        page.first = session.last_copy + 1
        session.last_copy += page.count
        record = paged_record(session.number, page, session_journal.clock_offset)
        session_journal.append(record, session.waits_for_sync, now)
    _promote_entries(session_journal, session, session.outbox.behind_pages(), now)


def _promote_entries(
    session_journal: SessionJournal, session: Session, entries: Iterable[QueueEntry], now: Instant
) -> None:
    for entry in entries:
        session.last_copy += 1
        entry.number = session.last_copy
        session_journal.published(entry.publication, [(session, entry)], now)
