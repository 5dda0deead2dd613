"""Packets that break one rule each: the codec refuses with the right reason code and names the clause.

A clause is what the dialect's standard calls it: MQTT-3.1.2-22 is a password rule in 3.1.1 and a keep-alive rule in 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5, V31, V311, Dialect, answering_dialect
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.errors import MalformedPacket, PacketTooLarge, ProtocolError, UnsupportedProtocolVersion
from edgebridge.wire.fields import write_variable
from edgebridge.wire.framing import Framer, frame_bounds
from edgebridge.wire.packets import ConnAck
from edgebridge.wire.properties import PROPERTIES_BYTES_MAX
from edgebridge.wire.reasons import ReasonCode as R

MALFORMED, VIOLATION = R.MALFORMED_PACKET, R.PROTOCOL_ERROR

C311 = b"\x00\x04MQTT\x04"
C5 = b"\x00\x04MQTT\x05"


@dataclass(frozen=True)
class Refusal:
    """A packet with first byte *header* and *body* is refused with *reason*, citing the clause of each dialect.

    "" in place of a clause: the dialect has no such rule and the packet is not tried in it.
    """

    what: str
    header: int
    body: bytes
    reason: R
    v311: str
    v5: str


REFUSALS = (
    # -- fixed header ------------------------------------------------------------------------------------------
    Refusal("packet type 0", 0x00, b"", MALFORMED, "section 2.2.1", "section 2.1.2"),
    Refusal("AUTH, which 3.1.1 has not", 0xF0, b"", MALFORMED, "section 2.2.1", ""),
    *(
        Refusal(
            f"flags of packet type {kind}", kind << 4 | flags, b"\x00\x01", MALFORMED, "MQTT-2.2.2-1", "MQTT-2.1.3-1"
        )
        for kind in (*range(3), *range(4, 16))
        for flags in (0x01, 0x02, 0x08, 0x00)
        if flags != (2 if kind in (6, 8, 10) else 0)
    ),
    # -- fields ------------------------------------------------------------------------------------------------
    Refusal("a string that overruns its packet", 0x30, b"\x00\x05a/b", MALFORMED, "section 2.2.3", "section 2.1.4"),
    Refusal("half a length", 0x30, b"\x00", MALFORMED, "section 2.2.3", "section 2.1.4"),
    Refusal("an empty PUBACK", 0x40, b"", MALFORMED, "section 2.2.3", "section 2.1.4"),
    Refusal("bytes that are no UTF-8", 0x30, b"\x00\x02\xc3\x28\x00", MALFORMED, "MQTT-1.5.3-1", "MQTT-1.5.4-1"),
    Refusal("an overlong '/'", 0x30, b"\x00\x02\xc0\xaf\x00", MALFORMED, "MQTT-1.5.3-1", "MQTT-1.5.4-1"),
    Refusal("a surrogate", 0x30, b"\x00\x03\xed\xa0\x80\x00", MALFORMED, "MQTT-1.5.3-1", "MQTT-1.5.4-1"),
    Refusal("U+0000", 0x30, b"\x00\x03a\x00b\x00", MALFORMED, "MQTT-1.5.3-2", "MQTT-1.5.4-2"),
    Refusal("U+0000 in a filter", 0xA2, b"\x00\x01\x00\x01\x00", MALFORMED, "MQTT-1.5.3-2", ""),
    Refusal("U+0000 in a filter", 0xA2, b"\x00\x01\x00\x00\x01\x00", MALFORMED, "", "MQTT-1.5.4-2"),
    *(
        Refusal(f"packet identifier 0 in {name}", header, b"\x00\x00", VIOLATION, "MQTT-2.3.1-1", "MQTT-2.2.1-3")
        for name, header in {
            "PUBACK": 0x40,
            "PUBREC": 0x50,
            "PUBREL": 0x62,
            "PUBCOMP": 0x70,
            "SUBSCRIBE": 0x82,
            "SUBACK": 0x90,
            "UNSUBSCRIBE": 0xA2,
            "UNSUBACK": 0xB0,
        }.items()
    ),
    # -- CONNECT -----------------------------------------------------------------------------------------------
    Refusal("reserved flag", 0x10, C311 + b"\x03\x00\x00\x00\x00", MALFORMED, "MQTT-3.1.2-3", ""),
    Refusal("reserved flag", 0x10, C5 + b"\x03\x00\x00\x00\x00\x00", MALFORMED, "", "MQTT-3.1.2-3"),
    Refusal("will QoS without a will", 0x10, C311 + b"\x0a\x00\x00\x00\x00", MALFORMED, "MQTT-3.1.2-11", ""),
    Refusal("will retain without a will", 0x10, C5 + b"\x22\x00\x00\x00\x00\x00", MALFORMED, "", "MQTT-3.1.2-11"),
    Refusal("will QoS 3", 0x10, C311 + b"\x1e\x00\x00\x00\x00\x00\x01t\x00\x00", MALFORMED, "MQTT-3.1.2-14", ""),
    Refusal("will QoS 3", 0x10, C5 + b"\x1e\x00\x00\x00\x00\x00\x00\x00\x01t\x00\x00", MALFORMED, "", "MQTT-3.1.2-14"),
    Refusal(
        "a will without a topic", 0x10, C311 + b"\x06\x00\x00\x00\x00\x00\x00\x00\x00", MALFORMED, "MQTT-4.7.3-1", ""
    ),
    Refusal(
        "a will to a wildcard", 0x10, C311 + b"\x06\x00\x00\x00\x00\x00\x01#\x00\x00", MALFORMED, "MQTT-4.7.1-1", ""
    ),
    Refusal(
        "a will to a wildcard",
        0x10,
        C5 + b"\x06\x00\x00\x00\x00\x00\x00\x00\x01+\x00\x00",
        MALFORMED,
        "",
        "MQTT-4.7.0-1",
    ),
    Refusal("a password alone", 0x10, C311 + b"\x42\x00\x00\x00\x00\x00\x01p", MALFORMED, "MQTT-3.1.2-22", ""),
    Refusal("a missing user name", 0x10, C311 + b"\x82\x00\x00\x00\x00", MALFORMED, "section 2.2.3", ""),
    Refusal("a missing keep alive", 0x10, C311 + b"\x02\x00", MALFORMED, "section 2.2.3", ""),
    Refusal("no flags", 0x10, C311, MALFORMED, "section 2.2.3", "section 2.1.4"),
    Refusal(
        "a user name without its flag", 0x10, C311 + b"\x02\x00\x00\x00\x00\x00\x01u", MALFORMED, "section 2.2.3", ""
    ),
    Refusal(
        "a session to keep without a name",
        0x10,
        C311 + b"\x00\x00\x00\x00\x00",
        R.CLIENT_IDENTIFIER_NOT_VALID,
        "MQTT-3.1.3-8",
        "",
    ),
    # -- CONNACK -----------------------------------------------------------------------------------------------
    Refusal("reserved flags", 0x20, b"\x02\x00", MALFORMED, "section 3.2.2.1", ""),
    Refusal("reserved flags", 0x20, b"\x80\x00\x00", MALFORMED, "", "MQTT-3.2.2-1"),
    Refusal("return code 6", 0x20, b"\x00\x06", VIOLATION, "section 3.2.2.3", ""),
    Refusal("reason code 1", 0x20, b"\x00\x01\x00", VIOLATION, "", "MQTT-3.2.2-8"),
    Refusal("reason code session taken over", 0x20, b"\x00\x8e\x00", VIOLATION, "", "MQTT-3.2.2-8"),
    Refusal("refused with a session", 0x20, b"\x01\x05", VIOLATION, "MQTT-3.2.2-4", ""),
    Refusal("refused with a session", 0x20, b"\x01\x87\x00", VIOLATION, "", "MQTT-3.2.2-6"),
    Refusal("half a CONNACK", 0x20, b"\x00", MALFORMED, "section 2.2.3", "section 2.1.4"),
    Refusal("a longer CONNACK", 0x20, b"\x00\x00\x00", MALFORMED, "section 2.2.3", ""),
    Refusal("a longer CONNACK", 0x20, b"\x00\x00\x00\x00", MALFORMED, "", "section 2.1.4"),
    # -- PUBLISH -----------------------------------------------------------------------------------------------
    Refusal("QoS 3", 0x36, b"\x00\x01a\x00\x01\x00", MALFORMED, "MQTT-3.3.1-4", "MQTT-3.3.1-4"),
    Refusal("a QoS 0 duplicate", 0x38, b"\x00\x01a\x00", MALFORMED, "MQTT-3.3.1-2", "MQTT-3.3.1-2"),
    Refusal("a topic with +", 0x30, b"\x00\x03a/+\x00", MALFORMED, "MQTT-3.3.2-2", "MQTT-3.3.2-2"),
    Refusal("a topic with #", 0x30, b"\x00\x01#\x00", MALFORMED, "MQTT-3.3.2-2", "MQTT-3.3.2-2"),
    Refusal("no topic", 0x30, b"\x00\x00\x00", VIOLATION, "MQTT-4.7.3-1", "section 3.3.2.1"),
    Refusal("QoS 1 with identifier 0", 0x32, b"\x00\x01a\x00\x00\x00", VIOLATION, "MQTT-2.3.1-1", "MQTT-2.2.1-3"),
    Refusal("QoS 1 without an identifier", 0x32, b"\x00\x01a", MALFORMED, "section 2.2.3", "section 2.1.4"),
    Refusal("no property length", 0x30, b"\x00\x01a", MALFORMED, "", "section 2.1.4"),
    # -- acknowledgements --------------------------------------------------------------------------------------
    Refusal("a PUBACK with a reason", 0x40, b"\x00\x01\x00", MALFORMED, "section 2.2.3", ""),
    Refusal("PUBACK: no such reason", 0x40, b"\x00\x01\x01", VIOLATION, "", "MQTT-3.4.2-1"),
    Refusal("PUBREC: no such reason", 0x50, b"\x00\x01\x92", VIOLATION, "", "MQTT-3.5.2-1"),
    Refusal("PUBREL: no such reason", 0x62, b"\x00\x01\x80", VIOLATION, "", "MQTT-3.6.2-1"),
    Refusal("PUBCOMP: no such reason", 0x70, b"\x00\x01\x10", VIOLATION, "", "MQTT-3.7.2-1"),
    Refusal("a longer PUBREC", 0x50, b"\x00\x01\x00\x00\x00", MALFORMED, "", "section 2.1.4"),
    # -- SUBSCRIBE, SUBACK -------------------------------------------------------------------------------------
    Refusal("no topic filter", 0x82, b"\x00\x01", VIOLATION, "MQTT-3.8.3-3", ""),
    Refusal("no topic filter", 0x82, b"\x00\x01\x00", VIOLATION, "", "MQTT-3.8.3-2"),
    Refusal("no options", 0x82, b"\x00\x01\x00\x01a", MALFORMED, "section 2.2.3", ""),
    Refusal("No Local, which 3.1.1 has not", 0x82, b"\x00\x01\x00\x01a\x04", MALFORMED, "MQTT-3.8.3-4", ""),
    Refusal("reserved options", 0x82, b"\x00\x01\x00\x00\x01a\x40", MALFORMED, "", "MQTT-3.8.3-5"),
    Refusal("reserved options", 0x82, b"\x00\x01\x00\x00\x01a\x80", MALFORMED, "", "MQTT-3.8.3-5"),
    Refusal("QoS 3", 0x82, b"\x00\x01\x00\x01a\x03", MALFORMED, "MQTT-3.8.3-4", ""),
    Refusal("QoS 3", 0x82, b"\x00\x01\x00\x00\x01a\x03", VIOLATION, "", "section 3.8.3.1"),
    Refusal("retain handling 3", 0x82, b"\x00\x01\x00\x00\x01a\x30", VIOLATION, "", "section 3.8.3.1"),
    Refusal("No Local, shared", 0x82, b"\x00\x01\x00\x00\x0a$share/g/a\x04", VIOLATION, "", "MQTT-3.8.3-4"),
    Refusal("a second filter cut short", 0x82, b"\x00\x01\x00\x01a\x00\x00", MALFORMED, "section 2.2.3", ""),
    Refusal("return code 3", 0x90, b"\x00\x01\x03", VIOLATION, "MQTT-3.9.3-2", ""),
    Refusal("reason code 3", 0x90, b"\x00\x01\x00\x03", VIOLATION, "", "MQTT-3.9.3-2"),
    Refusal("no return code", 0x90, b"\x00\x01", VIOLATION, "MQTT-3.8.4-5", ""),
    # -- UNSUBSCRIBE, UNSUBACK ---------------------------------------------------------------------------------
    Refusal("no topic filter", 0xA2, b"\x00\x01", VIOLATION, "MQTT-3.10.3-2", ""),
    Refusal("no topic filter", 0xA2, b"\x00\x01\x00", VIOLATION, "", "MQTT-3.10.3-2"),
    Refusal("a longer UNSUBACK", 0xB0, b"\x00\x01\x00", MALFORMED, "section 2.2.3", ""),
    Refusal("UNSUBACK: no such reason", 0xB0, b"\x00\x01\x00\x02", VIOLATION, "", "MQTT-3.11.3-2"),
    Refusal("UNSUBACK without a reason", 0xB0, b"\x00\x01\x00", VIOLATION, "", "section 3.11.3"),
    # -- PINGREQ, PINGRESP, DISCONNECT, AUTH -------------------------------------------------------------------
    Refusal("a longer PINGREQ", 0xC0, b"\x00", MALFORMED, "section 2.2.3", "section 2.1.4"),
    Refusal("a longer PINGRESP", 0xD0, b"\x00", MALFORMED, "section 2.2.3", "section 2.1.4"),
    Refusal("a longer DISCONNECT", 0xE0, b"\x00", MALFORMED, "section 2.2.3", ""),
    Refusal("a longer DISCONNECT", 0xE0, b"\x00\x00\x00", MALFORMED, "", "section 2.1.4"),
    Refusal("DISCONNECT: no such reason", 0xE0, b"\x01", VIOLATION, "", "MQTT-3.14.2-1"),
    Refusal("AUTH: no such reason", 0xF0, b"\x80\x00", VIOLATION, "", "MQTT-3.15.2-1"),
    Refusal("AUTH without a property length", 0xF0, b"\x18", MALFORMED, "", "section 2.1.4"),
)


def _publish_with(properties: bytes) -> tuple[int, bytes]:
    return 0x30, b"\x00\x01a" + bytes((len(properties),)) + properties


def _connack_with(properties: bytes) -> tuple[int, bytes]:
    return 0x20, b"\x00\x00" + bytes((len(properties),)) + properties


def _connect_with(properties: bytes) -> tuple[int, bytes]:
    return 0x10, C5 + b"\x02\x00\x00" + bytes((len(properties),)) + properties + b"\x00\x00"


def _subscribe_with(properties: bytes) -> tuple[int, bytes]:
    return 0x82, b"\x00\x01" + bytes((len(properties),)) + properties + b"\x00\x01a\x00"


def _unknown_or_misplaced() -> Iterator[Refusal]:
    for what, packet in {
        "property 0x00": _publish_with(b"\x00\x00"),
        "property 0x7F": _publish_with(b"\x7f\x00"),
        "property 0x26 in two bytes": _publish_with(b"\xa6\x00\x00\x00\x00\x00"),
        "a session expiry in PUBLISH": _publish_with(b"\x11\x00\x00\x00\x01"),
        "a topic alias in CONNACK": _connack_with(b"\x23\x00\x01"),
        "a will delay outside the will": _connect_with(b"\x18\x00\x00\x00\x01"),
        "a reason string in SUBSCRIBE": _subscribe_with(b"\x1f\x00\x01r"),
    }.items():
        yield Refusal(what, *packet, MALFORMED, "", "section 2.2.2.2")


PROPERTY_REFUSALS = (
    *_unknown_or_misplaced(),
    Refusal("properties beyond the packet", 0x30, b"\x00\x01a\x05\x01\x00", MALFORMED, "", "section 2.1.4"),
    Refusal("a property beyond the length", 0x30, b"\x00\x01a\x01\x01\x00xx", MALFORMED, "", "section 2.2.2.1"),
    Refusal("a length of five bytes", 0x30, b"\x00\x01a\xff\xff\xff\xff\x01", MALFORMED, "", "section 1.5.5"),
    Refusal("a value cut short", *_publish_with(b"\x02\x00\x00"), MALFORMED, "", "section 2.1.4"),
    Refusal("a user property with U+0000", *_publish_with(b"\x26\x00\x01\x00\x00\x00"), MALFORMED, "", "MQTT-1.5.4-2"),
    Refusal("payload format 2", *_publish_with(b"\x01\x02"), VIOLATION, "", "section 3.3.2.3.2"),
    Refusal("topic alias 0", *_publish_with(b"\x23\x00\x00"), R.TOPIC_ALIAS_INVALID, "", "MQTT-3.3.2-8"),
    Refusal("a response topic with #", *_publish_with(b"\x08\x00\x01#"), MALFORMED, "", "MQTT-3.3.2-14"),
    Refusal("subscription identifier 0", *_subscribe_with(b"\x0b\x00"), VIOLATION, "", "section 3.8.2.1.2"),
    Refusal("two subscription identifiers", *_subscribe_with(b"\x0b\x01\x0b\x02"), VIOLATION, "", "section 3.8.2.1.2"),
    Refusal("receive maximum 0", *_connect_with(b"\x21\x00\x00"), VIOLATION, "", "section 3.1.2.11.3"),
    Refusal("maximum packet size 0", *_connect_with(b"\x27\x00\x00\x00\x00"), VIOLATION, "", "section 3.1.2.11.4"),
    Refusal("request problem information 2", *_connect_with(b"\x17\x02"), VIOLATION, "", "section 3.1.2.11.7"),
    Refusal("request response information 2", *_connect_with(b"\x19\x02"), VIOLATION, "", "section 3.1.2.11.6"),
    Refusal("data without a method", *_connect_with(b"\x16\x00\x00"), VIOLATION, "", "section 3.1.2.11.10"),
    Refusal("maximum QoS 2", *_connack_with(b"\x24\x02"), VIOLATION, "", "section 3.2.2.3.4"),
    Refusal("retain available 2", *_connack_with(b"\x25\x02"), VIOLATION, "", "section 3.2.2.3.5"),
    Refusal("wildcards available 2", *_connack_with(b"\x28\x02"), VIOLATION, "", "section 3.2.2.3.11"),
    Refusal("identifiers available 2", *_connack_with(b"\x29\xff"), VIOLATION, "", "section 3.2.2.3.12"),
    Refusal("shared available 2", *_connack_with(b"\x2a\x02"), VIOLATION, "", "section 3.2.2.3.13"),
    Refusal("two content types", *_publish_with(b"\x03\x00\x00\x03\x00\x00"), VIOLATION, "", "section 3.3.2.3.9"),
    Refusal("two topic aliases", *_publish_with(b"\x23\x00\x01\x23\x00\x01"), VIOLATION, "", "MQTT-3.3.2-8"),
    Refusal("two receive maxima", *_connect_with(b"\x21\x00\x01\x21\x00\x02"), VIOLATION, "", "section 3.1.2.11.3"),
)


def _by_dialect() -> Iterator[object]:
    for refusal in (*REFUSALS, *PROPERTY_REFUSALS):
        for dialect, clause in ((V311, refusal.v311), (V5, refusal.v5)):
            if clause:
                yield pytest.param(refusal, dialect, clause, id=f"{dialect.version}: {refusal.what} [{clause}]")


@pytest.mark.parametrize(("refusal", "dialect", "clause"), list(_by_dialect()))
def test_a_packet_that_breaks_one_rule_is_refused(refusal: Refusal, dialect: Dialect, clause: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        decode_packet(refusal.header, refusal.body, dialect)
    assert refused.value.reason is refusal.reason
    assert (refused.value.v5 if dialect is V5 else refused.value.v311) == clause
    assert clause in str(refused.value)


# -- versions --------------------------------------------------------------------------------------------------


@pytest.mark.mqtt("MQTT-3.1.2-2")
@pytest.mark.parametrize(
    ("named", "answer", "refusal"),
    [
        (b"\x00\x04MQTT\x03", V311, b"\x20\x02\x00\x01"),
        (b"\x00\x04MQTT\x83", V311, b"\x20\x02\x00\x01"),
        (b"\x00\x04MQTT\x06", V5, b"\x20\x03\x00\x84\x00"),
        (b"\x00\x06MQIsdp\x04", V31, b"\x20\x02\x00\x01"),
    ],
)
def test_a_version_we_do_not_speak_is_refused_in_words_its_sender_knows(
    named: bytes, answer: Dialect, refusal: bytes
) -> None:
    """[3.1.1: MQTT-3.1.2-2] return code 1; [5: MQTT-3.1.2-2] reason code 0x84."""
    body = named + b"\x02\x00\x3c\x00\x01a"
    with pytest.raises(UnsupportedProtocolVersion, match=r"MQTT-3\.1\.2-2") as refused:
        decode_packet(0x10, body, V311)
    assert answering_dialect(body) is answer
    assert encode_packet(ConnAck(False, refused.value.reason), answer) == refusal


@pytest.mark.mqtt("MQTT-3.1.2-1")
@pytest.mark.parametrize("body", [b"\x00\x04HTTP\x04\x02\x00\x00\x00\x00", b"\x00\x04mqtt\x04\x02\x00\x00\x00\x00"])
def test_what_is_not_mqtt_gets_no_answer(body: bytes) -> None:
    with pytest.raises(UnsupportedProtocolVersion, match=r"MQTT-3\.1\.2-1"):
        decode_packet(0x10, body, V311)
    assert answering_dialect(body) is None


@pytest.mark.parametrize(("body", "dialect"), [(C311, V311), (C5, V5), (b"", None), (b"\x00\x04MQTT", None)])
def test_a_broken_connect_is_answered_in_its_own_dialect(body: bytes, dialect: Dialect | None) -> None:
    assert answering_dialect(body) is dialect


# -- frames ----------------------------------------------------------------------------------------------------


def test_a_remaining_length_of_five_bytes_is_malformed() -> None:
    """[3.1.1: section 2.2.3], [5: section 1.5.5]."""
    with pytest.raises(MalformedPacket):
        frame_bounds(b"\x30\xff\xff\xff\xff", 0, 1 << 30)
    assert frame_bounds(b"\x30\xff\xff\xff", 0, 1 << 30) is None


def test_a_packet_may_have_256_mebibytes_and_no_more() -> None:
    longest = 5 + 268_435_455
    assert frame_bounds(b"\x30\xff\xff\xff\x7f", 0, longest) is None
    with pytest.raises(PacketTooLarge):
        frame_bounds(b"\x30\xff\xff\xff\x7f", 0, longest - 1)


def test_a_packet_beyond_the_limit_is_refused_before_its_body_arrives() -> None:
    framer = Framer(packet_bytes_max=100)
    framer.feed(b"\x30\x62" + b"x" * 98)  # exactly 100 bytes
    assert framer.next_frame() == (0x30, b"x" * 98)
    framer.feed(b"\x30\x63")
    with pytest.raises(PacketTooLarge, match="101 bytes, the limit is 100") as refused:
        framer.next_frame()
    assert refused.value.reason is R.PACKET_TOO_LARGE


def test_a_length_in_more_bytes_than_needed_is_taken() -> None:
    assert frame_bounds(b"\xc0\x80\x80\x00", 0, 100) == (0xC0, 4, 4)


def test_frames_are_found_behind_other_frames() -> None:
    assert frame_bounds(b"\xc0\x00\x40\x02\x00\x01\xe0", 2, 100) == (0x40, 4, 6)
    assert frame_bounds(b"\xc0\x00\x40\x02\x00\x01\xe0", 6, 100) is None
    assert frame_bounds(memoryview(b"\xc0\x00"), 2, 100) is None


def test_more_properties_than_anybody_needs_are_refused_before_they_are_read() -> None:
    properties = b"\x26\0\0\0\0" * (PROPERTIES_BYTES_MAX // 5 + 1)
    body = b"\0\1t" + write_variable(len(properties)) + properties
    with pytest.raises(PacketTooLarge):
        decode_packet(0x30, body, V5)
