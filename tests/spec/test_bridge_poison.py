"""A message that can never be taken is finished, counted and told of; it does not stop the bridge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgebridge.bridge.bridge import Bridge
from edgebridge.bridge.endpoints import BridgeState
from edgebridge.bridge.options import BridgeOptions
from edgebridge.bridge.remote_end import KEPT_BYTES_MAX, TRUNCATED, BoundedFramer
from edgebridge.bridge.rules import parse_rule
from edgebridge.frontend.handlers.publish_admission import MessageTooLarge
from edgebridge.wire.dialect import V5, V311, Dialect
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import ConnAck, PubAck, PubComp, Publish, PubRec, PubRel
from edgebridge.wire.properties import Properties, Property
from edgebridge.wire.reasons import ReasonCode

from ..support.open_bridge import ForgetfulSession, decoded

SIZE = 300


def opened(dialect: Dialect, *rules: str, **more: object) -> Bridge:
    options = BridgeOptions(
        "x",
        "up",
        [parse_rule(one) for one in rules or ("# in 2 here/",)],
        dialect,
        packet_bytes_max=SIZE,
        try_private=False,
        identity="gw",
        remote_alias="there:1",
        **more,  # type: ignore[arg-type]
    )
    bridge = Bridge(options, ForgetfulSession(), lambda: 0)
    bridge.start(0)
    bridge.fire(0)
    bridge.on_connected(0)
    bridge.receive_remote(encode_packet(ConnAck(), dialect), 0)
    bridge.on_local_open(0)
    bridge.take_remote_output(0)
    bridge.take_local_output()
    return bridge


def bad(dialect: Dialect, topic: bytes, payload: bytes, qos: int = 1) -> bytes:
    """A PUBLISH 7 as no encoder of ours writes it."""
    body = len(topic).to_bytes(2, "big") + topic + b"\0\7" + b"\0" * dialect.has_properties + payload
    length, octets = len(body), bytearray((0x30 | qos << 1,))
    while length > 0x7F:
        octets.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes(octets) + bytes((length,)) + body


POISON = {
    "too large": (b"t", 5_000, "too_large", 0x83),
    "too large with its prefix": (b"t" * 100, SIZE - 110, "too_large", 0x83),
    "a wildcard": (b"a/+", 0, "invalid", 0x80),
    "no text": (b"a/\xff", 0, "invalid", 0x80),
    "a control character": (b"a/\r", 0, "invalid", 0x80),
}


@pytest.mark.parametrize("dialect", [V5, V311], ids=["5", "3.1.1"])
@pytest.mark.parametrize("chunk", [1, 1_000_000], ids=["in single bytes", "in one piece"])
@pytest.mark.parametrize("name", POISON)
def test_what_can_never_be_taken_is_finished(name: str, chunk: int, dialect: Dialect) -> None:
    topic, octets, cause, reason = POISON[name]
    data = bad(dialect, topic, bytes(octets))
    bridge = opened(dialect)
    stream = data + encode_packet(Publish("next", b"1", 1, packet_id=8), dialect)
    for at in range(0, len(stream), chunk):
        bridge.receive_remote(stream[at : at + chunk], 1)
    assert bridge.state is BridgeState.OPEN
    assert decoded(bridge.take_remote_output(1), dialect) == [PubAck(7, reason if dialect is V5 else 0)]
    assert [packet.packet_id for packet in decoded(bridge.take_local_output(), V5) if isinstance(packet, Publish)] == [
        8
    ]
    assert bridge.inbound_counters.described()["dropped"] == {cause: 1}
    warnings = bridge.take_warnings()
    assert len(warnings) == 1, warnings
    bridge.receive_remote(data, 1)
    assert not bridge.take_warnings(), "once is enough"


def test_at_qos_2_the_handshake_is_finished_too() -> None:
    bridge = opened(V311)
    bridge.receive_remote(bad(V311, b"t", bytes(5_000), 2), 1)
    bridge.receive_remote(encode_packet(PubRel(7), V311), 1)
    assert decoded(bridge.take_remote_output(1), V311) == [PubRec(7), PubComp(7)]


def test_control_characters_in_a_property_are_not_handed_on() -> None:
    bridge = opened(V5)
    foul: Properties = {Property.USER_PROPERTY: [("a", "1"), ("b", "2\n")]}
    bridge.receive_remote(encode_packet(Publish("t", b"", 1, packet_id=1, properties=foul), V5), 1)
    assert (decoded(bridge.take_local_output(), V5), decoded(bridge.take_remote_output(1), V5)) == (
        [],
        [PubAck(1, 0x80)],
    )
    assert bridge.inbound_counters.described()["dropped"] == {"invalid": 1}


@pytest.mark.parametrize("reason", [MessageTooLarge.reason, ReasonCode.NOT_AUTHORIZED])
def test_what_our_front_end_refuses_for_good_is_finished_and_the_next_comes(reason: ReasonCode) -> None:
    bridge = opened(V5)
    for packet_id in (1, 2):
        bridge.receive_remote(encode_packet(Publish("t", b"", 1, packet_id=packet_id), V5), 1)
    for ack in (PubAck(1, reason), PubAck(2)):
        bridge.receive_local(encode_packet(ack, V5), 1)
    assert bridge.state is BridgeState.OPEN
    assert decoded(bridge.take_remote_output(1), V5) == [PubAck(1, reason), PubAck(2)]
    assert bridge.inbound_counters.described()["dropped"] == {"refused": 1}


def test_a_message_of_no_use_to_an_absent_remote_is_counted_only_if_it_is_lost() -> None:
    bridge = Bridge(BridgeOptions("x", "up", [parse_rule("#")]), ForgetfulSession(), lambda: 0)
    bridge.start(0)
    bridge.on_local_open(0)
    for packet_id, qos in enumerate((1, 2, 0), 1):
        bridge.receive_local(encode_packet(Publish("t", b"", qos, packet_id=packet_id if qos else 0), V5), 1)
        assert bridge.outbound_counters.described()["dropped"] == ({} if qos else {"absent": 1})


def test_each_message_that_waited_since_before_there_were_conditions_is_asked_for_its_own() -> None:
    bridge = opened(V5, 't out 1 "" hot/ where x > 1', 't out 1 "" all/')
    for x in (1, 2, 1):
        bridge.receive_local(encode_packet(Publish("t", b'{"x": %d}' % x, 1, packet_id=x), V5), 1)
    sent = [packet.topic for packet in decoded(bridge.take_remote_output(1), V5) if isinstance(packet, Publish)]
    assert sent == ["all/t", "hot/t", "all/t"]


def test_a_topic_alias_that_nobody_announced_stands_for_nothing() -> None:
    bridge = opened(V5)
    alias = {Property.TOPIC_ALIAS: 1}
    bridge.receive_remote(encode_packet(Publish("t", b"1", 1, packet_id=1, properties=dict(alias)), V5), 1)
    bridge.receive_remote(encode_packet(Publish("", b"2", 1, packet_id=2, properties=dict(alias)), V5), 1)
    [first] = decoded(bridge.take_local_output(), V5)
    assert isinstance(first, Publish)
    assert (first.topic, Property.TOPIC_ALIAS in first.properties) == ("here/t", False)
    assert decoded(bridge.take_remote_output(1), V5) == [PubAck(2, 0x80)]
    assert bridge.inbound_counters.described()["dropped"] == {"invalid": 1}


def test_where_nothing_is_retained_messages_come_without_that() -> None:
    bridge = opened(V5, retains=False)
    for packet_id in (1, 2):  # the long way and the short one
        bridge.receive_remote(encode_packet(Publish("t", b"1", 1, True, packet_id=packet_id), V5), 1)
    assert [packet.retain for packet in decoded(bridge.take_local_output(), V5) if isinstance(packet, Publish)] == [
        False,
        False,
    ]


def test_another_packet_that_is_too_large_ends_the_connection_and_says_so() -> None:
    bridge = opened(V311)
    bridge.receive_remote(b"\x90\xff\x7f" + bytes(16_383), 1)
    assert (bridge.state, bridge.reason) == (
        BridgeState.WAITING,
        "the remote breaks the protocol: a packet of more than 300 bytes",
    )


def test_no_more_than_the_beginning_of_a_large_packet_is_held() -> None:
    bounded = BoundedFramer(SIZE)
    bounded.feed(b"\x32\xff\xff\xff\x7f")
    for _ in range(100):
        bounded.feed(bytes(65_536))
        assert bounded.next_frame() is None
        assert len(bounded._beginning) <= KEPT_BYTES_MAX
        assert not bounded._buffer


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2 * SIZE)), max_size=12), st.lists(st.integers(1, 700)))
def test_what_is_small_enough_comes_whole_wherever_the_stream_is_cut(
    packets: list[tuple[int, int]], cuts: list[int]
) -> None:
    stream, expected = b"", []
    for kind, size in packets:
        whole = encode_packet(Publish("t" * (kind + 1), bytes(size)), V311)
        stream += whole
        at = 3 if whole[1] >= 0x80 else 2
        expected.append((0x30 | (TRUNCATED if len(whole) > SIZE else 0), whole[at:]))
    bounded, found, at = BoundedFramer(SIZE), [], 0
    for step in [*cuts, len(stream) + 1]:
        bounded.feed(stream[at : at + step])
        at += step
        found += list(iter(bounded.next_frame, None))
    assert found == expected
