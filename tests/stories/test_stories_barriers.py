"""Acknowledgements wait for the records they depend on to be synced, and for nothing else (P1)."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.frontend.options import FrontendOptions
from edgebridge.session.durability import batched
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Connect, Publish
from edgebroker.instants import MILLISECOND, SECOND


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
    assert all(gate.lsn <= frontend.journal.storage.lsn for gate in again.barriers)


def test_who_gets_nothing_waits_for_nothing(play_v5: Any) -> None:
    """A message that the reader does not take leaves no record; the next one may come after a minute."""
    play_v5(
        """
    alice > CONNECT clean=0 session=3600 bytes-max=40    alice < CONNACK
    alice > SUBSCRIBE t/# qos=2                          alice < SUBACK granted=2
    bob > CONNECT                                        bob < CONNACK
    """,
        is_stored=True,
    )
    before = play_v5.broker.simulation.now
    play_v5(f"""
    bob > PUBLISH t/1 qos=2 id=1 "{"x" * 100}"           bob < PUBREC
    bob > PUBLISH t/2 "short"                            alice < PUBLISH t/2 "short"
    """)
    assert play_v5.broker.simulation.now - before < SECOND


@pytest.mark.parametrize("clean", [1, 0])
def test_an_end_that_was_told_stays_one(play_v5: Any, clean: int) -> None:
    """CONNACK says that nothing is kept any more: a crash brings nothing back [MQTT-3.1.2-4]."""
    play_v5(
        f"""
    alice > CONNECT clean=0 session=3600    alice < CONNACK
    alice > SUBSCRIBE t qos=2               alice < SUBACK granted=2
    alice cut
    alice > CONNECT clean={clean}           alice < CONNACK present={1 - clean}
    broker crashes                          alice < CLOSED
    alice > CONNECT clean=0                 alice < CONNACK present=0
    """,
        is_stored=True,
    )


def test_an_end_is_told_when_it_is_on_the_disk(play_v5: Any) -> None:
    """Also to who asks a second time: the session is gone from memory by then, and not from the disk."""
    play_v5(
        """
    alice > CONNECT clean=0 session=3600    alice < CONNACK
    alice > SUBSCRIBE t qos=1               alice < SUBACK granted=1
    alice cut
    """,
        is_stored=True,
    )
    disk = play_v5.broker.store.disk
    disk.sync_fails = 1.0
    refused = """alice > CONNECT clean=1    alice < DISCONNECT reason=0x97 why~"takes nothing"    alice < CLOSED"""
    play_v5(refused)
    play_v5(refused)
    play_v5("bob > CONNECT clean=1      bob < CONNACK present=0")
    disk.sync_fails = 0.0
    play_v5("alice > CONNECT clean=1    alice < CONNACK present=0")
    play_v5("broker crashes             alice < CLOSED    bob < CLOSED")
    play_v5("alice > CONNECT clean=0    alice < CONNACK present=0")


def test_batched_answers_run_no_further_ahead_of_a_slow_disk(play_v5: Any) -> None:
    """What waits is late, and later than it may be: who says more has to wait until it is on the disk."""
    play_v5(
        """
    alice > CONNECT clean=0 session=3600    alice < CONNACK
    alice > SUBSCRIBE t qos=1               alice < SUBACK granted=1
    alice cut
    bob > CONNECT                           bob < CONNACK
    wait 1s
    """,
        FrontendOptions(durability=batched(90)),
        is_stored=True,
    )
    frontend, began = play_v5.broker.frontend, play_v5.broker.simulation.now
    session_journal, bob = frontend.journal, play_v5.client("bob").line.connection

    def is_answered(milliseconds: int) -> bool:
        frontend.feed(bob, encode_packet(Publish("t", b"x", 1, packet_id=1), V5), began + milliseconds * MILLISECOND)
        return not bob.count_waiting()

    assert is_answered(0)
    first = session_journal.take_work(began + 90 * MILLISECOND)
    assert is_answered(100), "its record waits until 190 ms"
    assert is_answered(280)
    assert not is_answered(281)
    session_journal.work_done(first, began + 6 * SECOND)
    assert bob.count_waiting()
    session_journal.work_done(session_journal.take_work(began + 6 * SECOND), began + 12 * SECOND)
    assert not bob.count_waiting()
    assert is_answered(12_000)
