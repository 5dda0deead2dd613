"""Retained messages (MQTT 5.0 section 3.3.1.3)."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.frontend import retained_replay
from edgebridge.frontend.options import FrontendOptions
from edgebridge.session.subscription_text import parse_subscription
from edgebroker.publication import Publication

PAIR = """
    alice > CONNECT    alice < CONNACK
    bob   > CONNECT    bob   < CONNACK
"""


@pytest.mark.mqtt(
    "MQTT-3.3.1-5",
    "MQTT-3.3.1-6",
    "MQTT-3.3.1-8",
    "MQTT-3.3.1-12",
    v311=("MQTT-3.3.1-7", "MQTT-3.3.1-9", "MQTT-3.3.1-10", "MQTT-3.3.1-11"),
    v5="MQTT-3.3.1-7",
)
def test_set_replace_and_clear(play: Any) -> None:
    play(PAIR)
    play("""
    bob   > PUBLISH t/1 retain=1 "one"
    bob   > PUBLISH t/2 retain=1 qos=1 "two"   bob   < PUBACK
    bob   > PUBLISH t/1 "passing"
    alice > SUBSCRIBE t/1                      alice < SUBACK granted=0    alice < PUBLISH t/1 retain=1 "one"
    bob   > PUBLISH t/1 retain=1 "new"         alice < PUBLISH t/1 "new"
    alice > UNSUBSCRIBE t/1                    alice < UNSUBACK
    alice > SUBSCRIBE t/1                      alice < SUBACK granted=0    alice < PUBLISH t/1 retain=1 "new"
    bob   > PUBLISH t/1 retain=1 ""            alice < PUBLISH t/1
    alice > SUBSCRIBE t/1                      alice < SUBACK granted=0
    alice > SUBSCRIBE t/# qos=1                alice < SUBACK granted=1    alice < PUBLISH t/2 retain=1 qos=1 "two"
    """)


@pytest.mark.mqtt(v311="MQTT-3.8.4-3", v5=("MQTT-3.8.4-4", "MQTT-3.3.1-9"))
def test_subscribing_again_sends_them_again(play: Any) -> None:
    """[3.1.1: MQTT-3.8.4-3]; retain handling 0."""
    play(PAIR)
    play("""
    bob   > PUBLISH t retain=1 "x"
    alice > SUBSCRIBE t              alice < SUBACK granted=0    alice < PUBLISH t retain=1 "x"
    alice > SUBSCRIBE t              alice < SUBACK granted=0    alice < PUBLISH t retain=1 "x"
    """)


@pytest.mark.mqtt(v5=("MQTT-3.3.1-9", "MQTT-3.3.1-10", "MQTT-3.3.1-11"))
def test_retain_handling(play_v5: Any) -> None:
    """[MQTT-3.3.1-9 to -11]."""
    play_v5(PAIR)
    play_v5("""
    bob   > PUBLISH t retain=1 "x"
    alice > SUBSCRIBE t handling=2         alice < SUBACK granted=0
    alice > SUBSCRIBE t handling=1         alice < SUBACK granted=0
    alice > UNSUBSCRIBE t                  alice < UNSUBACK
    alice > SUBSCRIBE t handling=1         alice < SUBACK granted=0    alice < PUBLISH t retain=1 "x"
    alice > SUBSCRIBE t handling=1         alice < SUBACK granted=0
    alice > SUBSCRIBE t handling=0         alice < SUBACK granted=0    alice < PUBLISH t retain=1 "x"
    """)


@pytest.mark.mqtt(v5=("MQTT-3.3.1-12", "MQTT-3.3.1-13"))
def test_retain_as_published(play_v5: Any) -> None:
    """[MQTT-3.3.1-12, -13]."""
    play_v5(PAIR)
    play_v5("""
    alice > SUBSCRIBE t as-published=1   alice < SUBACK granted=0
    bob   > SUBSCRIBE t                  bob   < SUBACK granted=0
    bob   > PUBLISH t retain=1 "x"       alice < PUBLISH t retain=1 "x"    bob < PUBLISH t "x"
    bob   > PUBLISH t "y"                alice < PUBLISH t "y"             bob < PUBLISH t "y"
    """)


def test_retained_messages_carry_the_subscription_identifier(play_v5: Any) -> None:
    play_v5(PAIR)
    play_v5("""
    bob   > PUBLISH t retain=1 user.a=b "x"
    alice > SUBSCRIBE t sub=7    alice < SUBACK granted=0    alice < PUBLISH t retain=1 user.a=b sub=7 "x"
    """)


@pytest.mark.mqtt(v5="MQTT-3.3.2-6")
def test_a_retained_message_expires(play_v5: Any) -> None:
    play_v5(PAIR)
    play_v5("""
    bob   > PUBLISH t retain=1 expiry=100 "x"
    wait 40s
    alice > SUBSCRIBE t    alice < SUBACK granted=0    alice < PUBLISH t retain=1 expiry=60 "x"
    wait 61s
    alice > SUBSCRIBE t    alice < SUBACK granted=0
    """)


@pytest.mark.mqtt(v311="MQTT-3.1.2-7")
def test_retained_messages_outlive_their_publisher(play: Any) -> None:
    play(PAIR)
    play("""
    bob   > PUBLISH t retain=1 "x"
    bob   > DISCONNECT
    alice > SUBSCRIBE +    alice < SUBACK granted=0    alice < PUBLISH t retain=1 "x"
    """)


def test_the_store_is_bounded(play_v5: Any) -> None:
    play_v5("bob > CONNECT    bob < CONNACK", FrontendOptions(retained_messages_max=2))
    play_v5("""
    bob   > PUBLISH a retain=1 qos=1 "x"   bob < PUBACK reason=0
    bob   > PUBLISH b retain=1 qos=1 "x"   bob < PUBACK reason=0x97
    bob   > PUBLISH a retain=1 qos=1 "y"   bob < PUBACK reason=0
    """)


def test_what_the_store_has_no_room_for_goes_to_its_readers(play: Any) -> None:
    """A 3.1.1 publisher hears success in any case, so nothing that it said may vanish while somebody wants it."""
    play(PAIR, FrontendOptions(retained_messages_max=2))  # our feature is one
    play("""
    bob   > PUBLISH a retain=1 qos=1 "x"     bob < PUBACK reason=0
    alice > SUBSCRIBE b                      alice < SUBACK granted=0
    bob   > PUBLISH b retain=1 qos=1 "new"   bob < PUBACK reason=0    alice < PUBLISH b "new"
    bob   > PUBLISH b retain=1 "newer"       alice < PUBLISH b "newer"
    """)
    frontend = play.broker.frontend
    assert (frontend.retained.not_retained, frontend.publish_handler.refused) == (2, 0)
    play("alice > UNSUBSCRIBE b    alice < UNSUBACK")
    reason = "0x97" if play.dialect.has_reasons else "0"
    play(f'bob > PUBLISH b retain=1 qos=1 "nobody hears"    bob < PUBACK reason={reason}')
    assert (frontend.retained.not_retained, frontend.publish_handler.refused) == (2, 1)


def test_what_others_keep_waits_until_it_is_known_what_waits_already(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bridge that gets all that is retained once, and asks another gateway for its part of that."""
    monkeypatch.setattr(retained_replay, "QUEUED_AT_ONCE", 1)
    play(PAIR)
    play("alice > SUBSCRIBE t/# qos=1    alice < SUBACK granted=1")
    frontend = play.broker.frontend
    session = frontend.connect_handler.sessions["alice"]
    session.replays = retained_replay.ReplayQueue(iter([None, "t/1"]))
    subscription = frontend.node.subscriptions.of("alice")["t/#"]
    for topic in ("t/1", "t/2", "t/3"):
        kept = Publication("bob", topic, b"x", 1, True, 0)
        request = parse_subscription("t/#", None)
        frontend.subscribe_handler.replay.deliver_remote(subscription, request, False, kept, play.broker.simulation.now)
    play("""
    alice > PINGREQ                  alice < PINGRESP
    alice < PUBLISH t/2 retain=1 qos=1 "x"
    alice < PUBLISH t/3 retain=1 qos=1 "x"
    """)
    assert not session.replays
