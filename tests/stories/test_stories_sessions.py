"""Sessions: kept, resumed, taken over, timed out; and what is sent again."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.frontend.options import FrontendOptions
from edgebroker.log_schema import Cause

KEPT = "CONNECT clean=0 session=3600"
"""A session that outlives its connection, in either dialect."""

BOB = """
    bob   > CONNECT    bob < CONNACK
"""


@pytest.mark.mqtt(v311=("MQTT-3.1.2-6", "MQTT-3.2.2-1"), v5=("MQTT-3.2.2-2", "MQTT-4.1.0-2"))
def test_a_clean_session_ends_with_its_connection(play: Any) -> None:
    play(BOB)
    play("""
    alice > CONNECT             alice < CONNACK present=0
    alice > SUBSCRIBE t qos=1   alice < SUBACK granted=1
    bob   > PUBLISH t qos=1     bob   < PUBACK    alice < PUBLISH t qos=1
    alice cut
    bob   > PUBLISH t qos=1     bob   < PUBACK
    alice > CONNECT             alice < CONNACK present=0
    bob   > PUBLISH t qos=1     bob   < PUBACK
    """)
    assert play.dropped(Cause.SESSION_ENDED) == 1


@pytest.mark.mqtt(
    "MQTT-4.5.0-1",
    "MQTT-4.1.0-1",
    v311=("MQTT-3.1.2-4", "MQTT-3.1.2-5", "MQTT-3.2.2-2", "MQTT-3.2.2-3"),
    v5=("MQTT-3.1.2-5", "MQTT-3.1.2-6", "MQTT-3.1.2-23", "MQTT-3.2.2-3"),
)
def test_a_resumed_session_gets_what_was_queued(play: Any) -> None:
    play(BOB)
    play(f"""
    alice > {KEPT}                  alice < CONNACK present=0
    alice > SUBSCRIBE t qos=2       alice < SUBACK granted=2
    alice cut
    bob   > PUBLISH t qos=1 "one"   bob   < PUBACK
    bob   > PUBLISH t qos=2 "two"   bob   < PUBREC
    bob   > PUBREL                  bob   < PUBCOMP
    bob   > PUBLISH t "lost"
    alice > {KEPT}                  alice < CONNACK present=1
                                    alice < PUBLISH t qos=1 id=1 "one"
                                    alice < PUBLISH t qos=2 id=2 "two"
    alice > PUBACK
    alice > PUBREC                  alice < PUBREL id=2
    alice > PUBCOMP
    """)
    assert play.dropped(Cause.OFFLINE) == 1
    assert play.broker.ledger.delivered == 2
    assert play.broker.ledger.queued == 0


@pytest.mark.mqtt(
    "MQTT-3.3.1-1",
    "MQTT-4.4.0-1",
    v311=("MQTT-2.3.1-4", "MQTT-4.6.0-1", "MQTT-4.3.2-1", "MQTT-4.3.3-1"),
    v5=("MQTT-4.3.2-3", "MQTT-4.3.3-3", "MQTT-4.3.3-5", "MQTT-4.3.3-6"),
)
def test_what_was_not_acknowledged_is_sent_again_with_dup(play: Any) -> None:
    """[MQTT-4.4.0-1]: in the old order, with the old packet identifiers; PUBREL instead of what was received."""
    play(BOB)
    play(f"""
    alice > {KEPT}                    alice < CONNACK present=0
    alice > SUBSCRIBE t qos=2         alice < SUBACK granted=2
    bob   > PUBLISH t qos=1 "one"     bob   < PUBACK    alice < PUBLISH t qos=1 id=1 "one"
    bob   > PUBLISH t qos=2 "two"     bob   < PUBREC    alice < PUBLISH t qos=2 id=2 "two"
    bob   > PUBREL                    bob   < PUBCOMP
    bob   > PUBLISH t qos=2 "three"   bob   < PUBREC    alice < PUBLISH t qos=2 id=3 "three"
    bob   > PUBREL                    bob   < PUBCOMP
    alice > PUBREC id=3               alice < PUBREL id=3
    alice cut
    alice > {KEPT}                    alice < CONNACK present=1
                                      alice < PUBLISH t qos=1 id=1 dup=1 "one"
                                      alice < PUBLISH t qos=2 id=2 dup=1 "two"
                                      alice < PUBREL id=3
    alice > PUBACK id=1
    alice > PUBREC id=2               alice < PUBREL id=2
    alice > PUBCOMP id=3
    alice > PUBCOMP id=2
    alice cut
    alice > {KEPT}                    alice < CONNACK present=1
    """)
    assert play.broker.ledger.delivered == 3


@pytest.mark.mqtt(v5=("MQTT-3.3.4-3", "MQTT-3.3.4-4", "MQTT-4.4.0-1"))
def test_what_is_sent_again_has_its_properties_too(play_v5: Any) -> None:
    """Those of the publisher, and the identifiers of the subscriptions for which it was sent first."""
    play_v5(BOB)
    play_v5(f"""
    alice > {KEPT}                       alice < CONNACK present=0
    alice > SUBSCRIBE t/# qos=1 sub=7    alice < SUBACK granted=1
    alice > SUBSCRIBE t/+ qos=1 sub=300  alice < SUBACK granted=1
    bob   > PUBLISH t/1 qos=1 user.a=b   bob   < PUBACK    alice < PUBLISH t/1 qos=1 user.a=b sub=7,300
    alice > UNSUBSCRIBE t/+              alice < UNSUBACK
    alice cut
    alice > {KEPT}                       alice < CONNACK present=1
                                         alice < PUBLISH t/1 qos=1 dup=1 user.a=b sub=7,300
    """)


@pytest.mark.mqtt(v311=("MQTT-4.3.3-2", "MQTT-4.1.0-1"), v5=("MQTT-4.3.3-10", "MQTT-3.1.2-23"))
def test_a_publishers_qos_2_survives_its_reconnect(play: Any) -> None:
    """P3, [MQTT-4.3.3-10]."""
    play(f"""
    alice > CONNECT                          alice < CONNACK
    alice > SUBSCRIBE t                      alice < SUBACK granted=0
    bob   > {KEPT}                           bob   < CONNACK
    bob   > PUBLISH t qos=2 id=5 "x"         bob   < PUBREC id=5    alice < PUBLISH t "x"
    bob cut
    bob   > {KEPT}                           bob   < CONNACK present=1
    bob   > PUBLISH t qos=2 id=5 dup=1 "x"   bob   < PUBREC id=5
    bob   > PUBREL id=5                      bob   < PUBCOMP id=5
    """)


@pytest.mark.mqtt(
    v311=("MQTT-3.1.2-6", "MQTT-3.1.4-3", "MQTT-3.2.2-1"), v5=("MQTT-3.1.2-4", "MQTT-3.1.4-4", "MQTT-3.2.2-2")
)
def test_a_pubrel_that_comes_again_after_a_reconnect_finds_no_error(play_v5: Any) -> None:
    """Section 3.7.2.1: its PUBCOMP was lost. Without a session to resume, an unknown identifier is a mistake."""
    play_v5(f"""
    bob   > {KEPT}                    bob   < CONNACK present=0
    bob   > PUBREL id=5               bob   < PUBCOMP id=5 reason=0x92
    bob   > PUBLISH t qos=2 id=5      bob   < PUBREC id=5
    bob   > PUBREL id=5               bob   < PUBCOMP id=5
    bob cut
    bob   > {KEPT}                    bob   < CONNACK present=1
    bob   > PUBREL id=5               bob   < PUBCOMP id=5 reason=0
    """)


def test_a_clean_start_forgets_the_session(play: Any) -> None:
    play(BOB)
    play(f"""
    alice > {KEPT}              alice < CONNACK present=0
    alice > SUBSCRIBE t qos=1   alice < SUBACK granted=1
    alice cut
    bob   > PUBLISH t qos=1     bob < PUBACK
    alice > CONNECT             alice < CONNACK present=0
    bob   > PUBLISH t qos=1     bob < PUBACK
    """)
    assert play.dropped(Cause.SESSION_ENDED) == 1


@pytest.mark.mqtt(v5=("MQTT-4.1.0-2", "MQTT-3.1.2-23", "MQTT-3.2.2-3"))
def test_a_session_expires(play_v5: Any) -> None:
    play_v5(BOB)
    play_v5("""
    alice > CONNECT clean=0 session=60   alice < CONNACK present=0
    alice > SUBSCRIBE t qos=1            alice < SUBACK granted=1
    alice cut
    wait 59s
    alice > CONNECT clean=0 session=60   alice < CONNACK present=1
    alice cut
    bob   > PUBLISH t qos=1              bob < PUBACK
    wait 61s
    bob   > PUBLISH t qos=1              bob < PUBACK
    alice > CONNECT clean=0 session=60   alice < CONNACK present=0
    """)
    assert play_v5.dropped(Cause.SESSION_ENDED) == 1


@pytest.mark.mqtt(v5=("MQTT-4.1.0-2", "MQTT-3.2.2-3"))
def test_a_session_without_expiry_ends_at_once_in_version_5(play_v5: Any) -> None:
    play_v5("""
    alice > CONNECT clean=0   alice < CONNACK present=0
    alice cut
    alice > CONNECT clean=0   alice < CONNACK present=0
    """)


def test_disconnect_changes_the_expiry(play_v5: Any) -> None:
    play_v5("""
    alice > CONNECT clean=0 session=60   alice < CONNACK present=0
    alice > DISCONNECT session=600
    wait 500s
    alice > CONNECT clean=0 session=60   alice < CONNACK present=1
    alice > DISCONNECT session=0
    alice > CONNECT clean=0              alice < CONNACK present=0
    alice > DISCONNECT session=60        alice < DISCONNECT reason=0x82
    """)


def test_the_longest_session_is_ours_to_choose(play_v5: Any) -> None:
    play_v5(
        "alice > CONNECT session=4294967295    alice < CONNACK session=100", FrontendOptions(session_expiry_s_max=100)
    )


@pytest.mark.mqtt(v311="MQTT-3.1.4-2", v5="MQTT-3.1.4-3")
def test_a_take_over_tells_the_old_connection(play: Any) -> None:
    """[MQTT-3.1.4-3]."""
    play(BOB)
    play(f"""
    alice > {KEPT}                 alice < CONNACK present=0
    alice > SUBSCRIBE t qos=1      alice < SUBACK granted=1
    bob   > PUBLISH t qos=1 "x"    bob   < PUBACK    alice < PUBLISH t qos=1 "x"
    again > {KEPT} id=alice        alice < DISCONNECT reason=0x8E    alice < CLOSED
                                   again < CONNACK present=1    again < PUBLISH t qos=1 dup=1 "x"
    again > PUBACK
    bob   > PUBLISH t "y"          again < PUBLISH t "y"
    """)


def test_a_client_that_stalls_can_be_taken_over(play: Any) -> None:
    play(BOB)
    play(f"""
    alice > {KEPT}            alice < CONNACK present=0
    alice > SUBSCRIBE t       alice < SUBACK granted=0
    alice stalls
    bob   > PUBLISH t "one"
    bob   > PUBLISH t "two"
    again > {KEPT} id=alice   again < CONNACK present=1
    bob   > PUBLISH t "x"     again < PUBLISH t "x"
    """)
    assert len(play.broker.frontend.connections) == 2


@pytest.mark.mqtt(v311="MQTT-3.1.2-24", v5=("MQTT-3.1.2-22", "MQTT-3.2.2-22"))
def test_silence_beyond_one_and_a_half_keep_alives_ends_the_connection(play: Any) -> None:
    """[3.1.1: MQTT-3.1.2-24, 5: MQTT-3.1.2-22]."""
    play("""
    alice > CONNECT keep-alive=60   alice < CONNACK
    wait 89s
    alice > PINGREQ                 alice < PINGRESP
    wait 89s
    alice > PUBLISH t
    wait 89s
    alice > PINGREQ                 alice < PINGRESP
    wait 91s                        alice < DISCONNECT reason=0x8D    alice < CLOSED
    """)


def test_no_keep_alive_means_no_time_out(play: Any) -> None:
    play("""
    alice > CONNECT    alice < CONNACK
    wait 48h
    alice > PINGREQ    alice < PINGRESP
    """)


def test_a_connection_that_says_nothing_is_closed(play: Any) -> None:
    play("""
    mute opens
    wait 9s
    wait 2s           mute < CLOSED
    """)


def test_half_a_connect_does_not_keep_the_connection_open(play: Any) -> None:
    play("""
    slow opens
    slow > 0x1020
    wait 9s
    slow > 0x0004
    wait 2s           slow < CLOSED
    """)


@pytest.mark.mqtt(v5=("MQTT-3.1.3-6", "MQTT-3.1.3-7", "MQTT-3.2.2-16"))
def test_a_client_without_identifier_gets_one(play_v5: Any) -> None:
    play_v5('alice > CONNECT id=""    alice < CONNACK assigned~assigned-')


@pytest.mark.mqtt(v311="MQTT-3.1.2-4", v5="MQTT-3.1.2-5")
def test_a_client_that_closes_without_a_word_keeps_its_session(play: Any) -> None:
    play(f"""
    alice > {KEPT}    alice < CONNACK present=0
    alice leaves
    alice > {KEPT}    alice < CONNACK present=1
    alice > DISCONNECT
    alice > {KEPT}    alice < CONNACK present=1
    """)


def test_a_session_resumes_in_the_other_dialect(play_v5: Any) -> None:
    play_v5(BOB)
    play_v5("""
    alice > CONNECT clean=0 v=3.1.1       alice < CONNACK present=0
    alice > SUBSCRIBE t qos=1             alice < SUBACK granted=1
    alice cut
    bob   > PUBLISH t qos=1 user.a=b      bob < PUBACK
    alice > CONNECT clean=0 session=60    alice < CONNACK present=1    alice < PUBLISH t qos=1 user.a=b
    alice cut
    alice > CONNECT clean=0 v=3.1.1       alice < CONNACK present=1    alice < PUBLISH t qos=1 dup=1
    """)


def test_the_queue_is_bounded(play: Any) -> None:
    play(
        f"""
    alice > {KEPT}                   alice < CONNACK
    alice > SUBSCRIBE t qos=1        alice < SUBACK granted=1
    alice cut
    bob   > CONNECT                  bob   < CONNACK
    bob   > PUBLISH t qos=1 "one"    bob   < PUBACK
    bob   > PUBLISH t qos=1 "two"    bob   < PUBACK
    bob   > PUBLISH t qos=1 "three"  bob   < PUBACK
    alice > {KEPT}                   alice < CONNACK present=1
                                     alice < PUBLISH t qos=1 "one"    alice < PUBLISH t qos=1 "two"
    """,
        FrontendOptions(queue_messages_max=2),
    )
    assert play.dropped(Cause.QUEUE_FULL) == 1
