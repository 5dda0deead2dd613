"""Wills: what a client leaves behind when its connection ends without a word (MQTT 5.0 section 3.1.2.5)."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.frontend.event_buffer import NOT_PUBLISHED
from edgebridge.frontend.handlers.publish_admission import Refusal
from edgebridge.session.access import AccessPolicy
from edgebridge.session.acl import Acl
from edgebridge.session.authorization import AclRights

READER = """
    alice > CONNECT               alice < CONNACK
    alice > SUBSCRIBE w/# qos=1   alice < SUBACK granted=1
"""


@pytest.mark.mqtt("MQTT-3.1.2-8", v5="MQTT-3.1.2-7")
def test_a_lost_connection_publishes_the_will(play: Any) -> None:
    play(READER)
    play("""
    bob > CONNECT will=w/bob will-payload="gone" will-qos=1   bob < CONNACK
    bob cut                                                   alice < PUBLISH w/bob qos=1 "gone"
    """)


@pytest.mark.mqtt("MQTT-3.1.2-8")
def test_closing_without_disconnect_publishes_the_will(play: Any) -> None:
    play(READER)
    play("""
    bob > CONNECT will=w/bob will-payload="gone"   bob < CONNACK
    bob leaves                                     alice < PUBLISH w/bob "gone"
    """)


@pytest.mark.mqtt("MQTT-3.14.4-3", "MQTT-3.1.2-10")
def test_a_proper_good_bye_does_not(play: Any) -> None:
    """[3.1.1: MQTT-3.14.4-3, 5: MQTT-3.14.4-3]."""
    play(READER)
    play("""
    bob > CONNECT will=w/bob will-payload="gone"   bob < CONNACK
    bob > DISCONNECT
    wait 1h
    """)


def test_unless_the_good_bye_asks_for_it(play_v5: Any) -> None:
    play_v5(READER)
    play_v5("""
    bob > CONNECT will=w/bob will-payload="gone"   bob < CONNACK
    bob > DISCONNECT reason=0x04                   alice < PUBLISH w/bob "gone"
    """)


@pytest.mark.mqtt("MQTT-3.1.2-8")
def test_a_protocol_error_publishes_the_will(play: Any) -> None:
    play(READER)
    play("""
    bob > CONNECT will=w/bob will-payload="gone"   bob < CONNACK
    bob > 0xf100     bob < DISCONNECT reason=0x81    bob < CLOSED    alice < PUBLISH w/bob "gone"
    """)


@pytest.mark.mqtt("MQTT-3.1.2-8", v311="MQTT-3.1.2-24", v5="MQTT-3.1.2-22")
def test_a_keep_alive_time_out_publishes_the_will(play: Any) -> None:
    play(READER)
    play("""
    bob > CONNECT keep-alive=10 will=w/bob will-payload="gone"   bob < CONNACK
    wait 14s
    wait 2s    bob < DISCONNECT reason=0x8D    bob < CLOSED    alice < PUBLISH w/bob "gone"
    """)


@pytest.mark.mqtt(v311="MQTT-3.1.2-17", v5="MQTT-3.1.2-15")
def test_a_will_is_retained(play: Any) -> None:
    play("""
    bob   > CONNECT will=w/bob will-payload="gone" will-retain=1   bob < CONNACK
    bob cut
    alice > CONNECT                                                alice < CONNACK
    alice > SUBSCRIBE w/#    alice < SUBACK granted=0    alice < PUBLISH w/bob retain=1 "gone"
    """)


@pytest.mark.mqtt(v5="MQTT-3.1.2-8")
def test_a_will_waits_for_its_delay(play_v5: Any) -> None:
    """[MQTT-3.1.3-9]."""
    play_v5(READER)
    play_v5("""
    bob > CONNECT session=60 will=w/bob will-payload="gone" will-delay=10 will-user.a=b   bob < CONNACK
    bob cut
    wait 9s
    wait 2s    alice < PUBLISH w/bob user.a=b "gone"
    wait 1h
    """)


@pytest.mark.mqtt(v5="MQTT-3.1.3-9")
def test_a_client_that_comes_back_in_time_takes_its_will_back(play_v5: Any) -> None:
    play_v5(READER)
    play_v5("""
    bob > CONNECT clean=0 session=60 will=w/bob will-payload="gone" will-delay=10   bob < CONNACK
    bob cut
    wait 9s
    bob > CONNECT clean=0 session=60    bob < CONNACK present=1
    wait 1h
    bob cut
    wait 1h
    """)


@pytest.mark.mqtt(v5=("MQTT-3.1.2-8", "MQTT-3.1.3-9"))
def test_the_delay_of_a_will_that_was_taken_back_does_not_count_for_the_next(play_v5: Any) -> None:
    """Or a client would be said to be gone while it is there, or too early."""
    play_v5(READER)
    play_v5("""
    bob > CONNECT clean=0 session=60 will=w/bob will-payload="first" will-delay=10   bob < CONNACK
    bob cut
    wait 6s
    bob > CONNECT clean=0 session=60 will=w/bob will-payload="second" will-delay=10  bob < CONNACK present=1
    wait 6s
    bob cut
    wait 9s
    wait 2s    alice < PUBLISH w/bob "second"
    wait 1h
    """)


@pytest.mark.mqtt(v5="MQTT-3.1.2-8")
def test_a_delayed_will_goes_out_when_the_session_ends(play_v5: Any) -> None:
    play_v5(READER)
    play_v5("""
    bob > CONNECT session=5 will=w/bob will-payload="gone" will-delay=10   bob < CONNACK
    bob cut
    wait 4s
    wait 2s                                   alice < PUBLISH w/bob "gone"
    wait 1h
    bob > CONNECT will=w/bob will-payload="no session" will-delay=10       bob < CONNACK
    bob cut                                   alice < PUBLISH w/bob "no session"
    bob > CONNECT session=50 will=w/bob will-payload="clean" will-delay=10   bob < CONNACK
    bob cut
    bob > CONNECT clean=1 session=50          bob < CONNACK present=0    alice < PUBLISH w/bob "clean"
    """)


@pytest.mark.mqtt("MQTT-3.1.2-8")
def test_a_take_over_publishes_the_will(play: Any) -> None:
    play(READER)
    play("""
    bob   > CONNECT will=w/bob will-payload="gone"   bob < CONNACK
    again > CONNECT id=bob    bob < DISCONNECT reason=0x8E    bob < CLOSED    again < CONNACK
                              alice < PUBLISH w/bob "gone"
    """)


@pytest.mark.mqtt(v5="MQTT-3.1.3-9")
def test_a_take_over_of_a_session_that_goes_on_keeps_a_delayed_will_back(play_v5: Any) -> None:
    play_v5(READER)
    play_v5("""
    bob   > CONNECT clean=0 session=60 will=w/bob will-payload="gone" will-delay=10   bob < CONNACK
    again > CONNECT clean=0 session=60 id=bob    bob < DISCONNECT reason=0x8E    bob < CLOSED
                                                 again < CONNACK present=1
    wait 1h
    """)


def test_a_will_expires_and_passes_content_filters(play_v5: Any) -> None:
    play_v5("""
    alice > CONNECT                               alice < CONNACK
    alice > SUBSCRIBE w/# user.$where="code = 7"  alice < SUBACK granted=0
    bob   > CONNECT will=w/bob will-payload='{"code":7}' will-expiry=30   bob < CONNACK
    carl  > CONNECT will=w/carl will-payload='{"code":8}'                 carl < CONNACK
    bob cut                                       alice < PUBLISH w/bob expiry=30 '{"code":7}'
    carl cut
    """)


def test_a_will_to_a_topic_of_the_broker_is_not_published(play: Any) -> None:
    play("""
    alice > CONNECT           alice < CONNACK
    alice > SUBSCRIBE $SYS/x  alice < SUBACK granted=0
    bob   > CONNECT will=$SYS/x will-payload="x"   bob < CONNACK
    bob cut
    """)


def test_a_will_that_may_not_be_published_is_told_to_the_operator(play: Any) -> None:
    """Nobody is there any more who could hear it."""
    rules = AclRights(Acl.parse("topic read w/#"))
    play(READER, access=AccessPolicy(rules=rules))
    play("""
    bob > CONNECT will=w/bob will-payload="gone"   bob < CONNACK
    bob cut
    """)
    assert play.broker.frontend.publish_handler.refusals == {Refusal.NOT_ALLOWED: 1}
    notes, _ = play.broker.frontend.events.take()
    assert [(one.client, one.text) for one in notes if one.code == NOT_PUBLISHED] == [
        ("bob", "its will, w/bob: you may not publish under this topic")
    ]
