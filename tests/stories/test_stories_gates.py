"""Who is answered waits for the disk, and for nothing else (P1)."""

from __future__ import annotations

from typing import Any

from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Connect


def test_nobody_waits_for_a_record_that_is_not_written(play_v5: Any) -> None:
    """A session that is not to be kept any longer still has messages, whose identifiers nobody writes down."""
    play_v5(
        """
    alice > CONNECT clean=0 session=600    alice < CONNACK
    alice > SUBSCRIBE t qos=2              alice < SUBACK granted=2
    alice > DISCONNECT
    bob > CONNECT                          bob < CONNACK
    bob > PUBLISH t qos=2 "x"              bob < PUBREC
    """,
        is_stored=True,
    )
    frontend, now = play_v5.broker.frontend, play_v5.broker.simulation.now
    again = frontend.opened("elsewhere", now)
    frontend.feed(again, encode_packet(Connect("alice", clean_start=False), V5), now)
    assert len(again.out) == 2, "CONNACK and the message"
    assert all(gate.lsn <= frontend.keeping.journal.lsn for gate in again.gates)
