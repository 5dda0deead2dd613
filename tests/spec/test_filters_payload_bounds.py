"""docs/filters.md, "The payload" and "Bounds": payloads that are too large, too deep, broken or hostile."""

from __future__ import annotations

import random
from collections.abc import Callable
from io import BytesIO
from typing import Any

import cbor2
import pytest

from edgebroker import cbor
from edgebroker.filters import Extractor, payloads
from edgebroker.predicate import Value
from tests.fuzz.withcbor2 import IS_BOUNDED, read_with_cbor2

DOCUMENT = b'{"a":1,"b":[{"a":"x"}],"value":2.5,"c d":{"c d":null},"a":[0]}'
WANTED = ("a", "b", "a[0]", "b[0].a", "value", "value[0].a")


def taken(payload: bytes, *names: str, content_type: str | None = None, **about: Any) -> dict[str, Value]:
    publication = {"topic": "t", "qos": 0, "retain": False, "client": "c", **about}
    return Extractor(names).extract(payload, content_type=content_type, **publication)


def value(payload: bytes, name: str = "value", content_type: str | None = None) -> Value:
    return taken(payload, name, content_type=content_type).get(name)


def nested(depth: int, kind: str) -> bytes:
    """An object whose member "v" is 1 and whose member "x" makes it *depth* deep."""
    if kind == "cbor":
        return b"\xa2\x61v\x01\x61x" + b"\x81" * (depth - 1) + b"\x00"
    opening, closing = (b"[", b"]") if kind == "arrays" else (b'{"":', b"}")
    return b'{"v":1,"x":' + opening * (depth - 1) + b"0" + closing * (depth - 1) + b"}"


@pytest.mark.clause("F-39")
@pytest.mark.parametrize("kind", ["arrays", "objects", "cbor"])
def test_depth_is_bounded(library: str, kind: str) -> None:
    assert value(nested(32, kind), "v") == 1
    assert value(nested(33, kind), "v") is None
    assert value(nested(20_000, kind), "v") is None


@pytest.mark.clause("F-39")
def test_brackets_in_strings_and_side_by_side_are_not_depth(library: str) -> None:
    assert value(b'{"x":"' + b"[{" * 100 + b'","v":1}', "v") == 1
    assert value(b'{"x":"\\"' + b"[{" * 100 + b'\\\\","v":1}', "v") == 1
    assert value(b'{"x":[' + b",".join([b"[]"] * 100) + b'],"v":1}', "v") == 1
    assert value(b'{"v":1,"x":"' + b"[" * 100, "v") is None


@pytest.mark.clause("F-39")
@pytest.mark.parametrize(
    "pieces",
    [
        (b'{"v":1,"x":[', b"[],", b"[]]}"),
        (b'{"v":1,"x":[', b'{"a":0},', b"{}]}"),
        (b'{"x":[{}', b",[0]", b'],"v":1}'),
        (b"\xa2\x61v\x01\x61x\x9f", b"\x80", b"\xa0\xff"),
        (b"\xa2\x61v\x01\x61x\x9f", b"\x81\x00", b"\xc1\x00\xff"),
        (b"\xa2\x61v\x01\x61x\x9f", b"\xa1\x61a\x00", b"\x9f\xff\xff"),
        (b"\xa2\x61v\x01\x61x\x9f", b"\xd8\x1c\x00", b"\xbf\xff\xff"),
        (b"\xa2\x61v\x01\x61x\x9f", b"\xc2\x41\x01", b"\x98\x00\xff"),
    ],
    ids=lambda pieces: repr(pieces[1]),
)
def test_what_is_composite_is_counted(library: str, pieces: tuple[bytes, bytes, bytes]) -> None:
    """The payload, the array "x", what is repeated, and one more."""
    before, piece, after = pieces
    assert value(before + piece * 8_189 + after, "v") == 1
    assert value(before + piece * 8_190 + after, "v") is None


@pytest.mark.clause("F-28", "F-39")
@pytest.mark.parametrize(
    "payload", [b"[]," * 8_192 + b"[]", b"[" * 40 + b"]" * 40, b"[1", b'"'], ids=lambda each: repr(each[:9])
)
def test_what_is_no_json_any_more_is_no_text_either(library: str, payload: bytes) -> None:
    for blanks in (b"", b" ", b"\r\n", b"\t \n"):
        assert taken(blanks + b"[" + payload + b"]", "value") == {}
    assert value(b" on") == "on"


@pytest.mark.clause("F-39")
def test_brackets_in_strings_are_not_counted_as_composite(library: str) -> None:
    assert value(b'{"x":"' + b"[{" * 20_000 + b'","v":1}', "v") == 1
    assert value(b"\xa2\x61v\x01\x61x\x59\x9c\x40" + b"\x80" * 40_000, "v") == 1


@pytest.mark.clause("F-39")
def test_size_is_bounded(library: str) -> None:
    frame = len(b'{"v":1,"x":""}')
    for size, expected in ((256 * 1024, 1), (256 * 1024 + 1, None)):
        payload = b'{"v":1,"x":"' + b"a" * (size - frame) + b'"}'
        assert (len(payload), value(payload, "v")) == (size, expected)
        if expected is None:
            assert taken(payload, "v", "$size") == {"$size": size}


@pytest.mark.clause("F-32", "F-39")
@pytest.mark.parametrize(
    "payload",
    [
        b"[" * 262_144,
        b'{"' + b'\\"' * 130_000,
        b'"' * 262_144,
        b"[[" + b'"\\"' * 80_000,
        b"\x81" * 262_144,
        b"\xa1" + b"\xc6" * 262_000,
        b"[" + b"9" * 262_000 + b"]",
        b"[0." + b"1" * 262_000 + b"]",
        b"[" + b"1e9," * 65_000 + b"1]",
        b"\xa1\x9f" + b"\x20\x21" * 100_000,
        b"{" + b",".join(b'"%d":[]' % n for n in range(20_000)) + b"}",
    ],
    ids=lambda item: repr(item)[:30],
)
def test_bombs_are_harmless(library: str, payload: bytes) -> None:
    for content_type in (None, "application/cbor", "application/json"):
        assert taken(payload, "a", "a.b", "value", content_type=content_type).keys() <= {"a", "a.b", "value"}


@pytest.mark.clause("F-32")
def test_keys_made_to_collide_are_refused() -> None:
    """Tuples of -1 and -2 have equal hashes in CPython: a map with thousands of such keys would take seconds."""
    stream = BytesIO()
    stream.write(b"\xb9" + (4096).to_bytes(2, "big"))
    for number in range(4096):
        stream.write(b"\x8c" + bytes(0x20 + (number >> bit & 1) for bit in range(12)) + b"\x00")
    assert taken(stream.getvalue(), "value", "a") == {}


CBOR_SEEDS = [
    cbor2.dumps({"a": [1, {"b": "x"}], "value": 2.5, "t": cbor2.CBORTag(0, "2024-01-01T00:00:00Z")}),
    cbor2.dumps({"a": 2**80, "b": -(2**70), b"k": b"zz", "value": None, "s": cbor2.CBORSimpleValue(99)}),
    *map(
        bytes.fromhex,
        ("bf61617f6161616bffff", "9f0102ff", "5f4141ff", "c24101", "c26141", "f818", "f8ff", "e0", "f97c00"),
    ),
    *map(bytes.fromhex, ("d81c8101", "d81d00", "d9010083010203", "d90100a2616161626163d81900", "81" * 31 + "8100")),
    *map(
        bytes.fromhex, ("81" * 32 + "80", "c1" * 32 + "00", "c1" * 33 + "00", "81" * 31 + "c100", "9f" * 32 + "ff" * 32)
    ),
]
CBOR_HEADS = bytes.fromhex("a1bf815f7f9fff6141c1c2d8f8f9fbe020")


@pytest.mark.clause("F-33", "F-32")
def test_cbor2_says_the_same_of_damaged_documents() -> None:
    if not IS_BOUNDED:
        pytest.skip("this release of cbor2 cannot be bounded")
    chance = random.Random(19)
    broken = 0
    for _ in range(20_000):
        payload = bytearray(chance.choice(CBOR_SEEDS))
        for _ in range(chance.randrange(4)):
            at = chance.randrange(len(payload))
            payload[at : at + chance.randrange(2)] = [chance.choice((chance.randrange(256), chance.choice(CBOR_HEADS)))]
        one, other = (tree_of(read, bytes(payload)) for read in (cbor.read_cbor, read_with_cbor2))
        assert one == other, payload.hex()
        broken += one == "broken"
    assert 2_000 < broken < 18_000


def tree_of(read: Callable[[bytes], Any], payload: bytes) -> str:
    """The tree as a filter sees it, or "broken"."""
    try:
        return repr(seen(read(payload)))
    except ValueError:
        return "broken"


def seen(item: Any) -> Any:
    if isinstance(item, dict):
        return {key: seen(member) for key, member in item.items()}
    if isinstance(item, list):
        return [seen(member) for member in item]
    return item if isinstance(item, bytes) else payloads.value_of(item)


@pytest.mark.clause("F-32")
def test_random_bytes_are_harmless() -> None:
    chance = random.Random(13)
    seeds = [DOCUMENT, cbor2.dumps({"a": [1, {"b": "x"}], "value": 2.5, "t": cbor2.CBORTag(0, "2024-01-01T00:00:00Z")})]
    for _ in range(5_000):
        payload = bytearray(chance.choice(seeds))
        for _ in range(chance.randrange(1, 5)):
            payload[chance.randrange(len(payload))] = chance.randrange(256)
        for content_type in (None, "application/cbor"):
            found = taken(bytes(payload), *WANTED, content_type=content_type)
            assert all(item is not None and item == item for item in found.values())
