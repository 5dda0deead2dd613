"""Messages that one member of a shared group transferred to another, after a restart."""

from __future__ import annotations

from edgebridge.session.journal.session_records import message_record, session_record
from edgebridge.session.journal.state import JournalState

from .test_session_records import CLOCK, entry, publication, session


def test_what_was_handed_over_was_sent_behind_what_was_sent_before() -> None:
    """By one member of a group to another, who is sent it at once."""
    stored, first, second = JournalState(), publication(3), publication(4)
    stored.apply(session_record(session(1)))
    stored.apply(session_record(session(2)))
    first.stated, second.stated = 3, 4
    stored.apply(message_record(first, CLOCK, [(session(1), entry(first, 1, packet_id=7))]))
    stored.apply(message_record(second, CLOCK, [(session(2), entry(second, 1, packet_id=1))]))
    first.stated = 5
    stored.apply(message_record(first, CLOCK, [(session(2), entry(first, 2, packet_id=2))], None, (1, 1)))
    sent = sorted(stored.sessions[2].copies.values(), key=lambda copy: copy.sent)
    assert [copy.packet_id for copy in sent] == [1, 2]
