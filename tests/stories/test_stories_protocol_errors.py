"""Malformed and forbidden input closes its connection with the right reason, and harms no other client (P6)."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.frontend.options import FrontendOptions, Quota

BYSTANDERS = """
    alice > CONNECT            alice < CONNACK
    alice > SUBSCRIBE t qos=1  alice < SUBACK granted=1
    bob   > CONNECT            bob   < CONNACK
"""
UNHARMED = """
    bob   > PUBLISH t qos=1 "x"    bob < PUBACK    alice < PUBLISH t qos=1 "x"
    alice > PUBACK
"""

# What a client sends: in 3.1.1, in version 5 if that differs, and the reason it hears in version 5.
OFFENCES = {
    "packet type 0": ("0000", "", 0x81),
    "flags of AUTH": ("f100", "", 0x81),
    "flags of SUBSCRIBE": ("8006000100017400", "", 0x81),
    "remaining length of five bytes": ("30ffffffff01", "", 0x81),
    "QoS 3": ("3605000174000178", "", 0x81),
    "DUP at QoS 0": ("3803000174", "", 0x81),
    "packet identifier 0": ("32050001740000", "", 0x82),
    "topic with wildcard": ("3003000123", "300400012300", 0x81),
    "no topic": ("30020000", "3003000000", 0x82),
    "topic beyond the packet": ("3003000574", "", 0x81),
    "topic that is no UTF-8": ("30030001ff", "30040001ff00", 0x81),
    "topic with U+0000": ("3003000100", "300400010000", 0x81),
    "a second CONNECT": ("100d00044d5154540402000000" + "0161", "100e00044d515454050200000000" + "0161", 0x82),
    "CONNACK": ("20020000", "2003000000", 0x82),
    "PINGRESP": ("d000", "", 0x82),
    "SUBSCRIBE without a filter": ("82020001", "8203000100", 0x82),
    "SUBSCRIBE at QoS 3": ("8206000100017403", "820700010000017403", 0x82),
    "PINGREQ with a body": ("c00100", "", 0x81),
    "a property PUBLISH cannot have": ("0000", "30060001740211" + "00", 0x81),
    "a property twice": ("0000", "30080001740401000101", 0x82),
    "a topic with U+0001": ("3003000101", "300400010100", 0x90),
    "a topic with U+FFFE": ("30050003efbfbe", "30060003efbfbe00", 0x90),
    "a topic with U+0085 at QoS 1": ("32060002c2850001", "32070002c285000100", 0x90),
    "a user property with a line feed": ("0000", "300b000174072600010a000161", 0x81),
    "a content type with U+007F": ("0000", "3008000174040300017f", 0x81),
    "a response topic with U+FDD0": ("0000", "300a00017406080003efb790", 0x81),
    "a subscription identifier from a client": ("0000", "3006000174020b01", 0x82),
}


@pytest.mark.mqtt(
    "MQTT-3.1.0-2",
    "MQTT-3.3.1-2",
    "MQTT-3.3.1-4",
    "MQTT-3.3.2-2",
    "MQTT-3.8.1-1",
    v311=(
        "MQTT-1.5.3-1",
        "MQTT-1.5.3-2",
        "MQTT-2.2.2-2",
        "MQTT-2.3.1-1",
        "MQTT-3.8.3-3",
        "MQTT-3.8.3-4",
        "MQTT-4.7.1-1",
        "MQTT-4.7.3-1",
        "MQTT-4.7.3-2",
        "MQTT-4.8.0-1",
    ),
    v5=(
        "MQTT-1.5.4-1",
        "MQTT-1.5.4-2",
        "MQTT-2.1.3-1",
        "MQTT-2.2.1-3",
        "MQTT-3.3.4-6",
        "MQTT-3.8.3-2",
        "MQTT-3.14.2-1",
        "MQTT-3.15.1-1",
        "MQTT-4.7.0-1",
        "MQTT-4.7.3-1",
        "MQTT-4.7.3-2",
        "MQTT-4.13.1-1",
    ),
)
@pytest.mark.parametrize(("v311", "v5", "reason"), OFFENCES.values(), ids=OFFENCES)
def test_an_offender_is_closed_and_nobody_else_harmed(play: Any, v311: str, v5: str, reason: int) -> None:
    octets = v5 if v5 and play.dialect.has_reasons else v311
    play(BYSTANDERS)
    play(f"""
    mallory > CONNECT      mallory < CONNACK
    mallory > 0x{octets}   mallory < DISCONNECT reason=0x{reason:02X}    mallory < CLOSED
    """)
    play(UNHARMED)
    assert len(play.broker.frontend.connections) == 2


@pytest.mark.mqtt("MQTT-3.1.0-1", v5="MQTT-3.14.0-1")
@pytest.mark.parametrize("octets", ["0x3003000174", "0xc000", "0x820600010001 7400".replace(" ", ""), "0xe000"])
def test_the_first_packet_must_be_connect(play: Any, octets: str) -> None:
    """[MQTT-3.1.0-1]."""
    play(BYSTANDERS)
    play(f"""
    mallory opens
    mallory > {octets}    mallory < CLOSED
    """)
    play(UNHARMED)


BAD_CONNECTS = {
    "a byte too many": ("100e00044d51545404020000000161ff", "100f00044d5154540502000000000161ff", 0x81),
    "an identifier beyond the packet": (
        "100d00044d515454040200000002" + "61",
        "100e00044d51545405020000000002" + "61",
        0x81,
    ),
    "the reserved flag": ("100d00044d515454040300000001" + "61", "100e00044d51545405030000000001" + "61", 0x81),
    "a will without its flag": ("100d00044d515454042200000001" + "61", "100e00044d51545405220000000001" + "61", 0x81),
}


@pytest.mark.mqtt(
    "MQTT-3.1.2-3",
    "MQTT-3.1.4-1",
    v311=("MQTT-3.1.2-11", "MQTT-3.1.2-15", "MQTT-3.2.2-6"),
    v5=("MQTT-3.1.2-13", "MQTT-3.2.2-7", "MQTT-3.2.2-8"),
)
@pytest.mark.parametrize(("v311", "v5", "reason"), BAD_CONNECTS.values(), ids=BAD_CONNECTS)
def test_a_connect_that_cannot_be_read_is_refused(play: Any, v311: str, v5: str, reason: int) -> None:
    play(BYSTANDERS)
    play("mallory opens")
    if play.dialect.has_reasons:
        play(f"mallory > 0x{v5}    mallory < CONNACK reason=0x{reason:02X}    mallory < CLOSED")
    else:
        play(f"mallory > 0x{v311}    mallory < CLOSED")
    play(UNHARMED)


def test_a_will_with_control_characters_is_refused(play: Any) -> None:
    """Whoever would read it may close its connection over them."""
    refused = "mallory < CONNACK reason=0x90" if play.dialect.has_reasons else ""
    play(rf"""
    mallory opens
    mallory > CONNECT will="w/\u0001" will-payload="gone"    {refused}    mallory < CLOSED
    """)
    if play.dialect.has_properties:
        play(r"""
        mallory opens
        mallory > CONNECT will=w will-payload="gone" will-type="a\u007f"
        mallory < CONNACK reason=0x81    mallory < CLOSED
        """)


@pytest.mark.parametrize(
    ("octets", "then"),
    [("474554202f20485454502f312e310d0a0d0a", ""), ("16030100", ""), ("ffffffff", ""), ("10", "wait 9s    wait 2s")],
    ids=["HTTP", "TLS", "noise", "half a packet"],
)
def test_what_is_no_mqtt_at_all_is_closed(play: Any, octets: str, then: str) -> None:
    """At once or, while it may still become a packet, when the time for CONNECT is over."""
    play(BYSTANDERS)
    play(f"""
    mallory opens
    mallory > 0x{octets}    {then}    mallory < CLOSED
    """)
    play(UNHARMED)


@pytest.mark.mqtt(v311=("MQTT-3.1.2-2", "MQTT-3.2.2-5"))
def test_an_unknown_protocol_level_is_told_so(play_v311: Any) -> None:
    """[3.1.1: MQTT-3.1.2-2]: return code 1."""
    play_v311("""
    mallory opens
    mallory > 0x100d00044d51545483020000000161    mallory < CONNACK reason=0x84    mallory < CLOSED
    """)


@pytest.mark.mqtt(v5="MQTT-3.1.2-2")
def test_an_unknown_protocol_level_is_told_so_in_version_5(play_v5: Any) -> None:
    play_v5("""
    mallory opens
    mallory > 0x100e00044d5154540602000000000161  mallory < CONNACK reason=0x84    mallory < CLOSED
    """)


@pytest.mark.mqtt(v311=("MQTT-3.1.3-6", "MQTT-3.1.3-8"))
def test_an_empty_identifier_needs_a_clean_session(play_v311: Any) -> None:
    """[3.1.1: MQTT-3.1.3-8]."""
    play_v311("""
    alice > CONNECT id="" clean=0    alice < CONNACK reason=0x85    alice < CLOSED
    alice > CONNECT id=""            alice < CONNACK
    """)


@pytest.mark.mqtt(v5=("MQTT-4.12.0-1", "MQTT-4.12.0-7"))
def test_extended_authentication_is_refused(play_v5: Any) -> None:
    play_v5("""
    alice > CONNECT method=SCRAM     alice < CONNACK reason=0x8C    alice < CLOSED
    bob   > CONNECT                  bob   < CONNACK
    bob   > AUTH reason=0x19 method=SCRAM    bob < DISCONNECT reason=0x82    bob < CLOSED
    """)


def test_too_many_connections(play: Any) -> None:
    play("alice > CONNECT    alice < CONNACK", FrontendOptions(connections_max=1))
    play("""
    bob opens                bob   < CLOSED
    alice > PINGREQ          alice < PINGRESP
    """)


def test_too_many_sessions(play: Any) -> None:
    play("alice > CONNECT    alice < CONNACK", quota=Quota(sessions_max=1))
    play("""
    bob   > CONNECT          bob   < CONNACK reason=0x97    bob < CLOSED
    alice > DISCONNECT
    bob   > CONNECT          bob   < CONNACK
    """)


@pytest.mark.mqtt(v311="MQTT-4.8.0-1", v5=("MQTT-3.14.4-1", "MQTT-3.14.4-2", "MQTT-4.13.2-1"))
def test_the_rest_of_an_offenders_chunk_is_not_looked_at(play: Any) -> None:
    """What came before the offence counts."""
    first, second = (
        ("300400017461", "300400017462") if not play.dialect.has_reasons else ("30050001740061", "30050001740062")
    )
    play(BYSTANDERS)
    play(f"""
    mallory > CONNECT                  mallory < CONNACK
    mallory > 0x{first}f100{second}    alice < PUBLISH t "a"    mallory < DISCONNECT reason=0x81    mallory < CLOSED
    """)


def test_a_stopping_broker_says_good_bye(play: Any) -> None:
    play(BYSTANDERS)
    play.broker.stop()
    play("wait 1s    alice < DISCONNECT reason=0x8B    alice < CLOSED    bob < DISCONNECT reason=0x8B    bob < CLOSED")
    assert not play.broker.frontend.connections
