"""The fast path of a bridge writes the same bytes as its general path, whatever arrives."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgebridge.bridge import local_end, remote_end
from edgebridge.bridge.bridge import Bridge
from edgebridge.bridge.counters import BridgeDropCause
from edgebridge.bridge.endpoints import BridgeCommand
from edgebridge.bridge.fast_path import RewriteCache
from edgebridge.bridge.options import BridgeOptions
from edgebridge.bridge.rules import parse_rule
from edgebridge.bridge.shaper import UNSHAPED, ShaperOptions
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5, V311, Dialect
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import ConnAck, Connect, Disconnect, Packet, PubAck, Publish
from edgebridge.wire.properties import Properties, Property
from edgebridge.wire.user_properties import ORIGIN_PROPERTY
from edgebroker.instants import SECOND

from ..support.open_bridge import ForgetfulSession

RULES = (
    "a/# out 2 retain=false",
    "a/x out 2",
    "b/# both 2",
    "c/# in 1 k/ r/",
    "d/# in 1 where x > 1",
    "e/+ out 1 y/ z/",
)
TOPICS = st.sampled_from(["a/1", "a/x", "b/1", "b/2", "r/c/1", "d/1", "y/e/1", "nobody/1", ""])
ORIGINS = ["here 1", "there 1", "there:1883 2", "far 1", "far 1", "far 15", "far 16", "far", "f" * 120 + " 1"]
PROPERTIES: st.SearchStrategy[Properties] = st.one_of(
    st.sampled_from([{}, {}, {}, {Property.CONTENT_TYPE: "t"}, {Property.USER_PROPERTY: [("k", "v")]}]),
    st.sampled_from(ORIGINS).map(lambda said: {Property.USER_PROPERTY: [(ORIGIN_PROPERTY, said)]}),
    st.sampled_from(
        [
            {Property.USER_PROPERTY: [(ORIGIN_PROPERTY, "far 1"), ("k", "v")]},
            {Property.USER_PROPERTY: [(ORIGIN_PROPERTY, "far 1"), (ORIGIN_PROPERTY, "here 1")]},
            {Property.USER_PROPERTY: [(ORIGIN_PROPERTY, "far 1")], Property.CONTENT_TYPE: "t"},
        ]
    ),
)


OPTIONS = {
    dialect: BridgeOptions(
        "x", "up", [parse_rule(rule) for rule in RULES], dialect, identity="here", remote_alias="there:1883"
    )
    for dialect in (V5, V311)
}


def spliced(dialect: Dialect, granted: Properties, shaper_options: ShaperOptions = UNSHAPED) -> Bridge:
    """A bridge that is open at both ends, and has said what it says first."""
    bridge = Bridge(
        replace(OPTIONS[dialect], shaper_options=shaper_options),
        ForgetfulSession(),
        lambda: 0,
    )
    bridge.start(0)
    while bridge.state != "open":
        bridge.fire(0)
        if BridgeCommand.DIAL in bridge.take_commands():
            bridge.on_connected(0)
            bridge.receive_remote(encode_packet(ConnAck(properties=granted), bridge.capabilities.dialect), 0)
    bridge.on_local_open(0)
    bridge.take_commands()
    bridge.take_local_output()
    bridge.take_remote_output(0)
    return bridge


@st.composite
def publishes(draw: st.DrawFn) -> Publish:
    qos = draw(st.integers(0, 2))
    return Publish(
        draw(TOPICS) or "a/1",
        draw(st.sampled_from([b"", b"1", b'{"x": 2}', b"x" * 200])),
        qos,
        draw(st.booleans()),
        bool(qos) and draw(st.booleans()),
        draw(st.integers(1, 5)) if qos else 0,
        dict(draw(PROPERTIES)),
    )


@given(
    st.sampled_from([V5, V311]),
    st.sampled_from(
        [{}, {Property.MAXIMUM_QOS: 1}, {Property.RETAIN_AVAILABLE: 0}, {Property.MAXIMUM_PACKET_SIZE: 90}]
    ),
    st.lists(st.tuples(st.booleans(), publishes() | st.builds(PubAck, st.integers(1, 5))), max_size=30),
)
def test_both_ways_say_the_same(dialect: Dialect, granted: Properties, said: list[tuple[bool, Packet]]) -> None:
    short = spliced(dialect, granted if dialect is V5 else {})
    long = spliced(dialect, granted if dialect is V5 else {})
    gated = spliced(dialect, granted if dialect is V5 else {}, ShaperOptions(rate_bytes_s=1_000_000))
    original = RewriteCache.find
    for is_ours, packet in said:
        results = []
        for bridge in (short, long, gated):
            RewriteCache.find = original if bridge is not long else lambda self, topic: None  # type: ignore[method-assign]
            try:
                if is_ours:
                    bridge.receive_local(encode_packet(packet, V5), 1)
                else:
                    bridge.receive_remote(encode_packet(packet, bridge.capabilities.dialect), 1)
            finally:
                RewriteCache.find = original  # type: ignore[method-assign]
            results.append((b"".join(bridge.take_remote_output(1)), b"".join(bridge.take_local_output()), bridge.state))
        assert results[0] == results[1] == results[2], "also through a gate that never closes"
    for first, *others in (
        (short.outbound_counters, long.outbound_counters, gated.outbound_counters),
        (short.inbound_counters, long.inbound_counters, gated.inbound_counters),
    ):
        for one in others:
            assert (first.messages, first.by_rule, first.dropped) == (one.messages, one.by_rule, one.dropped)


def test_what_another_bridge_brought_goes_on_without_being_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that differ in their payloads alone, with the origin that the bridge they came by gave them."""
    bridge = spliced(V5, {})
    origin: Properties = {Property.USER_PROPERTY: [(ORIGIN_PROPERTY, "far 1")]}
    packets = [encode_packet(Publish("b/1", b"%d" % number, properties=dict(origin)), V5) for number in range(3)]
    bridge.receive_local(packets[0], 1)
    bridge.receive_remote(packets[0], 1)
    for module in (local_end, remote_end):
        monkeypatch.setattr(module, "decode_packet", lambda *packet: pytest.fail("it was decoded"))
    bridge.receive_local(b"".join(packets[1:]), 1)
    bridge.receive_remote(b"".join(packets[1:]), 1)
    framer = Framer(1 << 20)
    framer.feed(b"".join(bridge.take_remote_output(1)) + b"".join(bridge.take_local_output()))
    sent = [decode_packet(*frame, V5) for frame in iter(framer.next_frame, None)]
    carried = {Property.USER_PROPERTY: [(ORIGIN_PROPERTY, "far 2")]}
    assert [(one.payload, one.properties) for one in sent if isinstance(one, Publish)] == [
        (b"%d" % (number % 3), carried) for number in range(6)
    ]


def test_what_comes_in_one_piece_with_connack_waits_for_the_other_end() -> None:
    """A remote that kept our session sends what waited there at once."""
    bridge = Bridge(OPTIONS[V5], ForgetfulSession(), lambda: 0)
    bridge.start(0)
    bridge.take_commands()
    bridge.on_local_open(0)
    bridge.take_local_output()
    bridge.fire(0)
    bridge.on_connected(0)
    messages = [Publish("b/1", b"%d" % number, 2, packet_id=number) for number in (1, 2, 3)]
    bridge.receive_remote(b"".join(encode_packet(packet, V5) for packet in (ConnAck(True), *messages)), 0)
    orders = [order for order in bridge.take_commands() if order != BridgeCommand.DIAL]
    assert orders == [BridgeCommand.CLOSE, BridgeCommand.OPEN], (
        "the end that was opened for its subscriptions, and the next"
    )
    assert bridge.take_local_output() == [encode_packet(Disconnect(), V5)]
    bridge.on_local_open(0)
    framer = Framer(1 << 20)
    framer.feed(b"".join(bridge.take_local_output()))
    packets = [decode_packet(*frame, V5) for frame in iter(framer.next_frame, None)]
    assert isinstance(packets[0], Connect)
    assert [packet.payload for packet in packets if isinstance(packet, Publish)] == [b"1", b"2", b"3"]


def test_what_neither_end_took_any_more_is_counted() -> None:
    """QoS 0, each at the place where it waits when a connection ends: nobody else has it, and each is one lost."""
    said = [encode_packet(Publish("b/1", b"x", qos, packet_id=qos), V5) for qos in (0, 1, 0)]
    waits = Bridge(OPTIONS[V5], ForgetfulSession(), lambda: 0)
    waits.start(0)
    waits.on_local_open(0)
    waits.fire(0)
    waits.on_connected(0)
    waits.receive_remote(encode_packet(ConnAck(True), V5) + b"".join(said) + said[0][:-1], 0)
    waits.on_connection_lost("the remote is gone before the other end is there", 0)
    assert waits.inbound_counters.dropped == {BridgeDropCause.ABSENT: 2}
    handed = spliced(V5, {})
    handed.receive_remote(b"".join(said), 0)
    handed.on_local_closed(0)  # and what was for our own front end was not handed in
    handed.fire(SECOND * 60)
    handed.on_local_open(SECOND * 60)
    assert handed.inbound_counters.dropped == {BridgeDropCause.ABSENT: 2}
    written = spliced(V5, {})
    for qos in (0, 1):
        written.receive_local(encode_packet(Publish("a/1", b"x", qos, packet_id=qos), V5), 0)
    written.on_connection_lost("before anything was written", 0)
    written.fire(SECOND * 60)
    written.on_connected(SECOND * 60)
    assert written.outbound_counters.dropped == {BridgeDropCause.ABSENT: 1}
