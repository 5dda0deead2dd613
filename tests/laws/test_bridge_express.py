"""The short way of ordinary messages over a bridge is the long way: byte for byte the same, whatever comes."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from edgebridge.upstream.express import Passes
from edgebridge.upstream.rule import parse_rule
from edgebridge.upstream.splice import Splice
from edgebridge.upstream.state import Order
from edgebridge.upstream.tally import Cause
from edgebridge.upstream.terms import Terms
from edgebridge.upstream.toll import NOTHING, Dues
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5, V311, Dialect
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import ConnAck, Connect, Disconnect, Packet, PubAck, Publish
from edgebridge.wire.properties import Properties, Property
from edgebroker.instants import SECOND

from ..spec.test_bridge_poison import Nothing

RULES = (
    "a/# out 2 retain=false",
    "a/x out 2",
    "b/# both 2",
    "c/# in 1 k/ r/",
    "d/# in 1 where x > 1",
    "e/+ out 1 y/ z/",
)
TOPICS = st.sampled_from(["a/1", "a/x", "b/1", "b/2", "r/c/1", "d/1", "y/e/1", "nobody/1", ""])
PROPERTIES: st.SearchStrategy[Properties] = st.sampled_from(
    [{}, {}, {}, {Property.CONTENT_TYPE: "t"}, {Property.USER_PROPERTY: [("k", "v")]}]
)


TERMS = {
    dialect: Terms("x", "up", [parse_rule(rule) for rule in RULES], dialect, identity="here", remote="there:1883")
    for dialect in (V5, V311)
}


def spliced(dialect: Dialect, granted: Properties, dues: Dues = NOTHING) -> Splice:
    """A bridge that is open at both ends, and has said what it says first."""
    splice = Splice(
        replace(TERMS[dialect], dues=dues),
        Nothing(),
        lambda: 0,
    )
    splice.start(0)
    while splice.state != "open":
        splice.fire(0)
        if Order.DIAL in splice.take_orders():
            splice.dialled(0)
            splice.heard(encode_packet(ConnAck(properties=granted), splice.granted.dialect), 0)
    splice.opened(0)
    splice.take_orders()
    splice.take_local()
    splice.take_remote(0)
    return splice


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
    gated = spliced(dialect, granted if dialect is V5 else {}, Dues(rate_bytes_s=1_000_000))
    original = Passes.find
    for is_ours, packet in said:
        results = []
        for splice in (short, long, gated):
            Passes.find = original if splice is not long else lambda self, topic: None  # type: ignore[method-assign]
            try:
                if is_ours:
                    splice.told(encode_packet(packet, V5), 1)
                else:
                    splice.heard(encode_packet(packet, splice.granted.dialect), 1)
            finally:
                Passes.find = original  # type: ignore[method-assign]
            results.append((b"".join(splice.take_remote(1)), b"".join(splice.take_local()), splice.state))
        assert results[0] == results[1] == results[2], "also through a gate that never closes"
    for first, *others in ((short.out, long.out, gated.out), (short.into, long.into, gated.into)):
        for one in others:
            assert (first.messages, first.by_rule, first.dropped) == (one.messages, one.by_rule, one.dropped)


def test_what_comes_in_one_piece_with_connack_waits_for_the_other_end() -> None:
    """A remote that kept our session sends what waited there at once."""
    splice = Splice(TERMS[V5], Nothing(), lambda: 0)
    splice.start(0)
    splice.take_orders()
    splice.opened(0)
    splice.take_local()
    splice.fire(0)
    splice.dialled(0)
    messages = [Publish("b/1", b"%d" % number, 2, packet_id=number) for number in (1, 2, 3)]
    splice.heard(b"".join(encode_packet(packet, V5) for packet in (ConnAck(True), *messages)), 0)
    orders = [order for order in splice.take_orders() if order != Order.DIAL]
    assert orders == [Order.CLOSE, Order.OPEN], "the end that was opened for its subscriptions, and the next"
    assert splice.take_local() == [encode_packet(Disconnect(), V5)]
    splice.opened(0)
    framer = Framer(1 << 20)
    framer.feed(b"".join(splice.take_local()))
    packets = [decode_packet(*frame, V5) for frame in iter(framer.next_frame, None)]
    assert isinstance(packets[0], Connect)
    assert [packet.payload for packet in packets if isinstance(packet, Publish)] == [b"1", b"2", b"3"]


def test_what_neither_end_took_any_more_is_counted() -> None:
    """QoS 0, each at the place where it waits when a connection ends: nobody else has it, and each is one lost."""
    said = [encode_packet(Publish("b/1", b"x", qos, packet_id=qos), V5) for qos in (0, 1, 0)]
    waits = Splice(TERMS[V5], Nothing(), lambda: 0)
    waits.start(0)
    waits.opened(0)
    waits.fire(0)
    waits.dialled(0)
    waits.heard(encode_packet(ConnAck(True), V5) + b"".join(said) + said[0][:-1], 0)
    waits.lost("the remote is gone before the other end is there", 0)
    assert waits.into.dropped == {Cause.ABSENT: 2}
    handed = spliced(V5, {})
    handed.heard(b"".join(said), 0)
    handed.closed(0)  # and what was for our own front end was not handed in
    handed.fire(SECOND * 60)
    handed.opened(SECOND * 60)
    assert handed.into.dropped == {Cause.ABSENT: 2}
    written = spliced(V5, {})
    for qos in (0, 1):
        written.told(encode_packet(Publish("a/1", b"x", qos, packet_id=qos), V5), 0)
    written.lost("before anything was written", 0)
    written.fire(SECOND * 60)
    written.dialled(SECOND * 60)
    assert written.out.dropped == {Cause.ABSENT: 1}
