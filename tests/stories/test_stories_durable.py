"""What was acknowledged is on disk (P1, P2, P3): the power fails in the middle of every conversation here."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from edgebridge.frontend.handlers.publish_admission import Refusal
from edgebridge.frontend.options import FrontendOptions
from edgebridge.session.durability import MEMORY, batched
from edgebroker.instants import MILLISECOND, SECOND


@pytest.fixture
def keep(play: Any) -> Any:
    """Plays in both dialects, with a broker that has a disk. A session is kept for an hour."""
    return partial(play, is_stored=True)


@pytest.fixture
def keep_v5(play_v5: Any) -> Any:
    return partial(play_v5, is_stored=True)


@pytest.fixture
def keep_v311(play_v311: Any) -> Any:
    return partial(play_v311, is_stored=True)


# -- what survives -----------------------------------------------------------------------------------------------


def test_a_session_its_subscriptions_and_its_queue_survive(keep: Any) -> None:
    keep("""
    alice > CONNECT clean=0 session=3600    alice < CONNACK present=0
    alice > SUBSCRIBE t/# qos=1             alice < SUBACK granted=1
    alice > SUBSCRIBE gone qos=1            alice < SUBACK granted=1
    alice > UNSUBSCRIBE gone                alice < UNSUBACK
    alice cut
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH t/1 qos=1 "one"           bob < PUBACK
    bob > PUBLISH t/2 qos=1 "two"           bob < PUBACK
    broker crashes                          bob < CLOSED
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH t/1 qos=1 "three"         bob < PUBACK
    bob > PUBLISH gone qos=1 "four"         bob < PUBACK
    alice > CONNECT clean=0 session=3600
    alice < CONNACK present=1
    alice < PUBLISH t/1 qos=1 "one"
    alice < PUBLISH t/2 qos=1 "two"
    alice < PUBLISH t/1 qos=1 "three"
    """)


def test_a_session_that_is_not_to_last_does_not_survive(keep: Any) -> None:
    keep("""
    alice > CONNECT clean=1           alice < CONNACK
    alice > SUBSCRIBE t/# qos=1       alice < SUBACK granted=1
    broker crashes                    alice < CLOSED
    alice > CONNECT clean=0           alice < CONNACK present=0
    """)


def test_what_a_reader_acknowledged_does_not_come_again(keep_v5: Any) -> None:
    """Once the disk knows: after the tenth of a second for which nobody waits."""
    keep_v5("""
    alice > CONNECT clean=0 session=3600    alice < CONNACK present=0
    alice > SUBSCRIBE t/# qos=2             alice < SUBACK granted=2
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH t/1 qos=1 "one"           bob < PUBACK    alice < PUBLISH t/1 qos=1 "one"
    alice > PUBACK
    bob > PUBLISH t/2 qos=2 "two"           bob < PUBREC    alice < PUBLISH t/2 qos=2 "two"
    alice > PUBREC                          alice < PUBREL
    alice > PUBCOMP
    bob > PUBLISH t/3 qos=1 "three"         bob < PUBACK    alice < PUBLISH t/3 qos=1 "three" id=3
    wait 200ms
    broker crashes                          bob < CLOSED    alice < CLOSED
    alice > CONNECT clean=0 session=3600
    alice < CONNACK present=1
    alice < PUBLISH t/3 qos=1 "three" id=3 dup=1
    """)


def test_qos_2_goes_on_where_it_was_on_the_way_in(keep: Any) -> None:
    """PUBREC was sent, so the message is ours: its second coming is known, and it is delivered once."""
    keep("""
    alice > CONNECT clean=0 session=3600    alice < CONNACK present=0
    alice > SUBSCRIBE t/# qos=2             alice < SUBACK granted=2
    alice cut
    bob > CONNECT clean=0 session=3600      bob < CONNACK present=0
    bob > PUBLISH t/1 qos=2 id=7 "one"      bob < PUBREC id=7
    broker crashes                          bob < CLOSED
    bob > CONNECT clean=0 session=3600      bob < CONNACK present=1
    bob > PUBLISH t/1 qos=2 id=7 dup=1 "one"    bob < PUBREC id=7
    bob > PUBREL id=7                       bob < PUBCOMP id=7
    broker crashes                          bob < CLOSED
    bob > CONNECT clean=0 session=3600      bob < CONNACK present=1
    bob > PUBLISH t/1 qos=2 id=7 "two"      bob < PUBREC id=7
    alice > CONNECT clean=0 session=3600
    alice < CONNACK present=1
    alice < PUBLISH t/1 qos=2 "one"
    alice < PUBLISH t/1 qos=2 "two"
    """)


def test_an_identifier_of_which_no_copy_is_kept_is_remembered_too(keep: Any) -> None:
    keep("""
    bob > CONNECT clean=0 session=3600      bob < CONNACK present=0
    bob > PUBLISH t/1 qos=2 id=7 "one"      bob < PUBREC id=7
    broker crashes                          bob < CLOSED
    alice > CONNECT                         alice < CONNACK
    alice > SUBSCRIBE t/#                   alice < SUBACK granted=0
    bob > CONNECT clean=0 session=3600      bob < CONNACK present=1
    bob > PUBLISH t/1 qos=2 id=7 dup=1 "one"    bob < PUBREC id=7
    """)


def test_qos_2_goes_on_where_it_was_on_the_way_out(keep: Any) -> None:
    """PUBREL was sent, so the reader has the message: it is not sent again, its PUBREL is."""
    keep("""
    alice > CONNECT clean=0 session=3600    alice < CONNACK present=0
    alice > SUBSCRIBE t/# qos=2             alice < SUBACK granted=2
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH t/1 qos=2 "one"           bob < PUBREC    alice < PUBLISH t/1 qos=2 "one" id=1
    broker crashes                          bob < CLOSED    alice < CLOSED
    alice > CONNECT clean=0 session=3600
    alice < CONNACK present=1
    alice < PUBLISH t/1 qos=2 "one" id=1 dup=1
    alice > PUBREC id=1                     alice < PUBREL id=1
    broker crashes                          alice < CLOSED
    alice > CONNECT clean=0 session=3600
    alice < CONNACK present=1
    alice < PUBREL id=1
    alice > PUBCOMP id=1
    """)


def test_retained_messages_survive_and_so_does_their_absence(keep: Any) -> None:
    keep("""
    bob > CONNECT                                  bob < CONNACK
    bob > PUBLISH r/1 qos=1 retain=1 "one"         bob < PUBACK
    bob > PUBLISH r/2 qos=1 retain=1 "two"         bob < PUBACK
    bob > PUBLISH r/1 qos=1 retain=1 ""            bob < PUBACK
    broker crashes                                 bob < CLOSED
    alice > CONNECT                                alice < CONNACK
    alice > SUBSCRIBE r/# qos=1
    alice < SUBACK granted=1
    alice < PUBLISH r/2 qos=1 retain=1 "two"
    """)


def test_properties_survive_and_expiry_goes_on(keep_v5: Any) -> None:
    keep_v5("""
    alice > CONNECT clean=0 session=3600    alice < CONNACK present=0
    alice > SUBSCRIBE t/# qos=1 sub=77   alice < SUBACK granted=1
    alice cut
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH t/1 qos=1 expiry=5 "soon over"    bob < PUBACK
    bob > PUBLISH t/1 qos=1 expiry=60 type=text/plain user.unit=C "later"    bob < PUBACK
    wait 4s
    broker crashes                          bob < CLOSED
    wait 6s
    alice > CONNECT clean=0 session=3600
    alice < CONNACK present=1
    alice < PUBLISH t/1 qos=1 type=text/plain user.unit=C expiry=50 sub=77 "later"
    """)


def test_a_session_expires_although_the_broker_was_down_in_between(keep_v5: Any) -> None:
    keep_v5("""
    alice > CONNECT clean=0 session=10      alice < CONNACK present=0
    alice cut
    wait 6s
    broker crashes
    wait 5s
    alice > CONNECT clean=0 session=10      alice < CONNACK present=0
    """)


def test_a_will_is_published_although_the_broker_died_with_its_client(keep_v5: Any) -> None:
    keep_v5("""
    watch > CONNECT clean=0 session=3600    watch < CONNACK present=0
    watch > SUBSCRIBE will/# qos=1          watch < SUBACK granted=1
    alice > CONNECT clean=0 session=3600 will=will/alice will-qos=1 will-payload="died"    alice < CONNACK present=0
    bob > CONNECT clean=0 session=3600 will=will/bob will-qos=1 will-delay=30 will-payload="late"
    bob < CONNACK present=0
    carol > CONNECT clean=0 session=3600 will=will/carol will-qos=1 will-payload="never"    carol < CONNACK present=0
    carol > DISCONNECT
    wait 1s
    broker crashes                          watch < CLOSED    alice < CLOSED    bob < CLOSED
    watch > CONNECT clean=0 session=3600
    watch < CONNACK present=1
    watch < PUBLISH will/alice qos=1 "died"
    wait 31s                                watch < PUBLISH will/bob qos=1 "late"
    """)


def test_filters_groups_and_options_survive(keep_v5: Any) -> None:
    keep_v5("""
    alice > CONNECT clean=0 session=3600    alice < CONNACK present=0
    alice > SUBSCRIBE s/# qos=1 user.$where='temp > 30'    alice < SUBACK granted=1
    alice > SUBSCRIBE "$share/g/work" qos=1    alice < SUBACK granted=1
    alice cut
    broker crashes
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH s/1 qos=1 '{"temp":31}'    bob < PUBACK
    bob > PUBLISH s/1 qos=1 '{"temp":29}'    bob < PUBACK
    bob > PUBLISH work qos=1 "job"          bob < PUBACK
    alice > CONNECT clean=0 session=3600
    alice < CONNACK present=1
    alice < PUBLISH s/1 qos=1 '{"temp":31}'
    alice < PUBLISH work qos=1 "job"
    """)


def test_the_accounts_go_on_with_what_was_restored(keep: Any, play: Any) -> None:
    keep("""
    alice > CONNECT clean=0 session=3600    alice < CONNACK present=0
    alice > SUBSCRIBE t/# qos=1             alice < SUBACK granted=1
    alice cut
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH t/1 qos=1 "one"           bob < PUBACK
    broker crashes                          bob < CLOSED
    """)
    assert (play.broker.ledger.published, play.broker.ledger.queued) == (1, 1)
    keep("""
    alice > CONNECT clean=0 session=3600
    alice < CONNACK present=1
    alice < PUBLISH t/1 qos=1 "one"
    alice > PUBACK
    """)
    assert (play.broker.ledger.delivered, play.broker.ledger.queued) == (1, 0)


# -- who waits -----------------------------------------------------------------------------------------------------


def test_an_answer_waits_for_the_disk_and_nothing_overtakes_it(play_v5: Any) -> None:
    play_v5("alice > CONNECT clean=0 session=3600    alice < CONNACK", is_stored=True)
    play_v5("""
    alice > SUBSCRIBE t/# qos=1    alice < SUBACK granted=1
    alice cut
    bob > CONNECT                  bob < CONNACK
    """)
    broker = play_v5.broker
    broker.store.disk.sync_us = (SECOND, SECOND)
    bob = play_v5.client("bob")
    bob.write(bytes.fromhex("320a0003742f31000100") + b"one"[:2])  # PUBLISH t/1 qos=1 id=1 "on"
    bob.write(b"\xc0\x00")  # PINGREQ
    broker.simulation.run_until(broker.simulation.now + 900 * MILLISECOND)
    assert bob.receive() == [], "neither PUBACK nor, behind it, PINGRESP"
    broker.simulation.run_until(broker.simulation.now + 200 * MILLISECOND)
    assert [type(packet).__name__ for packet in bob.receive()] == ["PubAck", "PingResp"]


def test_nobody_waits_where_nothing_is_kept(play: Any) -> None:
    play(
        """
    alice > CONNECT                alice < CONNACK
    alice > SUBSCRIBE t/# qos=1    alice < SUBACK granted=1
    bob > CONNECT                  bob < CONNACK
    """,
        is_stored=True,
    )
    play("""bob > PUBLISH t/1 qos=1 "one"    bob < PUBACK    alice < PUBLISH t/1 qos=1 "one" """)
    assert play.broker.frontend.journal.storage.lsn == 0


def test_a_listener_without_durability_says_so(keep_v5: Any) -> None:
    options = FrontendOptions(durability=MEMORY)
    keep_v5(
        """
    alice > CONNECT clean=0 session=3600
    alice < CONNACK present=0 user.filter=1 user.durability=memory
    broker crashes                       alice < CLOSED
    alice > CONNECT clean=0 session=3600    alice < CONNACK present=0
    """,
        options,
    )


def test_batched_answers_do_not_wait_and_say_so(play_v5: Any) -> None:
    play_v5(
        """
    alice > CONNECT clean=0 session=3600
    alice < CONNACK present=0 user.filter=1 user.durability=batched:500
    alice > SUBSCRIBE t/# qos=1          alice < SUBACK granted=1
    """,
        FrontendOptions(durability=batched(500)),
        is_stored=True,
    )
    assert play_v5.broker.frontend.journal.synced == 0
    play_v5("wait 600ms    broker crashes    alice < CLOSED")
    play_v5("alice > CONNECT clean=0 session=3600    alice < CONNACK present=1")


# -- a disk that takes nothing -------------------------------------------------------------------------------------


def test_a_full_disk_refuses_and_serves_everybody_else(play_v5: Any) -> None:
    play_v5(
        """
    alice > CONNECT clean=0 session=3600    alice < CONNACK
    alice > SUBSCRIBE t/# qos=1             alice < SUBACK granted=1
    bob > CONNECT                           bob < CONNACK
    """,
        is_stored=True,
    )
    disk = play_v5.broker.store.disk
    disk.sync_fails = 1.0
    play_v5("""
    bob > PUBLISH t/1 qos=1 "lost"
    alice < PUBLISH t/1 qos=1 "lost"
    bob < DISCONNECT reason=0x97 why~"takes nothing"
    bob < CLOSED
    """)
    play_v5("""
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH t/1 qos=1 "refused"       bob < PUBACK reason=0x97
    bob > PUBLISH t/1 qos=2 "refused"       bob < PUBREC reason=0x97
    bob > PUBLISH other qos=1 "nobody keeps this"    bob < PUBACK
    bob > PUBLISH r qos=1 retain=1 "refused"    bob < PUBACK reason=0x97
    bob > SUBSCRIBE x                       bob < SUBACK granted=0
    carol > CONNECT clean=0 session=60      carol < CONNACK reason=0x97 why~"no session can be kept"    carol < CLOSED
    alice > SUBSCRIBE more qos=1            alice < SUBACK granted=0x97
    """)
    disk.sync_fails = 0.0
    play_v5("wait 60s")
    play_v5("""bob > PUBLISH x "so it is awake"    bob < PUBLISH x "so it is awake" """)
    play_v5("""
    bob > PUBLISH t/1 qos=1 "taken"         bob < PUBACK    alice < PUBLISH t/1 qos=1 "taken"
    """)


def test_batched_promises_are_not_given_either_while_the_disk_takes_nothing(play_v5: Any) -> None:
    play_v5(
        """
    alice > CONNECT clean=0 session=3600    alice < CONNACK
    alice > SUBSCRIBE t/# qos=1             alice < SUBACK granted=1
    bob > CONNECT                           bob < CONNACK
    """,
        FrontendOptions(durability=batched(100)),
        is_stored=True,
    )
    play_v5.broker.store.disk.sync_fails = 1.0
    play_v5("""
    bob > PUBLISH t/1 qos=1 "not yet"       bob < PUBACK    alice < PUBLISH t/1 qos=1 "not yet"
    wait 300ms
    bob > PUBLISH t/1 qos=1 "refused"       bob < PUBACK reason=0x97
    bob > PUBLISH r retain=1 "not retained"
    bob > SUBSCRIBE r                       bob < SUBACK granted=0
    alice > SUBSCRIBE more qos=1            alice < SUBACK granted=0x97
    """)
    assert play_v5.broker.frontend.retained.not_retained == 1
    assert play_v5.broker.frontend.publish_handler.refusals == {Refusal.DISK_FULL: 1}


def test_a_journal_that_is_full_is_stated_anew_and_takes_messages_again(play_v5: Any) -> None:
    """What was settled takes no room in a snapshot."""
    play_v5(
        """
    alice > CONNECT clean=0 session=3600    alice < CONNACK
    alice > SUBSCRIBE t/# qos=1             alice < SUBACK granted=1
    bob > CONNECT                           bob < CONNACK
    """,
        is_stored=True,
    )
    journal = play_v5.broker.frontend.journal.storage
    for _ in range(300):
        play_v5(f"""bob > PUBLISH t/1 qos=1 "{"x" * 1_000}"    bob < PUBACK    alice < PUBLISH t/1 qos=1 "{"x" * 1_000}"
        alice > PUBACK""")
    play_v5("wait 1s")
    assert journal.replay_from > 600, "several snapshots were made"
    assert journal.segments.bytes < 200_000, "what is not needed any more is used again"
    play_v5("broker crashes    alice < CLOSED    bob < CLOSED")
    play_v5("alice > CONNECT clean=0 session=3600    alice < CONNACK present=1")


def test_who_cannot_hear_a_refusal_is_closed(play_v311: Any) -> None:
    play_v311(
        """
    alice > CONNECT clean=0                 alice < CONNACK present=0
    alice > SUBSCRIBE t/# qos=1             alice < SUBACK granted=1
    alice cut
    bob > CONNECT                           bob < CONNACK
    """,
        is_stored=True,
    )
    play_v311.broker.store.disk.sync_fails = 1.0
    play_v311("""
    bob > PUBLISH t/1 qos=1 "lost"          bob < CLOSED
    bob > CONNECT                           bob < CONNACK
    bob > PUBLISH t/1 qos=1 "refused"       bob < CLOSED
    carol > CONNECT clean=0                 carol < CONNACK reason=0x88    carol < CLOSED
    """)
