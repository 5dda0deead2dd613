"""The stored clock of a machine that learns the time: everything is moved once, what waits for other gateways too."""

from __future__ import annotations

import pytest

from edgebridge.session.journal.session_records import CLOCK, SessionRecordKind
from edgebridge.session.journal.state import JournalState, RecordInvalid
from edgebroker.header import EventHeader
from edgebroker.instants import CLOCK_IS_SET_AFTER, NEVER
from edgebroker.overlay.link.journal_records import entry_record, held_record
from edgebroker.overlay.messages import Forward
from edgebroker.overlay.traffic_class import TrafficClass


def test_what_waits_for_other_gateways_is_moved_once() -> None:
    event = Forward(EventHeader(1, 2, 0, 2, published_ms=5), "t", b"x", 1, False, "bob")
    stored = JournalState()
    for record in (
        entry_record("b", TrafficClass.LIVE, 1, 70, b""),
        entry_record("b", TrafficClass.LIVE, 2, None, b""),
        held_record(event, True, 80),
        CLOCK.pack(SessionRecordKind.CLOCK, 60),
        CLOCK.pack(SessionRecordKind.CLOCK_SET, CLOCK_IS_SET_AFTER + 60),
        CLOCK.pack(SessionRecordKind.CLOCK_SET, CLOCK_IS_SET_AFTER + 70),  # it is known already
    ):
        stored.apply(record)
    assert stored.clock == CLOCK_IS_SET_AFTER + 60
    assert list(stored.links.links["b"].entries[TrafficClass.LIVE].values()) == [
        (CLOCK_IS_SET_AFTER + 70, b""),
        (None, b""),
    ]
    assert [at for *_, at in stored.links.held.values()] == [CLOCK_IS_SET_AFTER + 80]
    assert stored.links.misunderstood == 0


def test_a_clock_beyond_all_instants_is_none() -> None:
    stored = JournalState()
    stored.apply(CLOCK.pack(SessionRecordKind.CLOCK, 60))
    with pytest.raises(RecordInvalid):
        stored.apply(CLOCK.pack(SessionRecordKind.CLOCK_SET, NEVER))
    assert stored.clock == 60
