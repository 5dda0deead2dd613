"""The journal records of a session's durability."""

from __future__ import annotations

import pytest

from edgebridge.session.acl import Acl, read_rule
from edgebridge.session.durability import SYNC, Durability, batched
from edgebridge.session.inflight import Inflight
from edgebridge.session.journal.session_records import BATCHED, SESSION, SessionRecordKind, session_record
from edgebridge.session.journal.state import JournalState, RecordInvalid
from edgebridge.session.queue.outbox import SessionOutbox
from edgebridge.session.session import Session
from edgebridge.wire.packets import Will
from edgebroker.names import ClientId


def promised(record: bytes) -> Durability:
    """What *record* says was promised to session 3."""
    stored = JournalState()
    stored.apply(record)
    stored.finish()
    return stored.sessions[3].durability


def test_what_a_session_was_promised_comes_back() -> None:
    alice = Session(ClientId("alice"), Inflight(10), SessionOutbox(10, 10_000))
    alice.number, alice.expiry_s, alice.sync_delay_us = 3, 60, 60_000_000
    assert promised(session_record(alice)) == batched(60_000)
    alice.will = Will("status/alice", b"gone")
    alice.claims = Acl({}, (read_rule("read sensors/#"),))
    assert promised(session_record(alice)) == batched(60_000)
    alice.waits_for_sync = True
    assert promised(session_record(alice)) == SYNC


def test_where_nothing_was_written_down_it_is_sync() -> None:
    """So it stands in journals of versions that did not: no promise is broken."""
    assert promised(SESSION.pack(SessionRecordKind.SESSION, 3, 60, 0) + b"\0\5alice\0\0") == SYNC


def test_half_a_promise_is_no_record() -> None:
    with pytest.raises(RecordInvalid):
        promised(SESSION.pack(SessionRecordKind.SESSION, 3, 60, BATCHED) + b"\0\5alice\0\0" + b"\0\0\1")
