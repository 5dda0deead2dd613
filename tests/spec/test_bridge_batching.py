"""Batching of many messages into one: the envelope of docs/bridging.md, and when a batch ends."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgebridge.bridge.batching import (
    BYTES_PER_TURN,
    ENTRIES_MAX,
    ENTRY_BYTES,
    ENVELOPE_BYTES_MAX,
    EnvelopeInvalid,
    decode_envelope,
    encode_entry,
    encode_envelope,
)
from edgebridge.bridge.counters import BridgeCounters
from edgebridge.bridge.endpoints import Endpoints
from edgebridge.bridge.inbound import InboundFlow
from edgebridge.bridge.json_cbor import PayloadFormat
from edgebridge.bridge.loop_detection import LoopDetector
from edgebridge.bridge.options import BridgeOptions, LocalSession, RemoteCapabilities
from edgebridge.bridge.outbound import OutboundFlow
from edgebridge.bridge.pacing_queue import PacingQueue
from edgebridge.bridge.rules import RuleSet, parse_rule
from edgebridge.bridge.shaper import Shaper, ShaperOptions
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import Packet, PubAck, Publish
from edgebridge.wire.properties import Property
from edgebridge.wire.reasons import ReasonCode
from edgebroker.errors import RuleInvalid
from edgebroker.instants import SECOND, Instant
from edgebroker.runtime.settings import Settings, SettingsRefused

PAGE = (Path(__file__).parents[2] / "docs" / "bridging.md").read_text()
SECTION = PAGE[PAGE.index("### The envelope") :]
WALL_MS = 1_763_827_200_123
MESSAGES = [(0, "berlin/sensors/1", b"21.5"), (1_500, "", b"21.6"), (1_730, "berlin/door", b"open")]


def block(tag: str) -> str:
    found = re.search(rf"^```{tag}\n(.*?)^```", SECTION, re.M | re.S)
    assert found is not None
    return found[1]


def test_envelopes_are_those_of_the_page() -> None:
    octets = bytes.fromhex("".join(re.sub(r"(?<=\S)  +.*", "", block("text")).split()))
    assert (
        encode_envelope(PayloadFormat.CBOR, WALL_MS, [encode_entry(PayloadFormat.CBOR, *one) for one in MESSAGES])
        == octets
    )
    assert (
        encode_envelope(
            PayloadFormat.JSON, WALL_MS, [encode_entry(PayloadFormat.JSON, *one) for one in MESSAGES]
        ).decode()
        == block("json").strip()
    )
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(block("python"), {"payload": octets})
    first, second, third = said.getvalue().splitlines()
    assert (first, second) == (f"{WALL_MS} berlin/sensors/1 b'21.5'", f"{WALL_MS + 1_500} berlin/sensors/1 b'21.6'")
    assert third == f"{WALL_MS + 1_730} berlin/door b'open'"


TOPICS = st.sampled_from(["a", "a/\u00e4", 'q"\\'])
PAYLOADS = st.binary(max_size=12) | st.text(max_size=6).map(lambda text: text.encode(errors="replace"))
JSON = st.sampled_from([b'{"a": 1.50,"b":[null]}', b'"\\ud83d\\ude00"', b"1e400", b"-0", b"[]", b'"', b"[" * 40])
MANY = st.lists(st.tuples(st.integers(0, 10**9), TOPICS, PAYLOADS | JSON), max_size=5)


@settings(max_examples=150, deadline=None)
@given(MANY)
def test_what_is_put_in_comes_out(messages: list[tuple[int, str, bytes]]) -> None:
    for form in PayloadFormat:
        if form is PayloadFormat.JSON:  # blanks around what is JSON are not kept
            messages = [(ms, topic, payload.strip(b" \t\r\n")) for ms, topic, payload in messages]
        found = decode_envelope(encode_envelope(form, WALL_MS, [encode_entry(form, *one) for one in messages]))
        assert found == (WALL_MS, messages)


def one(form: PayloadFormat, *parts: Any) -> bytes:
    return encode_envelope(form, 0, [encode_entry(form, *parts)])


BROKEN = {
    "empty": b"",
    "another version, CBOR": b"\x82\x02\x00",
    "another version, JSON": b"[2,0]",
    "no array": b'{"a":1}',
    "no topic at first, CBOR": one(PayloadFormat.CBOR, 0, "", b""),
    "no topic at first, JSON": one(PayloadFormat.JSON, 0, "", b""),
    "cut off": one(PayloadFormat.CBOR, 0, "t", b"x")[:-1],
    "cut off, JSON": one(PayloadFormat.JSON, 0, "t", b"x")[:-1],
    "more behind it": one(PayloadFormat.CBOR, 0, "t", b"x") + b"\0",
    "a topic that is a number": b"\x83\x01\x00\x83\x00\x00\x40",
    "a payload that is a text": b"\x83\x01\x00\x83\x00\x61t\x60",
    "half a character": b'[1,0,[0,"\\ud83d","x"]]',
    "no base64": b'[1,0,[0,"t","?","base64"]]',
    "a number that is called text": b'[1,0,[0,"t",1,"text"]]',
    "NaN": b'[1,0,[0,"t",NaN]]',
    "deep": b'[1,0,[0,"t",' + b"[" * 100_000,
    "too many": encode_envelope(
        PayloadFormat.CBOR, 0, [encode_entry(PayloadFormat.CBOR, 0, "t", b"")] * (ENTRIES_MAX + 1)
    ),
    "too large": one(PayloadFormat.CBOR, 0, "t", bytes(ENVELOPE_BYTES_MAX)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_envelope_is_refused_as_a_whole(name: str) -> None:
    with pytest.raises(EnvelopeInvalid):
        decode_envelope(BROKEN[name])


# -- in a bridge ----------------------------------------------------------------------------------------------------


class Remembers(LocalSession):
    def window(self) -> int:
        return 64

    def unix_us(self, now: Instant) -> int:
        return now + WALL_MS * 1_000


class Bridge:
    def __init__(self, *rules: str, packet_bytes_max: int = 0, window: int = 64) -> None:
        options = BridgeOptions(
            "x", "up", [parse_rule(one) for one in rules], V5, identity="0123456789abcdef", receive_maximum=window
        )
        made = RuleSet(options.rules)
        made.set_remote(False)
        self.ends, self.counters = Endpoints(), BridgeCounters()
        self.ends.capabilities = RemoteCapabilities(V5, packet_bytes_max=packet_bytes_max)
        guard = LoopDetector(options, made)
        guard.begin(self.ends.capabilities)
        self.outbound = OutboundFlow(self.ends, made, guard, self.counters, Remembers())
        self.outbound.begin_connection()
        self.inbound = InboundFlow(self.ends, made, guard, self.counters, options, Remembers())

    def out(self, *messages: Publish, now: Instant = 0) -> list[tuple[int, int, list[tuple[str, bytes]]]]:
        """What the remote gets: (packet identifier, QoS, topics and payloads)."""
        for message in messages:
            self.outbound.publish(message, now)
        return [
            (on.packet_id, on.qos, [(one.topic, one.payload) for one in decode_envelope(on.payload).entries])
            if on.topic == "batch"
            else (on.packet_id, on.qos, [(on.topic, on.payload)])
            for on in packets(self.ends.remote)
            if isinstance(on, Publish)
        ]


def packets(written: list[bytes]) -> list[Packet]:
    framer = Framer(1 << 20)
    framer.feed(b"".join(written))
    written.clear()
    return [decode_packet(*frame, V5) for frame in iter(framer.next_frame, None)]


def told(number: int, qos: int = 1, topic: str = "t", **more: Any) -> Publish:
    return Publish(topic, b"%d" % number, qos, packet_id=number if qos else 0, **more)


def test_a_batch_ends_when_it_is_full_or_its_time_is_over() -> None:
    bridge = Bridge("# out 1 batch_messages=3 batch_s=2")
    assert bridge.outbound.due() is None
    assert bridge.out(told(0, 0), told(1), now=SECOND) == []
    assert bridge.outbound.due() == 3 * SECOND
    assert bridge.out(told(2)) == [(1, 1, [("t", b"0"), ("t", b"1"), ("t", b"2")])], "named after its first of QoS 1"
    bridge.out(told(3, 0), now=4 * SECOND)
    bridge.outbound.fire(6 * SECOND - 1)
    assert bridge.out() == []
    bridge.outbound.fire(6 * SECOND)
    assert bridge.out() == [(0, 0, [("t", b"3")])]
    bridge.outbound.on_puback((1).to_bytes(2))
    assert packets(bridge.ends.local) == [PubAck(1), PubAck(2)]
    bridge.out(told(4), told(5), told(6))
    bridge.outbound.on_acknowledgement(PubAck(4, ReasonCode.QUOTA_EXCEEDED))
    assert packets(bridge.ends.local) == [PubAck(number, ReasonCode.QUOTA_EXCEEDED) for number in (4, 5, 6)]
    bridge.out(told(0, 0), told(7))
    bridge.outbound.begin_connection()
    assert bridge.counters.dropped == {"refused": 3, "absent": 1}, "at QoS 1 it comes again"
    assert bridge.counters.messages == 7


def test_a_batch_whose_time_is_over_is_paid_for() -> None:
    bridge, shaper = Bridge("# out 1 batch_messages=9 batch_s=2"), Shaper(ShaperOptions(rate_bytes_s=10))
    pacing = PacingQueue(shaper, bridge.outbound, bridge.ends, bridge.counters, Remembers())
    framer = Framer(1_000)
    framer.feed(encode_packet(told(1), V5) + encode_packet(told(2), V5))
    for first, body in iter(framer.next_frame, None):
        pacing.try_fast_path(first, body)
    assert shaper.blocked_until <= 0, "nothing went out yet"
    pacing.fire(2 * SECOND)
    assert [qos for _, qos, _ in bridge.out()] == [1]
    assert shaper.blocked_until > 2 * SECOND


def test_what_an_envelope_does_not_say_goes_by_itself_and_in_order() -> None:
    bridge = Bridge("# out 1 batch_messages=9", packet_bytes_max=1_000)
    others = [
        told(2, retain=True),
        told(2, 2),
        told(2, properties={Property.MESSAGE_EXPIRY_INTERVAL: 9}),
        Publish("t", bytes(790), 1, packet_id=2),
    ]
    for other in others:
        expected = [(1, 1, [("t", b"1")]), (2, other.qos, [("t", other.payload)])]
        assert bridge.out(told(1, properties={Property.CONTENT_TYPE: "text/plain"}), other) == expected
    bridge.out(Publish("t", bytes(400), 1, packet_id=3))
    assert [ids for ids, _, _ in bridge.out(Publish("t", bytes(400), 1, packet_id=4))] == [3], "both would be too large"


def test_what_comes_together_comes_in_by_itself() -> None:
    bridge = Bridge("a/# in 1 my/ r/ unbatch=true select=x", 'b in 1 "" r/ unbatch=true', "# in 2", window=2)
    messages = [
        ("r/a/1", b'{"x":1,"y":2}'),
        ("r/b", b"B"),
        ("r/c", b"no rule"),
        ("r/a/2", b"no object"),
        ("r/a/+", b""),
    ]
    messages += [("r/a/3", b'{"x":3}')]
    payload = encode_envelope(PayloadFormat.CBOR, 0, [encode_entry(PayloadFormat.CBOR, 0, *one) for one in messages])
    bridge.inbound.publish(Publish("r/batch", payload, 1, packet_id=9), 0)
    bridge.inbound.publish(Publish("plain", b"", 1, packet_id=65_535), 0)
    first, second = packets(bridge.ends.local)
    assert isinstance(first, Publish)
    assert isinstance(second, Publish)
    assert [(one.topic, one.payload, one.qos) for one in (first, second)] == [("my/a/1", b'{"x":1}', 1), ("b", b"B", 1)]
    bridge.inbound.on_puback(second.packet_id.to_bytes(2))
    bridge.inbound.on_acknowledgement(PubAck(first.packet_id, ReasonCode.NOT_AUTHORIZED))
    third, plain = packets(bridge.ends.local)
    assert isinstance(third, Publish)
    assert isinstance(plain, Publish)
    assert (third.topic, plain.topic) == ("my/a/3", "plain")
    assert not bridge.ends.remote, "one of the batch is not answered"
    bridge.inbound.on_puback(third.packet_id.to_bytes(2))
    assert packets(bridge.ends.remote) == [PubAck(9)]
    bridge.inbound.on_puback(plain.packet_id.to_bytes(2))
    assert packets(bridge.ends.remote) == [PubAck(65_535)]
    bridge.inbound.publish(Publish("r/batch", b"no batch", 1, packet_id=10), 0)
    assert packets(bridge.ends.remote) == [PubAck(10, ReasonCode.PAYLOAD_FORMAT_INVALID)]
    assert bridge.counters.dropped == {"no_rule": 1, "unfit": 2, "topic": 1, "refused": 1}


def test_what_comes_together_takes_so_much_of_a_turn_and_goes_on_in_the_next() -> None:
    bridge = Bridge("# in 1 unbatch=true", window=1_000)
    for qos in (1, 0, 0):
        payload = encode_envelope(
            PayloadFormat.CBOR,
            0,
            [encode_entry(PayloadFormat.CBOR, 0, "+" if n % 7 else "t", bytes(500)) for n in range(100)],
        )
        bridge.inbound.publish(Publish("batch", payload, qos, packet_id=9 * qos), 0)
    turns = []
    while bridge.inbound.has_backlog:
        looked = bridge.counters.messages + bridge.counters.dropped["topic"]
        bridge.inbound.fire()
        turns.append(bridge.counters.messages + bridge.counters.dropped["topic"] - looked)
        for on in packets(bridge.ends.local):
            if isinstance(on, Publish) and on.qos:
                bridge.inbound.on_puback(on.packet_id.to_bytes(2))
    assert max(turns) * (500 + ENTRY_BYTES) < BYTES_PER_TURN + 500 + ENTRY_BYTES
    assert bridge.counters.messages == 45
    assert bridge.counters.dropped == {"topic": 255}
    assert packets(bridge.ends.remote) == [PubAck(9)]


def test_figures_of_the_page() -> None:
    def octets(words: str) -> int:
        bridge = Bridge(f'sensors/# out 1 "" berlin/ {words}')
        for number in range(20):
            payload = b'{"temp":%d.5,"hum":%d}' % (20 + number % 3, 40 + number)
            message = Publish(f"sensors/{number % 5}/climate", payload, 1, packet_id=number + 1)
            bridge.outbound.publish(message, number * SECOND // 10)
        return sum(map(len, bridge.ends.remote))

    figures = [octets(words) for words in ("", "batch_messages=20", "batch_messages=20 convert=cbor")]
    assert [f"{figure:,}" in PAGE for figure in figures] == [True] * 3, figures


# -- how it is written ----------------------------------------------------------------------------------------------

WRITTEN = {
    't out 1 batch_messages=20 batch_s=5 batch_bytes=512 batch_topic="all"': "",
    't in 1 "" r/ batch_topic="all" unbatch=true': "",
    "t in 1 batch_messages=2": "batches go out",
    "t out 1 unbatch=true": "it is for rules with the direction `in`",
    "t out 2 batch_messages=2": "write QoS 1",
    "t in 2 unbatch=true": "write QoS 1",
    "t in 1 unbatch=true where x > 1": "it would be asked of the batch as a whole",
    "t out 1 batch_messages=1": "write 2 to 1,000",
    "t out 1 batch_messages=x": "write a number",
    "t out 1 batch_s=2": "say how many it has",
    "t out 1 batch_messages=2 batch_topic=a/#": "name one topic",
}


@pytest.mark.parametrize("text", WRITTEN)
def test_rules_say_it_in_one_line(text: str) -> None:
    if not WRITTEN[text]:
        assert str(parse_rule(text)) == text
        return
    with pytest.raises(RuleInvalid) as refused:
        parse_rule(text)
    assert WRITTEN[text] in str(refused.value)


def test_a_batch_fits_what_may_be_on_its_way() -> None:
    head = '[[bridge]]\nname = "x"\naddresses = ["h:1"]\ninflight_max = 19\n[[bridge.topic]]\npattern = "t"\n'
    with pytest.raises(SettingsRefused) as refused:
        Settings.parse(head + "batch_messages = 20\n", "x.toml", Path())
    assert "write at least 20" in str(refused.value)


@pytest.mark.parametrize(("age_s", "span"), [(20, "batch_s = 21"), (9, "")])
def test_a_batch_waits_no_longer_than_any_message_may(age_s: int, span: str) -> None:
    head = f'[[bridge]]\nname = "x"\naddresses = ["h:1"]\nqueue_age_s_max = {age_s}\n[[bridge.topic]]\npattern = "t"\n'
    with pytest.raises(SettingsRefused) as refused:
        Settings.parse(head + f"batch_messages = 20\n{span}\n", "x.toml", Path())
    assert f"or a batch_s of at most {age_s}" in str(refused.value)
    Settings.parse(head + f"batch_messages = 20\nbatch_s = {age_s}\n", "x.toml", Path())
