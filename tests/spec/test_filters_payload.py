"""docs/filters.md, "The payload": what the extractor takes out of which payload."""

from __future__ import annotations

import importlib.util
import json
import math
import random
from collections.abc import Callable
from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgebroker import cbor
from edgebroker.errors import FilterInvalid
from edgebroker.filters import Extractor, Filter
from edgebroker.filters.attributes import OTHER_TOPICS, UNREADABLE_TOPICS_MAX, UnreadableCounts
from edgebroker.filters.payloads import payload_tree
from edgebroker.predicate import COMPOSITE, Value

law = settings(derandomize=True, deadline=None, max_examples=300)


def taken(payload: bytes, *names: str, content_type: str | None = None, **about: Any) -> dict[str, Value]:
    publication = {"topic": "t", "qos": 0, "retain": False, "client": "c", **about}
    return Extractor(names).extract(payload, content_type=content_type, **publication)


def value(payload: bytes, name: str = "value", content_type: str | None = None) -> Value:
    return taken(payload, name, content_type=content_type).get(name)


# -- reserved names -----------------------------------------------------------------------------------------------


@pytest.mark.clause("F-15")
def test_what_is_known_of_the_publication() -> None:
    names = ("$topic", "$level1", "$level3", "$level4", "$qos", "$retain", "$size", "$client", "$user.site", "$user.x")
    found = taken(
        b"12345",
        *names,
        topic="fleet//a",
        qos=1,
        retain=True,
        client="truck",
        user=[("site", "north"), ("site", "south"), ("y", "")],
    )
    assert found == {
        "$topic": "fleet//a",
        "$level1": "fleet",
        "$level3": "a",
        "$qos": 1,
        "$retain": True,
        "$size": 5,
        "$client": "truck",
        "$user.site": "north",
    }


@pytest.mark.clause("F-34")
def test_the_payload_is_left_alone_if_nobody_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgebroker.filters.attributes.payload_tree", lambda *_, **__: pytest.fail("payload was read"))
    extractor = Extractor(["$topic", "$size"])
    assert not extractor.reads_payload
    assert extractor.extract(b"{}", topic="t", qos=0, retain=False, client="c") == {"$topic": "t", "$size": 2}


def test_an_extractor_refuses_what_is_no_name() -> None:
    with pytest.raises(FilterInvalid):
        Extractor(["a b"])


# -- JSON ---------------------------------------------------------------------------------------------------------

DOCUMENT = b'{"a":1,"b":{"c":[10,{"d":"x"}],"e":null},"my key":true,"value":5,"0":"zero","a.b":7,"a":2}'
PLACES: dict[str, Value] = {
    "a": 2,
    "b": COMPOSITE,
    "b.c": COMPOSITE,
    "b.c[0]": 10,
    "b.c[1]": COMPOSITE,
    "b.c[1].d": "x",
    "b.c[2]": None,
    "b.c.d": None,
    "b.e": None,
    "b.e.f": None,
    "b[0]": None,
    "a.b": None,
    '"a.b"': 7,
    '"my key"': True,
    "value": 5,
    '"0"': "zero",
    "missing": None,
}


@pytest.mark.clause("F-12", "F-25", "F-22")
def test_members_of_an_object(library: str) -> None:
    assert taken(DOCUMENT, *PLACES) == {name: found for name, found in PLACES.items() if found is not None}


@pytest.mark.clause("F-27", "F-28", "F-30", "F-31", "F-32")
@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b"21.5", 21.5),
        (b" -3 ", -3),
        (b"true", True),
        (b"null", None),
        (b'"on"', "on"),
        (b"[1,2]", COMPOSITE),
        (b"{}", None),
        (b"ON", "ON"),
        (b"ON OFF", "ON OFF"),
        ("\N{DEGREE SIGN}C".encode(), "\N{DEGREE SIGN}C"),
        (b"007", "007"),
        (b"NaN", "NaN"),
        (b"-Infinity", "-Infinity"),
        (b"1,5", "1,5"),
        (b"ON\n", "ON"),
        (b"ON\r\n", "ON"),
        (b"ON\0", "ON"),
        (b"ON\n\0\0\0", "ON"),
        (b"ON\0\n", "ON"),
        (b" \t ON ", "ON"),
        (b"O\0N", None),
        (b"\0ON", None),
        (b"31\n", 31),
        (b"31\0", 31),
        (b'" on "\n', " on "),
        (b'{"value":1}\0', 1),
        (b'\r\n{"value":1}\r\n\0\0', 1),
        (b"\xef\xbb\xbf21.5", 21.5),
        (b"\xef\xbb\xbf ON\n", "ON"),
        (b"\xef\xbb\xbf\xef\xbb\xbf1", "\ufeff1"),
        ("\uf8ff".encode(), "\uf8ff"),
        (b"\0", None),
        (b" \r\n\0\0", None),
        (b"\xef\xbb\xbf", None),
        (b"\x7f", None),
        ("\x85x".encode(), None),
        (b"", None),
        (b"{", None),
        (b"{1", None),
        (b"nan", "nan"),
        (b"[NaN]", COMPOSITE),
        (b'{"value":NaN}', COMPOSITE),
        (b'{"value":-Infinity}', COMPOSITE),
        (b'{"value":nan}', COMPOSITE),
        (b'{"value":-inf}', COMPOSITE),
        (b'{"value":1,"x":-nan,"y":[INF,"inf"]}', 1),
        (b'{"value":"nan, \\"inf\\" NaN","x":nan}', 'nan, "inf" NaN'),
        (b'{"value":1,"x":nano}', None),
        (b'{"value":1,"x":+nan}', None),
        (b'{"value":1,nan:2}', None),
        (b'{"value":1,"x":nan\x01}', None),
        (b'{"value":1,"x":nan,"y":"\\ud800"}', None),
        (b"[1] x", None),
        (b'"on', None),
        (b'"\x01"', None),
        (b"\xff\xfe", None),
        (b'"\\ud800"', None),
        (b'"\\udc00\\ud800"', None),
        (b'"\\ud83d\\ude00"', "\N{GRINNING FACE}"),
        (b'"\\\\ud800"', "\\ud800"),
        (b'{"value":1,"x":"\\ud800"}', None),
        (b'{"value":1,"\\ud800":2,"\\ud800":3}', None),
        (b'{"value":1,"x":NaN}', 1),
        (b'{"value":1}x', None),
        (b'{"value":1} \n', 1),
        (b'\xef\xbb\xbf{"value":1}', 1),
        (b'{"value":18446744073709551617}', 2**64 + 1),
        (b'{"value":-9223372036854775809}', -(2**63) - 1),
        (b'{"value":9223372036854775808}', 2**63),
        (b'{"value":18446744073709551616.0}', 2.0**64),
        (b'{"value":1e400,"x":1}', COMPOSITE),
        (b'{"value":1,"x":-1e400}', 1),
        (b'{"value":5e-324}', 5e-324),
        (b"-" + b"9" * 2048, -(10**2048) + 1),
        (b"9" * 2049, COMPOSITE),
        (b"9" * 200_000, COMPOSITE),
        (b'{"value":1,"x":' + b"9" * 5000 + b"}", 1),
    ],
    ids=lambda item: repr(item)[:30],
)
def test_json_and_bare_text(library: str, payload: bytes, expected: Value) -> None:
    found = value(payload)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.clause("F-27")
def test_elements_of_a_bare_array(library: str) -> None:
    assert taken(b'[7,{"x":8}]', "value[0]", "value[1].x", "x") == {"value[0]": 7, "value[1].x": 8}


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c d", ""]), inner, max_size=3)
    ),
    max_leaves=8,
)
WANTED = ("a", "b", '"c d"', '""', "a.b", "a[0]", "b[1].a", 'a."c d"', "value", "value[0]", "value[0].a")


def reference(tree: Any, name: str) -> Value:
    """The value of *name*, by walking along its text."""
    root = tree if isinstance(tree, dict) else {"value": tree}
    steps = {'"c d"': ["c d"], '""': [""], "a.b": ["a", "b"], "a[0]": ["a", 0], "b[1].a": ["b", 1, "a"]}
    steps |= {'a."c d"': ["a", "c d"], "value[0]": ["value", 0], "value[0].a": ["value", 0, "a"]}
    place = root
    for step in steps.get(name, [name]):
        try:
            if isinstance(step, int) is not isinstance(place, list):
                return None
            place = place[step]
        except (KeyError, IndexError, TypeError):
            return None
    return COMPOSITE if isinstance(place, (list, dict)) or place != place else place


def exactly(found: dict[str, Value]) -> dict[str, str]:
    """Values together with their types: 1, 1.0 and True are three."""
    return {name: repr(item) for name, item in found.items()}


@pytest.mark.clause("F-12", "F-25", "F-26", "F-27", "F-31")
@law
@given(json_values)
def test_json_and_cbor_give_what_walking_the_tree_gives(tree: Any) -> None:
    expected = {name: item for name in WANTED if (item := reference(tree, name)) is not None}
    try:
        as_json = json.dumps(tree, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return  # a lone surrogate, which no payload can hold
    assert exactly(taken(as_json, *WANTED)) == exactly(expected)
    assert exactly(taken(cbor2.dumps(tree), *WANTED, content_type="application/cbor")) == exactly(expected)
    assert repr(cbor.read_cbor(cbor2.dumps(tree))) == repr(tree)


@pytest.mark.clause("F-33", "F-32")
def test_both_json_libraries_say_the_same_of_damaged_documents(without_orjson: Callable[[], None]) -> None:
    if importlib.util.find_spec("orjson") is None:
        pytest.skip("orjson is not installed")
    chance = random.Random(7)
    pieces = [
        b'{"a":',
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b'"a"',
        b'"\\ud8',
        b"00",
        b"\\",
        b"1",
        b"e",
        b"400",
        b".",
        b"-",
        b"0",
    ]
    pieces += [
        b"true",
        b"null",
        b"NaN",
        b"-inf",
        b"nan",
        b"\xef\xbb\xbf",
        b" ",
        b"\n",
        b"\x00",
        b"\xff",
        "é".encode(),
        b"9" * 25,
        b'"b":',
        b'"value"',
        b"\xa1aa",
    ]
    documents = [b"".join(chance.choices(pieces, k=chance.randrange(1, 9))) for _ in range(4_000)]
    for _ in range(2_000):
        at = chance.randrange(len(DOCUMENT))
        documents.append(DOCUMENT[:at] + chance.choice(pieces) + DOCUMENT[at + chance.randrange(3) :])
    fast = [exactly(taken(document, *WANTED, *PLACES)) for document in documents]
    without_orjson()
    for document, found in zip(documents, fast, strict=True):
        assert exactly(taken(document, *WANTED, *PLACES)) == found, document
    assert sum(map(bool, fast)) > 500


@pytest.mark.clause("F-33", "F-20")
def test_both_json_libraries_read_the_same_doubles(without_orjson: Callable[[], None]) -> None:
    chance = random.Random(11)
    texts = [
        f"{chance.randrange(10**20)}.{chance.randrange(10**20)}e{chance.randrange(-340, 280)}" for _ in range(2_000)
    ]
    texts += ["2.2250738585072011e-308", "9007199254740993.0", "0." + "1" * 800, "4.9e-324", "2e-324", "-0.0", "1e22"]
    fast = [repr(value(text.encode())) for text in texts]
    without_orjson()
    assert fast == [repr(value(text.encode())) for text in texts] == [repr(float(text)) for text in texts]


# -- CBOR ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("F-26")
@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        (b"", ""),
        (b"\x60", ""),
        (b"\x60\x61a\x60\x62bc\x60", "abc"),
        (b"\x78\x00\x79\x00\x01a", "a"),
        (b"\x40", None),  # a chunk of bytes
        (b"\x7f\xff", None),  # chunks in a chunk
        (b"\x7e", None),
    ],
)
def test_a_text_in_chunks_is_whole(chunks: bytes, expected: str | None) -> None:
    assert value(b"\xa1\x61v\x7f" + chunks + b"\xff", "v") == expected


@pytest.mark.clause("F-26", "F-17", "F-30")
def test_values_of_a_cbor_map() -> None:
    tag = cbor2.CBORTag
    document = {"n": 1, "f": 1.5, "nan": math.nan, "inf": math.inf, "s": "x", "b": b"x", "t": True, "z": None}
    document |= {
        "u": cbor2.undefined,
        "big": 2**80,
        "tag": tag(1, 5),
        "odd": tag(9999, 5),
        "simple": cbor2.CBORSimpleValue(99),
    }
    found = taken(cbor2.dumps(document), *document)
    assert found == {
        "n": 1,
        "f": 1.5,
        "nan": COMPOSITE,
        "inf": math.inf,
        "s": "x",
        "b": COMPOSITE,
        "t": True,
        "big": 2**80,
        "tag": COMPOSITE,
        "odd": COMPOSITE,
        "simple": COMPOSITE,
    }
    assert value(bytes.fromhex("bf617801617802ff"), "x") == 2  # indefinite length, the same key twice


@pytest.mark.clause("F-26")
def test_every_tag_but_bignums_is_composite() -> None:
    contents = (5, "x", b"\x01\x02", [1, 2], [1, "x"], {"a": 1})
    for number in (*range(300), 1004, 43000, 55799, 2**32):
        if number in (2, 3):
            continue
        for content in contents:
            payload = b"\xa1\x61v" + cbor2.dumps(cbor2.CBORTag(number, content))
            assert value(payload, "v") is COMPOSITE, (number, content)


@pytest.mark.clause("F-26", "F-31")
def test_bignums_have_a_bound() -> None:
    assert value(b"\xa1\x61v" + cbor2.dumps(10**2048 - 1), "v") == 10**2048 - 1
    assert value(b"\xa1\x61v" + cbor2.dumps(10**2048), "v") is COMPOSITE
    assert value(b"\xa1\x61v" + cbor2.dumps(-(10**2048)), "v") is COMPOSITE
    assert value(b"\xa1\x61v\xc2\x5a\x00\x03\x00\x00" + b"\xff" * 0x30000, "v") is COMPOSITE


@pytest.mark.clause("F-32", "F-39")
@pytest.mark.parametrize(
    "payload",
    [
        "a1", "a16161", "a1616101 00", "a10102", "a1c1616102", "a1810102", "a161ff01", "a163eda08001", "bf616101",
        "bbffffffffffffffff", "a161619bffffffffffffffff", "a161615b7fffffffffffffff", "a161611c", "a16161ff",
        "a161617f4161ff", "a1f97e0001",
    ],
)  # fmt: skip
def test_broken_cbor_has_no_attributes(payload: str) -> None:
    assert taken(bytes.fromhex(payload), "a", "value") == {}


@pytest.mark.clause("F-29")
def test_the_content_type_decides() -> None:
    number, text = cbor2.dumps(7), cbor2.dumps("on")
    for media_type in ("application/cbor", "Application/CBOR; x=y", "application/senml+cbor"):
        assert value(number, content_type=media_type) == 7
        assert value(text, content_type=media_type) == "on"
        assert value(b'{"value":1}', content_type=media_type) is None
    for media_type in ("application/json", "application/JSON ;charset=utf-8", "application/geo+json"):
        assert value(b'{"value":1}', content_type=media_type) == 1
        assert value(b"ON", content_type=media_type) is None
        assert value(cbor2.dumps({"value": 1}), content_type=media_type) is None
        assert value(b'\xef\xbb\xbf{"value":1}\0', content_type=media_type) == 1
        assert value(b"nan", content_type=media_type) is COMPOSITE
    for media_type in (None, "", "text/plain", "application/octet-stream"):
        assert value(number, content_type=media_type) is None
        assert value(cbor2.dumps({"value": 1}), content_type=media_type) == 1
        assert value(b"ON", content_type=media_type) == "ON"


@pytest.mark.clause("F-28", "F-29")
def test_nothing_around_cbor_is_left_out() -> None:
    """A map may end with a byte that is a blank or a NUL in a text, and -1 is a blank."""
    for number in (0, -1, 9, 10, 13):
        assert value(cbor2.dumps({"value": number})) == number
        assert value(cbor2.dumps(number), content_type="application/cbor") == number
    assert value(cbor2.dumps({"value": 1}) + b"\0") is None


@pytest.mark.clause("F-32")
@pytest.mark.parametrize("payload", [b"", b"\0", b" \n", b"\xef\xbb\xbf\r\n"])
def test_an_empty_payload_can_be_read(library: str, payload: bytes) -> None:
    assert payload_tree(payload) == payload_tree(payload, "application/json") == {}


@pytest.mark.clause("F-17", "F-19")
def test_from_payload_to_verdict() -> None:
    content = Filter.parse("temp > 30")
    extractor = Extractor(content.attributes)
    verdicts = {b'{"temp":31}': True, b'{"temp":29}': False, b'{"temp":"31"}': False, b"not json": False}
    for payload, verdict in verdicts.items():
        assert content.accepts(extractor.extract(payload, topic="s/a", qos=0, retain=False, client="c")) is verdict


@pytest.mark.clause("F-32")
def test_unreadable_payloads_are_counted_by_topic_and_not_without_bound() -> None:
    extractor = Extractor(["temp"])
    seen = {}
    for payload in (b"{", b'{"temp":1}', b"\xff", b"", b"nan", b'{"x":"\\ud800"}', b"x" * 300_000, b"ON\0"):
        extractor.extract(payload, topic="t", qos=0, retain=False, client="c")
        seen[payload[:9]] = extractor.is_unreadable
    assert list(seen.values()) == [True, False, True, False, False, True, True, False]
    counts = UnreadableCounts()
    for number in range(UNREADABLE_TOPICS_MAX + 50):
        counts.add(f"a/{number}")
        counts.add("a/0")
    counts.add("b" * 5_000)
    assert counts.total == 2 * (UNREADABLE_TOPICS_MAX + 50) + 1 == sum(counts.by_topic.values())
    assert counts.by_topic["a/0"] == UNREADABLE_TOPICS_MAX + 51
    assert counts.by_topic[OTHER_TOPICS] == 51
    assert len(counts.by_topic) == UNREADABLE_TOPICS_MAX + 1
