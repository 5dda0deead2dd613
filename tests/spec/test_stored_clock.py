"""The stored clock of a machine that learns the time: everything is moved once, what waits for other gateways too."""

from __future__ import annotations

import pytest

from edgebridge.session.records import CLOCK, Kind
from edgebridge.session.stored import RecordInvalid, Stored
from edgebroker.header import Header
from edgebroker.instants import CLOCK_IS_SET_AFTER, NEVER
from edgebroker.overlay.classes import Service
from edgebroker.overlay.link.records import entry_record, held_record
from edgebroker.overlay.messages import Forward


def test_what_waits_for_other_gateways_is_moved_once() -> None:
    event = Forward(Header(1, 2, 0, 2, published_ms=5), "t", b"x", 1, False, "bob")
    stored = Stored()
    for record in (
        entry_record("b", Service.LIVE, 1, 70, b""),
        entry_record("b", Service.LIVE, 2, None, b""),
        held_record(event, True, 80),
        CLOCK.pack(Kind.CLOCK, 60),
        CLOCK.pack(Kind.CLOCK_SET, CLOCK_IS_SET_AFTER + 60),
        CLOCK.pack(Kind.CLOCK_SET, CLOCK_IS_SET_AFTER + 70),  # it is known already
    ):
        stored.apply(record)
    assert stored.clock == CLOCK_IS_SET_AFTER + 60
    assert list(stored.links.links["b"].entries[Service.LIVE].values()) == [
        (CLOCK_IS_SET_AFTER + 70, b""),
        (None, b""),
    ]
    assert [at for *_, at in stored.links.held.values()] == [CLOCK_IS_SET_AFTER + 80]
    assert stored.links.misunderstood == 0


def test_a_clock_beyond_all_instants_is_none() -> None:
    stored = Stored()
    stored.apply(CLOCK.pack(Kind.CLOCK, 60))
    with pytest.raises(RecordInvalid):
        stored.apply(CLOCK.pack(Kind.CLOCK_SET, NEVER))
    assert stored.clock == 60
