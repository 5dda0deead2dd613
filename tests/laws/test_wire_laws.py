"""Laws of the codec: what is written can be read back; whatever is read is a packet or a clean refusal.

paho-mqtt packs properties and subscription options independently and must come to the same bytes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5, V311, V311_BRIDGE, Dialect
from edgebridge.wire.encode import encode_packet, encode_properties
from edgebridge.wire.errors import ProtocolError
from edgebridge.wire.fields import VARIABLE_MAX, read_variable, write_variable
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
from edgebridge.wire.properties import PAIR, PROPERTY_RULES, TEXT, Carrier, Properties, PropertyRule, read_properties
from edgebridge.wire.properties import Property as P
from edgebridge.wire.reasons import ReasonCode as R

USUAL = min(100, settings.default.max_examples if settings.default else 100)
"""How many examples laws have in this run: fewer in the pure one (tests/conftest.py)."""

# -- any packet ------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
topics = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0+#"), min_size=1, max_size=12)
octets = st.binary(max_size=20)
packet_ids = st.integers(1, 0xFFFF)
qos = st.integers(0, 2)
dialects = st.sampled_from([V311, V5])

_ACK = [R.SUCCESS, R.NO_MATCHING_SUBSCRIBERS, R.UNSPECIFIED_ERROR, R.NOT_AUTHORIZED, R.QUOTA_EXCEEDED]
_RELEASE = [R.SUCCESS, R.PACKET_IDENTIFIER_NOT_FOUND]
_LEFT = [R.NORMAL_DISCONNECTION, R.DISCONNECT_WITH_WILL_MESSAGE, R.SERVER_SHUTTING_DOWN]
_AUTHENTICATION = [R.SUCCESS, R.CONTINUE_AUTHENTICATION, R.RE_AUTHENTICATE]
_GRANTED_311 = [0, 1, 2, 0x80]
_GRANTED = [*_GRANTED_311, R.TOPIC_FILTER_INVALID, R.QUOTA_EXCEEDED, R.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED]
_RETURNED_311 = [
    R.SUCCESS,
    R.UNSUPPORTED_PROTOCOL_VERSION,
    R.CLIENT_IDENTIFIER_NOT_VALID,
    R.SERVER_UNAVAILABLE,
    R.BAD_USER_NAME_OR_PASSWORD,
    R.NOT_AUTHORIZED,
]


def values(rule: PropertyRule) -> st.SearchStrategy[Any]:
    if rule.key is P.RESPONSE_TOPIC:
        return topics
    if rule.kind is TEXT:
        return texts
    if rule.kind is PAIR:
        return st.lists(st.tuples(texts, texts), min_size=1, max_size=3)
    if rule.listed:
        return st.lists(st.integers(rule.low, rule.high), min_size=1, max_size=1)
    if rule.key in (P.CORRELATION_DATA, P.AUTHENTICATION_DATA):
        return octets
    return st.integers(rule.low, rule.high)


def properties(carrier: Carrier) -> st.SearchStrategy[Properties]:
    optional = {rule.key: values(rule) for rule in PROPERTY_RULES if carrier in rule.carriers}
    return st.fixed_dictionaries({}, optional=optional).map(with_method)


def with_method(drawn: Properties) -> Properties:
    """Authentication data never stand without their method."""
    return {P.AUTHENTICATION_METHOD: "m", **drawn} if P.AUTHENTICATION_DATA in drawn else drawn


@st.composite
def connects(draw: st.DrawFn, dialect: Dialect) -> Connect:
    clean_start, username = draw(st.booleans()), draw(st.none() | texts)
    bare = dialect is V311
    return Connect(
        draw(texts) or ("" if clean_start or not bare else "named"),
        clean_start,
        draw(st.integers(0, 0xFFFF)),
        username,
        None if bare and username is None else draw(st.none() | octets),
        draw(st.none() | st.builds(Will, topics, octets, qos, st.booleans(), carried(dialect, Carrier.WILL))),
        draw(carried(dialect, Carrier.CONNECT)),
        draw(st.sampled_from([V311, V311_BRIDGE])) if bare else dialect,
    )


@st.composite
def publishes(draw: st.DrawFn, dialect: Dialect) -> Publish:
    level = draw(qos)
    found = draw(carried(dialect, Carrier.PUBLISH))
    topic = draw(topics | st.just("")) if P.TOPIC_ALIAS in found else draw(topics)
    dup = level > 0 and draw(st.booleans())
    packet_id = draw(packet_ids) if level else 0
    return Publish(topic, draw(st.binary(max_size=300)), level, draw(st.booleans()), dup, packet_id, found)


@cache
def carried(dialect: Dialect, carrier: Carrier) -> st.SearchStrategy[Properties]:
    return properties(carrier) if dialect.has_properties else st.just({})


def packets(dialect: Dialect) -> st.SearchStrategy[Packet]:
    rich = dialect is V5

    def reasons(choice: list[R]) -> st.SearchStrategy[R]:
        return st.sampled_from(choice) if rich else st.just(R.SUCCESS)

    def options() -> st.SearchStrategy[SubscriptionOption]:
        if not rich:
            return st.builds(SubscriptionOption, texts, qos)
        return st.builds(SubscriptionOption, texts, qos, st.booleans(), st.booleans(), st.integers(0, 2))

    def props(carrier: Carrier) -> st.SearchStrategy[Properties]:
        return carried(dialect, carrier)

    granted = st.sampled_from(_GRANTED if rich else _GRANTED_311)
    ended = st.lists(st.sampled_from([0, 0x11, 0x87]), min_size=1, max_size=4) if rich else st.just([])
    refusals = st.sampled_from([*_RETURNED_311[1:], R.BANNED, R.SERVER_BUSY] if rich else _RETURNED_311[1:])
    return st.one_of(
        connects(dialect),
        st.builds(ConnAck, st.booleans(), st.just(R.SUCCESS), props(Carrier.CONNACK)),
        st.builds(ConnAck, st.just(False), refusals, props(Carrier.CONNACK)),
        publishes(dialect),
        st.builds(PubAck, packet_ids, reasons(_ACK), props(Carrier.PUBACK)),
        st.builds(PubRec, packet_ids, reasons(_ACK), props(Carrier.PUBREC)),
        st.builds(PubRel, packet_ids, reasons(_RELEASE), props(Carrier.PUBREL)),
        st.builds(PubComp, packet_ids, reasons(_RELEASE), props(Carrier.PUBCOMP)),
        st.builds(Subscribe, packet_ids, st.lists(options(), min_size=1, max_size=4), props(Carrier.SUBSCRIBE)),
        st.builds(SubAck, packet_ids, st.lists(granted, min_size=1, max_size=4), props(Carrier.SUBACK)),
        st.builds(Unsubscribe, packet_ids, st.lists(texts, min_size=1, max_size=4), props(Carrier.UNSUBSCRIBE)),
        st.builds(UnsubAck, packet_ids, ended, props(Carrier.UNSUBACK)),
        st.just(PingReq()),
        st.just(PingResp()),
        st.builds(Disconnect, reasons(_LEFT), props(Carrier.DISCONNECT)),
        *([st.builds(Auth, reasons(_AUTHENTICATION), props(Carrier.AUTH))] if rich else []),
    )


spoken = st.one_of([st.tuples(st.just(dialect), packets(dialect)) for dialect in (V311, V5)])
conversations = st.one_of(
    [st.tuples(st.just(dialect), st.lists(packets(dialect), max_size=8)) for dialect in (V311, V5)]
)
carriers = st.sampled_from([carrier for carrier in Carrier if carrier is not Carrier.WILL])

# -- laws ------------------------------------------------------------------------------------------------------


@settings(max_examples=15 * USUAL)
@given(spoken)
def test_what_is_written_is_read_back(said: tuple[Dialect, Packet]) -> None:
    dialect, packet = said
    written = encode_packet(packet, dialect)
    bounds = frame_bounds(written, 0, len(written))
    assert bounds is not None
    header, body, end = bounds
    assert end == len(written)
    assert decode_packet(header, written[body:end], dialect) == packet


@given(conversations, st.data())
def test_however_a_stream_is_cut_the_packets_are_the_same(
    said: tuple[Dialect, list[Packet]], data: st.DataObject
) -> None:
    dialect, sent = said
    stream = b"".join(encode_packet(packet, dialect) for packet in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10), label="cuts"))
    framer = Framer(1 << 28)
    seen: list[Packet] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        framer.feed(stream[start:end])
        while frame := framer.next_frame():
            seen.append(decode_packet(*frame, dialect))
    assert seen == sent


def decoded(header: int, body: bytes, dialect: Dialect) -> Packet | ProtocolError:
    try:
        return decode_packet(header, body, dialect)
    except ProtocolError as refused:
        return refused


def assert_clean(header: int, body: bytes, dialect: Dialect) -> None:
    """A packet, which can be written and means the same then; or a refusal with a failing reason."""
    outcome = decoded(header, body, dialect)
    if isinstance(outcome, ProtocolError):
        assert outcome.reason >= 0x80
        assert str(outcome)
        return
    written = encode_packet(outcome, dialect)
    bounds = frame_bounds(written, 0, len(written))
    assert bounds is not None
    assert decode_packet(bounds[0], written[bounds[1] :], dialect) == outcome


@settings(max_examples=20 * USUAL)
@given(st.integers(0, 255), st.binary(max_size=64), dialects)
@example(0x10, b"\x00\x04MQTT\x05\x02\x00\x00\x05\x11\x00\x00\x00\x0a", V5)
def test_any_bytes_are_a_packet_or_a_refusal(header: int, body: bytes, dialect: Dialect) -> None:
    assert_clean(header, body, dialect)


@settings(max_examples=15 * USUAL)
@given(spoken, st.data())
def test_a_damaged_packet_is_a_packet_or_a_refusal(said: tuple[Dialect, Packet], data: st.DataObject) -> None:
    dialect, packet = said
    damaged = bytearray(encode_packet(packet, dialect))
    for _ in range(data.draw(st.integers(1, 3), label="times")):
        at = data.draw(st.integers(0, len(damaged)), label="at")
        match data.draw(st.sampled_from(["set", "cut", "insert"]), label="how"):
            case "set":
                damaged[at : at + 1] = data.draw(st.binary(min_size=1, max_size=1), label="byte")
            case "cut":
                del damaged[at : at + data.draw(st.integers(1, 4), label="bytes")]
            case _:
                damaged[at:at] = data.draw(st.binary(min_size=1, max_size=4), label="bytes")
    framer = Framer(1 << 28)
    framer.feed(bytes(damaged))
    while frame := next_frame(framer):
        assert_clean(*frame, dialect)


def next_frame(framer: Framer) -> tuple[int, bytes] | None:
    """As the framer's own, but a refused length ends the stream like its end does."""
    try:
        return framer.next_frame()
    except ProtocolError:
        return None


@given(st.integers(0, VARIABLE_MAX))
@example(127)
@example(128)
@example(16_383)
@example(16_384)
@example(2_097_151)
@example(2_097_152)
def test_variable_byte_integers_are_shortest(value: int) -> None:
    written = write_variable(value)
    assert read_variable(written, 0) == (value, len(written))
    assert len(written) == max(1, -(-value.bit_length() // 7))


# -- paho-mqtt agrees ------------------------------------------------------------------------------------------


@given(carriers.flatmap(lambda carrier: st.tuples(st.just(carrier), carried(V5, carrier))))
def test_paho_packs_the_same_properties(said: tuple[Carrier, Properties]) -> None:
    paho = pytest.importorskip("paho.mqtt.properties")
    carrier, ours = said
    theirs = paho.Properties(int(carrier))
    names = {number: name.replace(" ", "") for name, number in theirs.names.items()}
    for key, value in ours.items():
        for one in value if isinstance(value, list) else [value]:
            setattr(theirs, names[key], one)
    packed = theirs.pack()
    # paho writes in the order of its own table: the whole has the same length and reads the same, each one is the same.
    assert len(packed) == len(encode_properties(ours))
    assert read_properties(packed, 0, carrier) == (ours, len(packed))
    for key, value in ours.items():
        one = paho.Properties(int(carrier))
        setattr(one, names[key], value)
        assert one.pack() == encode_properties({key: value})


@given(st.integers(0, 2), st.booleans(), st.booleans(), st.integers(0, 2))
def test_paho_packs_the_same_subscription_options(qos: int, no_local: bool, as_published: bool, handling: int) -> None:
    paho = pytest.importorskip("paho.mqtt.subscribeoptions")
    theirs = paho.SubscribeOptions(qos, no_local, as_published, handling).pack()
    subscribe = Subscribe(1, [SubscriptionOption("a", qos, no_local, as_published, handling)])
    assert encode_packet(subscribe, V5)[-1:] == theirs
