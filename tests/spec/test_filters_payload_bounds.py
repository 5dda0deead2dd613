"""docs/filters.md, "The payload" and "Bounds": payloads that are too large, too deep, broken or hostile."""

from __future__ import annotations

import random
from io import BytesIO
from typing import Any

import cbor2
import pytest

from edgebroker.event import Value
from edgebroker.filters import Extractor, payloads

DOCUMENT = b'{"a":1,"b":[{"a":"x"}],"value":2.5,"c d":{"c d":null},"a":[0]}'
WANTED = ("a", "b", "a[0]", "b[0].a", "value", "value[0].a")


@pytest.fixture(params=["orjson", "json"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs the test once with each JSON library."""
    if request.param == "json":
        monkeypatch.setattr(payloads, "_fast_loads", None)
    elif payloads._fast_loads is None:
        pytest.skip("orjson is not installed")
    return str(request.param)


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
        taken(payload, "a", "a.b", "value", content_type=content_type)


@pytest.mark.clause("F-32")
def test_keys_made_to_collide_are_refused() -> None:
    """Tuples of -1 and -2 have equal hashes in CPython: a map with thousands of such keys would take seconds."""
    stream = BytesIO()
    stream.write(b"\xb9" + (4096).to_bytes(2, "big"))
    for number in range(4096):
        stream.write(b"\x8c" + bytes(0x20 + (number >> bit & 1) for bit in range(12)) + b"\x00")
    assert taken(stream.getvalue(), "value", "a") == {}


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
