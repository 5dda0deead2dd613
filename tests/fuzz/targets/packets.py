"""MQTT packets, in every dialect and both directions."""

from __future__ import annotations

from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import SPOKEN, V5, V311, Dialect
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.errors import ProtocolError
from edgebridge.wire.fields import write_variable
from edgebridge.wire.framing import Framer
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
from edgebridge.wire.properties import Property as P
from edgebridge.wire.reasons import ReasonCode as R
from tests.fuzz.frame.target import BOMB_BYTES, Target, filled

ABOUT_MESSAGES = {
    P.PAYLOAD_FORMAT_INDICATOR: 1,
    P.MESSAGE_EXPIRY_INTERVAL: 60,
    P.CONTENT_TYPE: "application/json",
    P.RESPONSE_TOPIC: "r",
    P.CORRELATION_DATA: b"\0\xff",
    P.USER_PROPERTY: [("$where", "x > 1"), ("k", "v")],
}
PACKETS: tuple[Packet, ...] = (
    Connect(
        "c", True, 60, "anna", b"secret", Will("w", b"gone", 1, True, {**ABOUT_MESSAGES, P.WILL_DELAY_INTERVAL: 5})
    ),
    Connect(
        "c",
        False,
        properties={
            P.SESSION_EXPIRY_INTERVAL: 9,
            P.RECEIVE_MAXIMUM: 3,
            P.TOPIC_ALIAS_MAXIMUM: 5,
            P.MAXIMUM_PACKET_SIZE: 999,
            P.REQUEST_PROBLEM_INFORMATION: 0,
            P.AUTHENTICATION_METHOD: "SCRAM-SHA-256",
            P.AUTHENTICATION_DATA: b"n,,n=anna,r=x",
        },
    ),
    ConnAck(
        True,
        R.SUCCESS,
        {
            P.ASSIGNED_CLIENT_IDENTIFIER: "x",
            P.SERVER_KEEP_ALIVE: 5,
            P.MAXIMUM_QOS: 1,
            P.RETAIN_AVAILABLE: 0,
            P.WILDCARD_SUBSCRIPTION_AVAILABLE: 1,
            P.REASON_STRING: "because",
        },
    ),
    ConnAck(False, R.NOT_AUTHORIZED),
    Publish("a/b", b'{"x":2}', 0),
    Publish(
        "a/b", b'{"x":2}', 1, True, True, 7, {**ABOUT_MESSAGES, P.TOPIC_ALIAS: 2, P.SUBSCRIPTION_IDENTIFIER: [1, 300]}
    ),
    Publish("", b"1", 2, packet_id=3, properties={P.TOPIC_ALIAS: 2}),
    PubAck(7, R.QUOTA_EXCEEDED, {P.REASON_STRING: "full"}),
    PubRec(7),
    PubRel(7, R.PACKET_IDENTIFIER_NOT_FOUND),
    PubComp(7),
    Subscribe(
        7,
        [SubscriptionOption("a/+/#", 2, True, True, 1), SubscriptionOption("$filter/x%3E1/a", 1)],
        {P.SUBSCRIPTION_IDENTIFIER: [268_435_455], P.USER_PROPERTY: [("$where", "x > 1")]},
    ),
    SubAck(7, [R.GRANTED_QOS_1, R.UNSPECIFIED_ERROR]),
    Unsubscribe(7, ["a/+/#", "b"]),
    UnsubAck(7, [R.SUCCESS]),
    PingReq(),
    PingResp(),
    Disconnect(R.DISCONNECT_WITH_WILL_MESSAGE, {P.SESSION_EXPIRY_INTERVAL: 0}),
    Auth(R.CONTINUE_AUTHENTICATION, {P.AUTHENTICATION_METHOD: "m", P.AUTHENTICATION_DATA: b"d"}),
)
WORDS = (
    b"\x00\x04MQTT\x04\x02\x00\x3c",
    b"\x00\x04MQTT\x05\x02\x00\x3c",
    b"\x00\x04MQTT\x84",
    b"\x00\x06MQIsdp\x03",
    *(bytes((key,)) for key in P),
    b"\x26\x00\x01k\x00\x01v",
    b"\x26\x00\x00\x00\x00",
    b"\x26\x00\x06$where\x00\x05x > 1",
    b"\x0b\xff\xff\xff\x7f",
    b"\x23\x00\x02",
    b"\x00\x04$SYS",
    b"\x00\x07a/+/b/#",
    b"\x00\x0e$share/g/a/b/c",
    b"\x80\x80\x80\x80\x01",
    b"\xff\xff\xff\x7f",
)


def seeds(dialects: tuple[Dialect, ...]) -> list[bytes]:
    """Each packet alone, and all of them: a byte that chooses the dialect, then what is sent."""
    found = []
    for number, dialect in enumerate(dialects):
        said = [encode_packet(one, dialect) for one in PACKETS if not isinstance(one, Connect)]
        said += [
            encode_packet(
                Connect(one.client_id, one.clean_start, 9, "a", b"b", one.will, one.properties, dialect), dialect
            )
            for one in PACKETS
            if isinstance(one, Connect)
        ]
        found += [bytes((number,)) + one for one in (*said, b"".join(said)) if one]
    return found


def read(data: bytes) -> None:
    """A stream of packets, fed in two pieces. What was read is written and read again, and is the same."""
    if not data:
        return
    dialect = SPOKEN[data[0] % len(SPOKEN)]
    framer = Framer(BOMB_BYTES)
    half = len(data) // 2
    for piece in (data[1:half], data[max(1, half) :]):
        framer.feed(piece)
        while (frame := framer.next_frame()) is not None:
            packet = decode_packet(*frame, dialect)
            spoken = packet.dialect if isinstance(packet, Connect) else dialect
            octets = encode_packet(packet, spoken)
            if octets and not (dialect.is_old and isinstance(packet, ConnAck)):  # 3.1 does not tell of sessions
                again = Framer(1 << 28)
                again.feed(octets)
                written = again.next_frame()
                assert written is not None
                assert decode_packet(*written, spoken) == packet


def decode(data: bytes) -> None:
    """The reading alone."""
    framer = Framer(BOMB_BYTES)
    framer.feed(data[1:])
    while (frame := framer.next_frame()) is not None:
        decode_packet(*frame, SPOKEN[data[0] % len(SPOKEN)])


def packet(first: int, body: bytes, dialect: Dialect = V5) -> bytes:
    """One packet, whatever is in it."""
    return bytes((SPOKEN.index(dialect), first)) + write_variable(len(body)) + body


def with_properties(before: bytes, piece: bytes, after: bytes = b"") -> bytes:
    """A body whose properties are *piece* over and over: 64 KiB with everything around it."""
    properties = filled(piece, size=BOMB_BYTES - 16 - len(before) - len(after))
    return before + write_variable(len(properties)) + properties + after


BOMBS = {
    "PUBLISH with empty user properties": lambda: packet(0x30, with_properties(b"\0\1a", b"\x26\0\0\0\0")),
    "PUBLISH with small user properties": lambda: packet(0x30, with_properties(b"\0\1a", b"\x26\0\1k\0\1v")),
    "PUBLISH with subscription identifiers": lambda: packet(0x30, with_properties(b"\0\1a", b"\x0b\x01")),
    "PUBLISH with a topic of many levels": lambda: packet(0x30, b"\xff\x00" + b"/" * 0xFF00, V311),
    "PUBLISH with 16 KiB of U+10FFFF": lambda: packet(0x30, b"\xff\x00" + b"\xf4\x8f\xbf\xbf" * 0x3FC0, V311),
    "CONNECT with will properties": lambda: packet(
        0x10, with_properties(b"\0\4MQTT\5\6\0\0\0\0\0", b"\x26\0\0\0\0", b"\0\1w\0\0")
    ),
    "SUBSCRIBE to empty filters": lambda: packet(0x82, filled(b"\0\0\1", b"\0\1", size=BOMB_BYTES - 8), V311),
    "SUBSCRIBE to many filters": lambda: packet(0x82, filled(b"\0\1#\1", b"\0\1\0", size=BOMB_BYTES - 8)),
    "SUBSCRIBE to 4,096 filters": lambda: packet(0x82, b"\0\1\0" + b"".join(b"\0\4%04x\1" % n for n in range(4_096))),
    "SUBSCRIBE with user properties": lambda: packet(0x82, with_properties(b"\0\1", b"\x26\0\0\0\0", b"\0\1a\0")),
    "UNSUBSCRIBE from many filters": lambda: packet(0xA2, filled(b"\0\1#", b"\0\1\0", size=BOMB_BYTES - 8)),
    "UNSUBSCRIBE from 4,096 filters": lambda: packet(0xA2, filled(b"\0\1#", b"\0\1\0", size=3 * 4_096)),
    "SUBACK of many": lambda: packet(0x90, filled(b"\1", b"\0\1\0", size=BOMB_BYTES - 8)),
    "UNSUBACK of many": lambda: packet(0xB0, filled(b"\0", b"\0\1\0", size=BOMB_BYTES - 8)),
}

TARGETS = (Target("packets", read, tuple(seeds(SPOKEN)), (ProtocolError,), WORDS, bombs=BOMBS, plain=decode),)
