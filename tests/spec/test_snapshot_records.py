"""Snapshot records between others: all count in the order in which the events happened."""

from __future__ import annotations

from edgebridge.session.inflight import Inflight, QueueEntry
from edgebridge.session.journal.session_records import SENT, SessionRecordKind, message_record, session_record
from edgebridge.session.journal.state import JournalState
from edgebridge.session.queue.outbox import SessionOutbox
from edgebridge.session.session import Session
from edgebroker.names import ClientId
from edgebroker.publication import Publication

CLOCK = 1_700_000_000_000_000


def said(session: Session, number: int, packet_id: int = 0) -> bytes:
    """The snapshot's word on the copy *number* of *session*, of a message as old as that."""
    publication = Publication("bob", "t", b"warm", 1, False, 5)
    publication.stored = number
    entry = QueueEntry(publication, 1, False, (), "t")
    entry.number, entry.packet_id = number, packet_id
    return message_record(publication, CLOCK, [(session, entry)])


def test_what_is_sent_while_a_snapshot_is_made_is_not_older_than_what_it_said_to_wait() -> None:
    """[MQTT-4.6.0-1]: the snapshot says of the first that it waits; both are sent; then it says the second."""
    alice = Session(ClientId("alice"), Inflight(10), SessionOutbox(10, 10_000))
    alice.number = 3
    stored = JournalState()
    stored.apply_row(100, [session_record(alice)])
    stored.apply(said(alice, 1))
    stored.apply(SENT.pack(SessionRecordKind.SENT, 3, 1, 21))
    stored.apply(SENT.pack(SessionRecordKind.SENT, 3, 2, 22))
    stored.apply(said(alice, 2, packet_id=22))
    stored.apply(bytes((SessionRecordKind.STATED,)))
    stored.finish()
    copies = stored.sessions[3].copies.values()
    assert [copy.packet_id for copy in sorted(copies, key=lambda copy: copy.sent)] == [21, 22]
