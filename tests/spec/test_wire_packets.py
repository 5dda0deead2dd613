"""Every packet type in both dialects and every property, the standards' own examples among them: bytes <-> packet.

The bytes are written by hand from MQTT 3.1.1 and MQTT 5.0, chapter 3; each string of bytes is one field.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5, V311, Dialect
from edgebridge.wire.encode import encode_packet, encode_properties, publish_head
from edgebridge.wire.framing import Framer, frame_bounds
from edgebridge.wire.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    SubscriptionOption,
    UnsubAck,
    Unsubscribe,
    Will,
)
from edgebridge.wire.properties import PROPERTY_RULES, Carrier, Properties, PropertyValue, read_properties
from edgebridge.wire.properties import Property as P
from edgebridge.wire.reasons import ReasonCode as R


@dataclass(frozen=True)
class Case:
    """*octets* are *packet* in *dialect*."""

    name: str
    dialect: Dialect
    octets: bytes
    packet: Packet

    def __str__(self) -> str:
        return f"{self.dialect.version}: {self.name}"


CASES = (
    # -- CONNECT -----------------------------------------------------------------------------------------------
    Case(
        "connect, bare",
        V311,
        b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01a",
        Connect("a", True, 60, dialect=V311),
    ),
    Case(
        "connect, no client identifier",
        V311,
        b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00",
        Connect("", dialect=V311),
    ),
    Case(
        "connect, everything",
        V311,
        b"\x10\x1e\x00\x04MQTT\x04\xec\xff\xff\x00\x01c\x00\x03w/t\x00\x02\x00\xff\x00\x02\xc3\xa9\x00\x02\x00\x01",
        Connect("c", False, 65535, "é", b"\x00\x01", Will("w/t", b"\x00\xff", 1, True), dialect=V311),
    ),
    Case(
        "connect, bare",
        V5,
        b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x0a\x00\x00\x00",
        Connect("", True, 10),
    ),
    Case(
        "connect, no clean start, no client identifier: the server assigns one",
        V5,
        b"\x10\x0d\x00\x04MQTT\x05\x00\x00\x00\x00\x00\x00",
        Connect("", False),
    ),
    Case(
        "connect, a password alone",
        V5,
        b"\x10\x10\x00\x04MQTT\x05\x42\x00\x00\x00\x00\x00\x00\x01p",
        Connect("", password=b"p"),
    ),
    Case(
        "connect, the flags of the standard's example",
        V5,
        b"\x10\x1c"
        b"\x00\x04MQTT"
        b"\x05"
        b"\xce"
        b"\x00\x0a"
        b"\x05\x11\x00\x00\x00\x0a"
        # the example ends here; a payload with an empty identifier, will, user name and password follows
        b"\x00\x00"
        b"\x00"
        b"\x00\x01t"
        b"\x00\x00"
        b"\x00\x00"
        b"\x00\x00",
        Connect("", True, 10, "", b"", Will("t", b"", 1), {P.SESSION_EXPIRY_INTERVAL: 10}),
    ),
    # -- CONNACK -----------------------------------------------------------------------------------------------
    Case("connack, accepted", V311, b"\x20\x02\x00\x00", ConnAck()),
    Case("connack, session present", V311, b"\x20\x02\x01\x00", ConnAck(True)),
    Case("connack, protocol level", V311, b"\x20\x02\x00\x01", ConnAck(False, R.UNSUPPORTED_PROTOCOL_VERSION)),
    Case("connack, identifier", V311, b"\x20\x02\x00\x02", ConnAck(False, R.CLIENT_IDENTIFIER_NOT_VALID)),
    Case("connack, unavailable", V311, b"\x20\x02\x00\x03", ConnAck(False, R.SERVER_UNAVAILABLE)),
    Case("connack, bad password", V311, b"\x20\x02\x00\x04", ConnAck(False, R.BAD_USER_NAME_OR_PASSWORD)),
    Case("connack, not authorised", V311, b"\x20\x02\x00\x05", ConnAck(False, R.NOT_AUTHORIZED)),
    Case("connack, accepted", V5, b"\x20\x03\x01\x00\x00", ConnAck(True)),
    Case("connack, banned", V5, b"\x20\x03\x00\x8a\x00", ConnAck(False, R.BANNED)),
    # -- PUBLISH -----------------------------------------------------------------------------------------------
    Case("publish, the standard's example", V311, b"\x32\x07\x00\x03a/b\x00\x0a", Publish("a/b", b"", 1, packet_id=10)),
    Case("publish, QoS 0", V311, b"\x30\x05\x00\x01ahi", Publish("a", b"hi")),
    Case("publish, QoS 0 retained", V311, b"\x31\x05\x00\x01ahi", Publish("a", b"hi", retain=True)),
    Case("publish, QoS 2 again", V311, b"\x3d\x06\x00\x01a\xff\xffx", Publish("a", b"x", 2, True, True, 65535)),
    Case("publish, 127 bytes", V311, b"\x30\x7f\x00\x01a" + b"x" * 124, Publish("a", b"x" * 124)),
    Case("publish, 128 bytes", V311, b"\x30\x80\x01\x00\x01a" + b"x" * 125, Publish("a", b"x" * 125)),
    Case("publish, 16,384 bytes", V5, b"\x30\x80\x80\x01\x00\x01a\x00" + b"x" * 16380, Publish("a", b"x" * 16380)),
    Case("publish, no properties", V5, b"\x30\x06\x00\x01a\x00hi", Publish("a", b"hi")),
    Case("publish, QoS 1", V5, b"\x32\x08\x00\x01a\x00\x0a\x00hi", Publish("a", b"hi", 1, packet_id=10)),
    Case(
        "publish, a topic alias for the topic",
        V5,
        b"\x30\x07\x00\x00\x03\x23\x00\x05x",
        Publish("", b"x", properties={P.TOPIC_ALIAS: 5}),
    ),
    Case(
        "publish, user properties keep their order, names repeat",
        V5,
        b"\x30\x17\x00\x01a\x13\x26\x00\x01k\x00\x012\x26\x00\x01k\x00\x011\x26\x00\x00\x00\x00",
        Publish("a", properties={P.USER_PROPERTY: [("k", "2"), ("k", "1"), ("", "")]}),
    ),
    Case(
        "publish, several subscription identifiers",
        V5,
        b"\x30\x0b\x00\x01a\x07\x0b\x01\x0b\xff\xff\xff\x7f",
        Publish("a", properties={P.SUBSCRIPTION_IDENTIFIER: [1, 268_435_455]}),
    ),
    Case("publish, a byte order mark is text", V311, b"\x30\x05\x00\x03\xef\xbb\xbf", Publish("\ufeff")),
    # -- PUBACK, PUBREC, PUBREL, PUBCOMP -----------------------------------------------------------------------
    Case("puback", V311, b"\x40\x02\x00\x01", PubAck(1)),
    Case("pubrec", V311, b"\x50\x02\x00\x01", PubRec(1)),
    Case("pubrel", V311, b"\x62\x02\x00\x01", PubRel(1)),
    Case("pubcomp", V311, b"\x70\x02\x00\x01", PubComp(1)),
    Case("puback, success", V5, b"\x40\x02\x00\x01", PubAck(1)),
    Case("puback, nobody there", V5, b"\x40\x03\x00\x01\x10", PubAck(1, R.NO_MATCHING_SUBSCRIBERS)),
    Case(
        "puback, success with a property",
        V5,
        b"\x40\x08\x00\x01\x00\x04\x1f\x00\x01r",
        PubAck(1, R.SUCCESS, {P.REASON_STRING: "r"}),
    ),
    Case("pubrec, success", V5, b"\x50\x02\x00\x01", PubRec(1)),
    Case("pubrec, quota", V5, b"\x50\x03\x00\x01\x97", PubRec(1, R.QUOTA_EXCEEDED)),
    Case("pubrel, success", V5, b"\x62\x02\x00\x01", PubRel(1)),
    Case("pubrel, unknown", V5, b"\x62\x03\x00\x01\x92", PubRel(1, R.PACKET_IDENTIFIER_NOT_FOUND)),
    Case("pubcomp, success", V5, b"\x70\x02\x00\x01", PubComp(1)),
    Case("pubcomp, unknown", V5, b"\x70\x03\x00\x01\x92", PubComp(1, R.PACKET_IDENTIFIER_NOT_FOUND)),
    # -- SUBSCRIBE, SUBACK -------------------------------------------------------------------------------------
    Case(
        "subscribe, the standard's example",
        V311,
        b"\x82\x0e\x00\x0a\x00\x03a/b\x01\x00\x03c/d\x02",
        Subscribe(10, [SubscriptionOption("a/b", 1), SubscriptionOption("c/d", 2)]),
    ),
    Case(
        "subscribe, the standard's example",
        V5,
        b"\x82\x0f\x00\x0a\x00\x00\x03a/b\x01\x00\x03c/d\x02",
        Subscribe(10, [SubscriptionOption("a/b", 1), SubscriptionOption("c/d", 2)]),
    ),
    Case(
        "subscribe, every option",
        V5,
        b"\x82\x10\x00\x0a\x02\x0b\x07\x00\x01a\x2e\x00\x04$s/#\x10",
        Subscribe(
            10,
            [SubscriptionOption("a", 2, True, True, 2), SubscriptionOption("$s/#", 0, retain_handling=1)],
            {P.SUBSCRIPTION_IDENTIFIER: [7]},
        ),
    ),
    Case(
        "subscribe, a content filter stays text",
        V311,
        b"\x82\x18\x00\x01\x00\x13$filter/a%20%3E%201\x00",
        Subscribe(1, [SubscriptionOption("$filter/a%20%3E%201")]),
    ),
    Case("suback, the standard's example", V311, b"\x90\x05\x00\x0a\x00\x02\x80", SubAck(10, [0, 2, 0x80])),
    Case(
        "suback",
        V5,
        b"\x90\x0a\x00\x0a\x05\x1f\x00\x02no\x01\x8f",
        SubAck(10, [R.GRANTED_QOS_1, R.TOPIC_FILTER_INVALID], {P.REASON_STRING: "no"}),
    ),
    # -- UNSUBSCRIBE, UNSUBACK ---------------------------------------------------------------------------------
    Case(
        "unsubscribe, the standard's example",
        V311,
        b"\xa2\x0c\x00\x0a\x00\x03a/b\x00\x03c/d",
        Unsubscribe(10, ["a/b", "c/d"]),
    ),
    Case("unsubscribe", V5, b"\xa2\x08\x00\x0a\x00\x00\x03a/b", Unsubscribe(10, ["a/b"])),
    Case("unsuback", V311, b"\xb0\x02\x00\x0a", UnsubAck(10)),
    Case("unsuback", V5, b"\xb0\x05\x00\x0a\x00\x00\x11", UnsubAck(10, [0, R.NO_SUBSCRIPTION_EXISTED])),
    # -- PINGREQ, PINGRESP, DISCONNECT, AUTH -------------------------------------------------------------------
    Case("pingreq", V311, b"\xc0\x00", PingReq()),
    Case("pingresp", V311, b"\xd0\x00", PingResp()),
    Case("disconnect", V311, b"\xe0\x00", Disconnect()),
    Case("pingreq", V5, b"\xc0\x00", PingReq()),
    Case("pingresp", V5, b"\xd0\x00", PingResp()),
    Case("disconnect, normal", V5, b"\xe0\x00", Disconnect()),
    Case("disconnect, with will", V5, b"\xe0\x01\x04", Disconnect(R.DISCONNECT_WITH_WILL_MESSAGE)),
    Case(
        "disconnect, the standard's example",
        V5,
        b"\xe0\x07\x00\x05\x11\x00\x00\x00\x00",
        Disconnect(properties={P.SESSION_EXPIRY_INTERVAL: 0}),
    ),
    Case("auth, success", V5, b"\xf0\x00", Auth()),
    Case(
        "auth, the standard's example",
        V5,
        b"\xf0\x06\x18\x04\x15\x00\x01m",
        Auth(R.CONTINUE_AUTHENTICATION, {P.AUTHENTICATION_METHOD: "m"}),
    ),
    Case("auth, a reason without properties", V5, b"\xf0\x02\x19\x00", Auth(R.RE_AUTHENTICATE)),
)

each_case = pytest.mark.parametrize("case", CASES, ids=str)


@pytest.mark.mqtt("MQTT-3.1.3-1", "MQTT-3.3.2-1", v311="MQTT-2.3.1-5", v5="MQTT-2.2.1-2")
@each_case
def test_the_bytes_decode_to_the_packet(case: Case) -> None:
    bounds = frame_bounds(case.octets, 0, len(case.octets))
    assert bounds is not None, "the remaining length is longer than the bytes"
    header, body, end = bounds
    assert end == len(case.octets), "the remaining length is shorter than the bytes"
    assert decode_packet(header, case.octets[body:end], case.dialect) == case.packet


@pytest.mark.mqtt(v311="MQTT-2.3.1-5", v5=("MQTT-1.5.5-1", "MQTT-2.2.1-2", "MQTT-2.2.2-1", "MQTT-3.2.2-1"))
@each_case
def test_the_packet_encodes_to_the_bytes(case: Case) -> None:
    assert encode_packet(case.packet, case.dialect) == case.octets


@each_case
def test_every_beginning_of_a_packet_is_unfinished_not_wrong(case: Case) -> None:
    for length in range(len(case.octets)):
        assert frame_bounds(case.octets[:length], 0, len(case.octets)) is None, f"after {length} bytes"


@pytest.mark.parametrize("dialect", [V311, V5], ids=lambda dialect: dialect.version)
def test_a_stream_byte_by_byte_gives_the_same_packets(dialect: Dialect) -> None:
    cases = [case for case in CASES if case.dialect is dialect]
    framer = Framer(100_000)
    seen: list[Packet] = []
    for octet in b"".join(case.octets for case in cases):
        framer.feed(bytes((octet,)))
        while frame := framer.next_frame():
            seen.append(decode_packet(*frame, dialect))
    assert seen == [case.packet for case in cases]


def test_every_packet_type_is_in_the_table_in_both_dialects() -> None:
    types = {type(case.packet) for case in CASES}
    assert {type(case.packet) for case in CASES if case.dialect is V5} == types
    assert {type(case.packet) for case in CASES if case.dialect is V311} == types - {Auth}
    assert len(types) == 15


# -- properties ------------------------------------------------------------------------------------------------

PROPERTIES: dict[P, tuple[bytes, PropertyValue]] = {
    P.PAYLOAD_FORMAT_INDICATOR: (b"\x01\x01", 1),
    P.MESSAGE_EXPIRY_INTERVAL: (b"\x02\x00\x00\x00\x3c", 60),
    P.CONTENT_TYPE: (b"\x03\x00\x04json", "json"),
    P.RESPONSE_TOPIC: (b"\x08\x00\x03r/t", "r/t"),
    P.CORRELATION_DATA: (b"\x09\x00\x02\x00\xff", b"\x00\xff"),
    P.SUBSCRIPTION_IDENTIFIER: (b"\x0b\x80\x01", [128]),
    P.SESSION_EXPIRY_INTERVAL: (b"\x11\xff\xff\xff\xff", 0xFFFF_FFFF),
    P.ASSIGNED_CLIENT_IDENTIFIER: (b"\x12\x00\x02id", "id"),
    P.SERVER_KEEP_ALIVE: (b"\x13\x00\x1e", 30),
    P.AUTHENTICATION_METHOD: (b"\x15\x00\x05SCRAM", "SCRAM"),
    P.AUTHENTICATION_DATA: (b"\x15\x00\x01m\x16\x00\x01\x00", b"\x00"),
    P.REQUEST_PROBLEM_INFORMATION: (b"\x17\x00", 0),
    P.WILL_DELAY_INTERVAL: (b"\x18\x00\x00\x00\x05", 5),
    P.REQUEST_RESPONSE_INFORMATION: (b"\x19\x01", 1),
    P.RESPONSE_INFORMATION: (b"\x1a\x00\x01i", "i"),
    P.SERVER_REFERENCE: (b"\x1c\x00\x06h:1883", "h:1883"),
    P.REASON_STRING: (b"\x1f\x00\x03why", "why"),
    P.RECEIVE_MAXIMUM: (b"\x21\x00\x14", 20),
    P.TOPIC_ALIAS_MAXIMUM: (b"\x22\x00\x00", 0),
    P.TOPIC_ALIAS: (b"\x23\xff\xff", 65535),
    P.MAXIMUM_QOS: (b"\x24\x01", 1),
    P.RETAIN_AVAILABLE: (b"\x25\x00", 0),
    P.USER_PROPERTY: (b"\x26\x00\x01k\x00\x01v", [("k", "v")]),
    P.MAXIMUM_PACKET_SIZE: (b"\x27\x00\x00\x10\x00", 4096),
    P.WILDCARD_SUBSCRIPTION_AVAILABLE: (b"\x28\x01", 1),
    P.SUBSCRIPTION_IDENTIFIER_AVAILABLE: (b"\x29\x00", 0),
    P.SHARED_SUBSCRIPTION_AVAILABLE: (b"\x2a\x00", 0),
}


@pytest.mark.parametrize("key", P, ids=lambda key: key.name)
def test_each_property_in_each_packet_that_may_carry_it(key: P) -> None:
    octets, value = PROPERTIES[key]
    octets = bytes((len(octets),)) + octets
    expected: Properties = {key: value}
    if key is P.AUTHENTICATION_DATA:  # which never stands without its method
        expected = {P.AUTHENTICATION_METHOD: "m", key: value}
    assert encode_properties(expected) == octets
    (rule,) = (rule for rule in PROPERTY_RULES if rule.key is key)
    assert rule.carriers
    for carrier in rule.carriers:
        assert read_properties(b"??" + octets + b"!", 2, carrier) == (expected, 2 + len(octets))


# MQTT 5.0 table 2-4, column "Packet / Will Properties", copied by hand.
_HANDED_OUT = {
    Carrier.CONNECT: {0x11, 0x15, 0x16, 0x17, 0x19, 0x21, 0x22, 0x26, 0x27},
    Carrier.CONNACK: {
        *(0x11, 0x12, 0x13, 0x15, 0x16, 0x1A, 0x1C, 0x1F, 0x21, 0x22),
        *(0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2A),
    },
    Carrier.PUBLISH: {0x01, 0x02, 0x03, 0x08, 0x09, 0x0B, 0x23, 0x26},
    Carrier.WILL: {0x01, 0x02, 0x03, 0x08, 0x09, 0x18, 0x26},
    Carrier.PUBACK: {0x1F, 0x26},
    Carrier.PUBREC: {0x1F, 0x26},
    Carrier.PUBREL: {0x1F, 0x26},
    Carrier.PUBCOMP: {0x1F, 0x26},
    Carrier.SUBSCRIBE: {0x0B, 0x26},
    Carrier.SUBACK: {0x1F, 0x26},
    Carrier.UNSUBSCRIBE: {0x26},
    Carrier.UNSUBACK: {0x1F, 0x26},
    Carrier.DISCONNECT: {0x11, 0x1C, 0x1F, 0x26},
    Carrier.AUTH: {0x15, 0x16, 0x1F, 0x26},
}


@pytest.mark.parametrize("carrier", Carrier, ids=lambda carrier: carrier.name)
def test_each_packet_has_the_properties_of_table_2_4(carrier: Carrier) -> None:
    assert {int(rule.key) for rule in PROPERTY_RULES if carrier in rule.carriers} == _HANDED_OUT[carrier]


# -- what one dialect cannot say -------------------------------------------------------------------------------


@pytest.mark.mqtt(v311="MQTT-3.2.2-6")
def test_311_says_nothing_where_it_has_no_words() -> None:
    """[3.1.1: MQTT-3.2.2-6] no return code fits: no CONNACK; a 3.1.1 DISCONNECT would discard the will."""
    assert encode_packet(ConnAck(False, R.PACKET_TOO_LARGE), V311) == b""
    assert encode_packet(Disconnect(R.SERVER_SHUTTING_DOWN), V311) == b""
    assert encode_packet(Auth(), V311) == b""


@pytest.mark.parametrize(
    ("reason", "code"),
    [(R.SERVER_BUSY, 3), (R.SERVER_SHUTTING_DOWN, 3), (R.USE_ANOTHER_SERVER, 3), (R.BANNED, 5), (R.NOT_AUTHORIZED, 5)],
)
def test_311_refuses_with_the_nearest_return_code(reason: R, code: int) -> None:
    assert encode_packet(ConnAck(False, reason), V311) == bytes((0x20, 2, 0, code))


def test_311_leaves_out_properties_reasons_and_options() -> None:
    properties: Properties = {P.USER_PROPERTY: [("k", "v")]}
    assert encode_packet(PubAck(1, R.QUOTA_EXCEEDED, properties), V311) == b"\x40\x02\x00\x01"
    assert encode_packet(SubAck(1, [R.TOPIC_FILTER_INVALID], properties), V311) == b"\x90\x03\x00\x01\x80"
    assert encode_packet(UnsubAck(1, [R.NO_SUBSCRIPTION_EXISTED], properties), V311) == b"\xb0\x02\x00\x01"
    subscribe = Subscribe(1, [SubscriptionOption("a", 1, True, True, 2)], properties)
    assert encode_packet(subscribe, V311) == b"\x82\x06\x00\x01\x00\x01a\x01"


# -- the hot path's piece --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", [V311, V5], ids=lambda dialect: dialect.version)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_publish_put_together_by_hand_is_the_same(dialect: Dialect, qos: int) -> None:
    publish = Publish("a/b", b"x" * 200, qos, True, qos > 0, 7 if qos else 0, {P.USER_PROPERTY: [("k", "v")]})
    properties = encode_properties(publish.properties) if dialect.has_properties else b""
    head = publish_head(b"a/b", qos, True, qos > 0, properties, 200, dialect.has_properties)
    whole = head + (b"\x00\x07" if qos else b"") + properties + publish.payload
    assert whole == encode_packet(publish, dialect)


def test_what_no_packet_can_hold_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="65535"):
        encode_packet(Unsubscribe(1, ["a" * 65_536]), V5)
