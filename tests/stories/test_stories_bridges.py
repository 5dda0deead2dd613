"""Bridges of Mosquitto: what they may ask for in 3.1.1 without words for it, and what they may say of themselves."""

from __future__ import annotations

from typing import Any

BRIDGE = "0x100d00044d51545484020000000161"
"""CONNECT of a client `a` at level 0x84: 3.1.1 with bit 7 set, which Mosquitto calls `try_private`."""


def test_a_bridge_gets_no_message_back_that_it_brought(play_v311: Any) -> None:
    play_v311(f"""
    bridge opens
    bridge > {BRIDGE}                 bridge < CONNACK
    bridge > SUBSCRIBE t/# qos=1      bridge < SUBACK granted=1
    bridge > PUBLISH t/a qos=1 "1"    bridge < PUBACK
    alice  > CONNECT                  alice  < CONNACK
    alice  > PUBLISH t/a "2"          bridge < PUBLISH t/a "2"
    """)


def test_what_is_retained_stays_retained_on_the_other_side(play_v311: Any) -> None:
    play_v311(f"""
    bridge opens
    bridge > {BRIDGE}                    bridge < CONNACK
    bridge > SUBSCRIBE t/#               bridge < SUBACK granted=0
    alice  > CONNECT                     alice  < CONNACK
    alice  > PUBLISH t/a "1"             bridge < PUBLISH t/a "1"
    alice  > PUBLISH t/a retain=1 "2"    bridge < PUBLISH t/a retain=1 "2"
    """)


def test_without_the_bit_it_is_a_client_like_any_other(play_v311: Any) -> None:
    play_v311("""
    bridge > CONNECT                     bridge < CONNACK
    bridge > SUBSCRIBE t/#               bridge < SUBACK granted=0
    bridge > PUBLISH t/a retain=1 "1"    bridge < PUBLISH t/a "1"
    """)


def test_a_client_may_say_whether_it_is_connected_and_speak_for_nobody_else(play: Any) -> None:
    play("""
    alice > CONNECT                         alice < CONNACK
    alice > SUBSCRIBE $SYS/broker/connection/+/state    alice < SUBACK granted=0
    uplink > CONNECT will="$SYS/broker/connection/uplink/state" will-payload=0 will-retain=1    uplink < CONNACK
    uplink > PUBLISH $SYS/broker/connection/uplink/state retain=1 "1"
    alice < PUBLISH $SYS/broker/connection/uplink/state "1"
    uplink > PUBLISH $SYS/broker/connection/alice/state "0"
    uplink > PUBLISH $SYS/broker/connection/uplink/state/x "0"
    uplink > PUBLISH $SYS/broker/uptime "0"
    uplink cut
    alice < PUBLISH $SYS/broker/connection/uplink/state "0"
    """)
    assert play.broker.frontend.publish_handler.refused == 3
