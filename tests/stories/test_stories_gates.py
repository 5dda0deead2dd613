"""Who is answered waits for the disk, and for nothing else (P1)."""

from __future__ import annotations

from typing import Any


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
    keeping = play_v5.broker.frontend.keeping
    hold, sent = keeping.hold, keeping.sent
    awaited: list[int] = []
    written: list[int] = []
    keeping.hold = lambda connection, lsn: [awaited.append(lsn), hold(connection, lsn)]
    keeping.sent = lambda *what: [sent(*what), written.append(keeping.journal.lsn)]
    play_v5('alice > CONNECT clean=0    alice < CONNACK present=1    alice < PUBLISH t qos=2 "x"')
    assert written
    assert max(awaited, default=0) <= written[-1]
