"""What rules of bridges make of payloads: docs/bridging.md, "What the payload becomes"."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgebridge.bridge.batching import decode_envelope, encode_entry, encode_envelope
from edgebridge.bridge.counters import BridgeCounters
from edgebridge.bridge.endpoints import Endpoints
from edgebridge.bridge.inbound import InboundFlow
from edgebridge.bridge.json_cbor import CborAsJson, PayloadFormat, encode_json
from edgebridge.bridge.local_end import BYTES_PER_TURN
from edgebridge.bridge.loop_detection import LoopDetector
from edgebridge.bridge.options import BridgeOptions, RemoteCapabilities
from edgebridge.bridge.outbound import OutboundFlow
from edgebridge.bridge.rules import RuleSet, parse_rule
from edgebridge.bridge.shaper import UNSHAPED, ShaperOptions
from edgebridge.bridge.transform import PayloadUnfit, Transform
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import Packet, Publish
from edgebridge.wire.properties import Property
from edgebroker.cbor import encode_cbor
from edgebroker.errors import RuleInvalid
from edgebroker.runtime.settings import Settings, SettingsRefused

from ..support.open_bridge import ForgetfulSession, OpenBridge

READING = b'{"id":7,"temp":21.5,"position":{"lat":52.5,"lon":13},"tags":["a","b"],"in":null}'

BECOMES = [
    ("select=temp,position.lat", READING, b'{"temp":21.5,"position":{"lat":52.5}}'),
    ('select=tags[1],"in"', READING, b'{"tags":["b"],"in":null}'),
    ("select=position.alt,temp.x,id[0]", READING, b"{}"),
    ("rename=temp:id,id:temp", b'{"id":7,"temp":21.50}', b'{"temp":7,"id":21.5}'),
    ('rename=position.lat:"lat "', READING, READING.replace(b'"lat"', b'"lat "')),
    ("select=position rename=position.lat:y", READING, b'{"position":{"y":52.5,"lon":13}}'),
    ("convert=json", b' {"temp": 21.50}', b' {"temp": 21.50}'),
    ("convert=cbor", b"[]", b"\x80"),
    ("convert=cbor", b'{"temp":21.5,"n":-1}', bytes.fromhex("a2 6474656d70 f94d60 616e 20")),
    ("convert=cbor", b"[0.1,1e300,100000.0,-0.0]", b"\x84" + cbor2.dumps(0.1) + cbor2.dumps(1e300)
     + bytes.fromhex("fa47c35000 f98000")),
    ("convert=cbor", b"[9007199254740993,-18446744073709551617]", cbor2.dumps([9007199254740993, -(2**64) - 1])),
    ("convert=json", cbor2.dumps([-(2**64) - 1, 2**53 + 1]), b"[-18446744073709551617,9007199254740993]"),
    ("convert=json", bytes.fromhex("83 f97e00 f97c00 f7"), b"[null,null,null]"),  # NaN, infinity, undefined
    ("convert=json", cbor2.dumps({"b": b"\xfb\xff\x00", 1: "x", -2: "y"}), b'{"b":"-_8A","1":"x","-2":"y"}'),
    ("convert=json", bytes.fromhex("82 c0 6132 c1 1a65000000"), b'["2",1694498816]'),  # a date, seconds
    ("convert=json", bytes.fromhex("bf 6161 9f 01 ff 6162 7f 6178 6179 ff ff"), b'{"a":[1],"b":"xy"}'),  # no lengths
    ("select=a rename=a:b", bytes.fromhex("bf 6161 fa3fc00000 6163 00 01 00 ff"), bytes.fromhex("a1 6162 fa3fc00000")),
    ("rename=a:b", bytes.fromhex("a2 6161 c11a65000000 01 f7"), bytes.fromhex("a2 6162 c11a65000000 01 f7")),
]  # fmt: skip
UNFIT = [
    ("convert=cbor", b"ON"),
    ("convert=cbor", b'{"temp":1e400}'),
    ("convert=cbor", b'{"temp":' + b"9" * 2_049 + b"}"),
    ("convert=cbor", b"[" * 33 + b"]" * 33),
    ("convert=cbor", b'"' + b"x" * (256 << 10) + b'"'),
    ("convert=cbor", b""),
    ("convert=cbor", b"[" + b"0," * 20_000 + b"0]"),
    ("convert=json", cbor2.dumps([0] * 20_000)),
    ("select=a", cbor2.dumps({"a": 1, "b": [0] * 20_000})),
    ("select=temp", b"21.5"),
    ("select=temp", cbor2.dumps([1])),
    ("rename=temp:id", READING),  # there is an id
    ("convert=json", b"ON"),
    ("convert=json", b"\xa1\x61"),
    ("convert=json", cbor2.dumps({"1": 1, 1: 2})),
    ("convert=json", cbor2.dumps({b"k": 1})),
    ("convert=json", cbor2.dumps([1]) + b"\0"),
    ("convert=json", bytes.fromhex("81 c4 82 01 02")),  # a decimal fraction
    ("convert=json", bytes.fromhex("81 f0")),  # a simple value that nobody has defined
    ("convert=json", b"\x81\xc2" + cbor2.dumps(b"\xff" * 1_000)),  # a number of 2,409 digits
    ("convert=json", b"\x81" * 40 + b"\x80"),
]


def rule(words: str) -> Transform:
    shape = parse_rule(f"t out 1 {words}").shape
    assert shape is not None
    return Transform(shape)


@pytest.mark.parametrize(("words", "payload", "becomes"), BECOMES, ids=[words for words, _, _ in BECOMES])
def test_payloads_become_what_their_rule_says(words: str, payload: bytes, becomes: bytes) -> None:
    assert rule(words).payload(payload, "").payload == becomes


@pytest.mark.parametrize(("words", "payload"), UNFIT, ids=[words for words, _ in UNFIT])
def test_what_would_change_its_meaning_is_unfit(words: str, payload: bytes) -> None:
    with pytest.raises(PayloadUnfit):
        rule(words).payload(payload, "")


def test_what_is_too_much_is_unfit_and_travels_in_an_envelope_as_text() -> None:
    much = b"[" + b"[]," * 8_192 + b"[]]"
    with pytest.raises(PayloadUnfit, match="it is broken, too deep, or too much"):
        rule("convert=cbor").payload(much, "")
    whole = encode_envelope(PayloadFormat.JSON, 0, [encode_entry(PayloadFormat.JSON, 0, "t", much)])
    assert whole.endswith(b',"text"]]')
    assert [one.payload for one in decode_envelope(whole).entries] == [much]


@pytest.mark.parametrize(
    ("words", "fits", "more"),
    [
        ("convert=json", b"\x9f" + b"\xc1\x00" * 3_000 + b"\xff", b"\x9f" + b"\xc1\x00" * 3_001 + b"\xff"),
        ("select=a", b"\xa1aa\x9f" + b"\xc6\x00" * 2_999 + b"\xff", b"\xa1aa\x9f" + b"\xc6\x00" * 3_000 + b"\xff"),
        ("convert=cbor", b"[" + b"0," * 5_998 + b"0]", b"[" + b"0," * 6_001 + b"0]"),
    ],
)
def test_values_and_tags_of_cbor_are_counted(words: str, fits: bytes, more: bytes) -> None:
    rule(words).payload(fits, "")
    with pytest.raises(PayloadUnfit, match="more than 6,000 values"):
        rule(words).payload(more, "")


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(-(2**70), 2**70) | TEXTS
    | st.floats(allow_nan=False, allow_infinity=False) | st.floats(width=16, allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(TREES)
def test_json_as_cbor_and_back_is_the_same_text(tree: Any) -> None:
    text = json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode()
    became = encode_cbor(json.loads(text), has_short_floats=True)
    assert repr(cbor2.loads(became)) == repr(tree), "another reader finds the same values, in the same order"
    assert encode_json(CborAsJson(became).whole()) == text
    assert len(became) <= len(cbor2.dumps(tree))


NAMES = st.sampled_from(["a", "b", "a.a", "a.b", "b.a.b", "a[0]", "b[1]", "a[0].b"])
SMALL = st.recursive(
    st.integers(0, 3) | st.floats(width=64, allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from("abc"), SMALL), st.lists(NAMES, max_size=3), st.sampled_from(["", "b", "z"]))
def test_fields_of_json_and_of_cbor_go_on_alike(tree: dict[str, Any], select: list[str], name: str) -> None:
    words = f"select={','.join(select)}" if select else ""
    words += f" rename=a:{name}" if name and (not select or any(one[0] == "a" for one in select)) else ""
    if not words:
        return
    found = []
    for payload, read in ((json.dumps(tree).encode(), json.loads), (cbor2.dumps(tree), cbor2.loads)):
        try:
            found.append(repr(read(rule(words).payload(payload, "").payload)))
        except PayloadUnfit:
            found.append("unfit")
    assert found[0] == found[1]
    if not name and "a.b" in select and isinstance(tree.get("a"), dict) and "b" in tree["a"]:
        assert read(rule(words).payload(payload, "").payload)["a"]["b"] == tree["a"]["b"]


# -- in a bridge ----------------------------------------------------------------------------------------------------


class Carried:
    """A bridge with one rule: what it makes of a message."""

    def __init__(self, *rules: str) -> None:
        options = BridgeOptions("x", "up", [parse_rule(one) for one in rules], V5, packet_bytes_max=256)
        self.ends, made = Endpoints(), RuleSet(options.rules)
        made.set_remote(False)
        self.ends.capabilities = RemoteCapabilities(V5)
        guard = LoopDetector(options, made)
        guard.begin(self.ends.capabilities)
        self.counters = BridgeCounters()
        self.outbound = OutboundFlow(self.ends, made, guard, self.counters, ForgetfulSession())
        self.inbound = InboundFlow(self.ends, made, guard, self.counters, options, ForgetfulSession())

    def out(self, publish: Publish) -> Packet | None:
        """What the remote gets."""
        self.outbound.publish(publish, 0)
        return packet(self.ends.remote)

    def into(self, publish: Publish) -> Packet | None:
        """What our front end gets."""
        self.inbound.publish(publish, 0)
        return packet(self.ends.local)


def packet(written: list[bytes]) -> Packet | None:
    framer = Framer(1 << 20)
    framer.feed(b"".join(written))
    written.clear()
    frame = framer.next_frame()
    return None if frame is None else decode_packet(*frame, V5)


def test_properties_tell_what_the_payload_is_now() -> None:
    there = {Property.CONTENT_TYPE: "application/json", Property.PAYLOAD_FORMAT_INDICATOR: 1}
    carried = Carried("t out 1 convert=cbor", "u in 1 convert=json")
    on = carried.out(Publish("t", b'{"a":1}', 1, packet_id=1, properties={**there}))
    assert isinstance(on, Publish)
    assert (on.payload, on.properties) == (b"\xa1\x61a\x01", {Property.CONTENT_TYPE: "application/cbor"})
    back = carried.into(Publish("u", on.payload, 1, packet_id=1, properties={**on.properties}))
    assert isinstance(back, Publish)
    assert (back.payload, back.properties) == (b'{"a":1}', {Property.CONTENT_TYPE: "application/json"})
    assert carried.out(Publish("t", b'{"a":1}')) == Publish("t", b"\xa1\x61a\x01"), "a map tells what it is"
    bare = carried.out(Publish("t", b"21.5"))
    assert bare == Publish("t", b"\xf9\x4d\x60", properties={Property.CONTENT_TYPE: "application/cbor"})


def test_what_cannot_be_transformed_is_counted() -> None:
    carried = Carried("t out 1 convert=cbor", "u out 1 convert=cbor unfit=pass", "v in 1 convert=json")
    assert carried.out(Publish("t", b"ON", 1, packet_id=1)) is None
    assert packet(carried.ends.local) is not None, "our front end is told that it is lost"
    assert carried.out(Publish("u", b"ON")) == Publish("u", b"ON")
    assert carried.out(Publish("t", b"", retain=True)) == Publish("t", b"", retain=True), "takes away what is retained"
    assert carried.into(Publish("v", cbor2.dumps(["\0" * 60]), 1, packet_id=1)) is None, "as JSON it is too large"
    assert (carried.counters.dropped, carried.counters.untransformed) == ({"unfit": 1, "too_large": 1}, 1)


def test_answers_find_their_way_back() -> None:
    carried = Carried("ask/# out 1 site/ gw7/", "answer/# in 1 site/ gw7/")
    asked = carried.out(Publish("site/ask/a", properties={Property.RESPONSE_TOPIC: "site/answer/1"}))
    assert isinstance(asked, Publish)
    assert asked.properties[Property.RESPONSE_TOPIC] == "gw7/answer/1", "an answer there comes in as site/answer/1"
    carried = Carried("ask/# in 1 site/ gw7/", "answer/# out 1 site/ gw7/")
    for topic, here in (("gw7/answer/1", "site/answer/1"), ("elsewhere/1", "elsewhere/1")):
        asked = carried.into(Publish("gw7/ask/a", properties={Property.RESPONSE_TOPIC: topic}))
        assert isinstance(asked, Publish)
        assert asked.properties[Property.RESPONSE_TOPIC] == here


# -- how it is written ----------------------------------------------------------------------------------------------

WRITTEN = {
    't out 1 select=temp,"odd key"[0] rename=temp:t convert=cbor unfit=pass where x > 1': "",
    "t both select=a": "payloads that change both ways; write one rule with `out` and one with `in`",
    "t selct=a": "did you mean select?",
    "t select=$topic": "which is no field of the payload",
    "t select=a,": "write select=temp,position.lat",
    "t select=in": 'IN is a keyword; as a name it is quoted: "in"',
    "t select=a rename=b:c": "which `select` leaves out",
    "t rename=a:b.c": "which is a path",
    "t rename=a[0]:b": "which has no name but a place",
    "t rename=a:c,b:c": "`rename` of two fields to c",
    "t convert=xml": '`convert` is \'xml\'; write "json" or "cbor"',
    "t unfit=pass": "`unfit` where nothing is transformed",
}


@pytest.mark.parametrize("text", WRITTEN)
def test_rules_say_it_in_one_line(text: str) -> None:
    if not WRITTEN[text]:
        assert str(parse_rule(text)) == text
        return
    with pytest.raises(RuleInvalid) as refused:
        parse_rule(text)
    assert WRITTEN[text] in str(refused.value)


def test_rules_say_it_in_a_table() -> None:
    head = '[[bridge]]\nname = "x"\naddresses = ["h:1"]\n[[bridge.topic]]\npattern = "t"\n'
    said = 'select = ["a", "b.c"]\nrename = { a = "d" }\nconvert = "json"\n'
    loaded = Settings.parse(head + said, "x.toml", Path())
    assert loaded.bridges[0].topic == (parse_rule("t select=a,b.c rename=a:d convert=json"),)
    for line, why in (("select = [1]", "something else than names"), ('rename = "a"', "rename is text")):
        with pytest.raises(SettingsRefused) as refused:
            Settings.parse(head + line, "x.toml", Path())
        assert why in str(refused.value)


@pytest.mark.parametrize("shaper", [UNSHAPED, ShaperOptions(bytes_per_day=10**9)])
def test_many_messages_that_change_take_so_much_of_a_turn_and_go_on_in_the_next(shaper: ShaperOptions) -> None:
    trip = OpenBridge(shaper, rules=["out/# out 1 convert=cbor"])
    payloads = [b'{"number":%d,"text":"%s"}' % (number, b"x" * 1_000) for number in range(100)]
    said = [Publish(f"out/{n % 3}", one, n % 4 > 0, packet_id=n if n % 4 else 0) for n, one in enumerate(payloads)]
    trip.ours(*said)
    turns = [trip.sent()]
    while trip.bridge.local_end.has_backlog:
        assert trip.bridge.next_due() == trip.now
        trip.bridge.fire(trip.now)
        trip.collect_output()
        turns.append(trip.sent())
    assert max(map(len, turns)) * 1_000 <= (BYTES_PER_TURN + 1_000) * 4 // 3, "a quarter has QoS 0"
    found = [cbor2.loads(one.payload)["number"] for turn in turns for one in turn if isinstance(one, Publish)]
    assert found == list(range(100))
    trip.ours(*said)
    came = len(trip.sent())
    assert not trip.bridge.local_end.is_full
    trip.bridge.on_connection_lost("gone", trip.now)
    assert trip.bridge.outbound_counters.dropped == {"absent": 25 - (came + 3) // 4}, (
        "of QoS 0; the rest the session has"
    )
    large = OpenBridge(shaper, rules=["out/# out 1 convert=cbor"])
    large.ours(*(Publish("out/1", b'{"text":"%s"}' % (b"x" * 15_000), 1, packet_id=n) for n in range(1, 101)))
    assert large.bridge.local_end.is_full
