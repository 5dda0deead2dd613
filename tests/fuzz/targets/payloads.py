"""What filters read of payloads: JSON, CBOR and bare texts."""

from __future__ import annotations

import json
import struct
import zlib
from random import Random
from typing import Any

import cbor2

from edgebroker import cbor
from edgebroker.cbor import read_cbor
from edgebroker.filters.payloads import NOTHING, payload_tree, value_of
from edgebroker.filters.sparkplug import Births, sparkplug_tree
from edgebroker.predicate import COMPOSITE
from tests.fuzz.frame.target import BOMB_BYTES, Target, filled
from tests.fuzz.withcbor2 import IS_BOUNDED, read_with_cbor2

VALUES: tuple[Any, ...] = (
    {"temp": 31.5, "site": "north", "pos": {"lat": 1, "lon": -2.25}, "tags": ["a", {"b": None}, True, False]},
    [1, 2.5, "x", None, [[[]]], {}],
    {"": 0, "\u00fc\u20ac\U0001f600": "\u00df", 'a"b\\': "\n\t", "n": 2**70, "m": -(2**64), "e": 1e300},
    "text",
    -7,
    True,
)


def described(tree: Any, depth: int = 0) -> Any:
    """*tree* as values that compare: NaN is equal to itself, 1 is not TRUE."""
    if isinstance(tree, dict):
        return {(type(key).__name__, key): described(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [described(value) for value in tree]
    if isinstance(tree, float):
        return struct.pack(">d", tree) if tree == tree else "nan"
    return (type(tree).__name__, tree) if isinstance(tree, bool | int | str | bytes) or tree is None else "composite"


def read_json(data: bytes) -> None:
    """What the quick and the exact reading say is the same, but for the digits of large numbers."""
    tree = payload_tree(data, "application/json")
    exact = payload_tree(data, "application/json", exact=True)
    assert (tree is NOTHING) == (exact is NOTHING)
    if tree is not NOTHING:
        for item in leaves(exact):
            value_of(item)
        assert without_numbers(tree) == without_numbers(exact)
    payload_tree(data)


def without_numbers(tree: Any) -> Any:
    """The shape of *tree*: quick readings round large numbers, and nothing else."""
    if isinstance(tree, dict):
        return {key: without_numbers(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [without_numbers(value) for value in tree]
    if tree is COMPOSITE or (isinstance(tree, int | float) and not isinstance(tree, bool)):
        return "number"
    return tree


def leaves(tree: Any) -> list[Any]:
    """All that is in *tree* and holds nothing."""
    if isinstance(tree, dict | list):
        return [leaf for item in (tree.values() if isinstance(tree, dict) else tree) for leaf in leaves(item)]
    return [tree]


def read_cbor_twice(data: bytes) -> None:
    """cbor2 and our own reader take the same bytes and say the same of them."""
    found: list[Any] = []
    for read in (read_cbor, read_with_cbor2 if IS_BOUNDED else read_cbor):
        try:
            found.append(described(read(data)))
        except ValueError as error:
            found.append(ValueError)
            refusal = error
    assert found[0] == found[1], (found[0], found[1])
    payload_tree(data, "application/cbor")
    if found[0] is ValueError:
        raise refusal


def read_sparkplug(data: bytes) -> None:
    """A device is born, speaks and dies, and all that is remembered of it goes with it."""
    births = Births()
    for kind in ("NBIRTH", "DBIRTH/edge/press", "DDATA/edge/press", "DDEATH/edge/press", "NDATA", "NDEATH"):
        topic = f"spBv1.0/plant/{kind}" + ("" if "/" in kind else "/edge")
        tree = births.tree(topic, data)
        assert tree is NOTHING or all(type(name) is str and name for name in tree)
        for item in tree.values() if isinstance(tree, dict) else ():
            value_of(item)
    assert not len(births)


IS_COMPILED = not str(cbor.__file__).endswith(".py")


def make_cbor(chance: Random) -> bytes:
    """Heads of items in any order, with arguments of any length."""

    def item(depth: int) -> bytes:
        major = chance.randrange(8 if depth > 0 else 4)
        info = chance.choice(
            (0, 1, 2, 5, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31) if chance.random() < 0.5 else (0, 1, 2, 3)
        )
        head = bytes((major << 5 | info,)) + chance.randbytes({24: 1, 25: 2, 26: 4, 27: 8}.get(info, 0))
        if major in (2, 3) and info < 24:
            return head + bytes(chance.randrange(0x20, 0x7F) for _ in range(info))
        if major in (4, 5, 6) and info < 24:
            return head + b"".join(item(depth - 1) for _ in range({4: info, 5: 2 * info, 6: 1}[major]))
        if info == 31:
            return head + b"".join(item(depth - 1) for _ in range(chance.randrange(4))) + b"\xff"
        return head

    return item(4)


def keys(count: int) -> list[str]:
    """Names of one length, all different."""
    return [f"{number:05}" for number in range(count)]


JSON_BOMBS = {
    "brackets": lambda: filled(b"["),
    "brackets that pair": lambda: b"[" * (BOMB_BYTES // 2) + b"]" * (BOMB_BYTES // 2),
    "objects in objects": lambda: filled(b'{"a":'),
    "as deep as is read, side by side": lambda: b"[" + b",".join([b"[" * 30 + b"]" * 30] * (BOMB_BYTES // 62)) + b"]",
    "zeroes with exponents": lambda: filled(b"0e0,", b"[", b"0e0]"),
    "as deep and as many as are read": lambda: (
        b"[" + b",".join([b"[" * 30 + b"]" * 30] * 273) + filled(b",1", after=b"]", size=BOMB_BYTES - 16_653)
    ),
    "objects": lambda: filled(b'{"":0},', b"[", b'{"":0}]', 57_300),
    "as many lists as are read": lambda: filled(b"[0],", b"[", b"[]]", 32_760),
    "empty lists": lambda: filled(b"[],", b"[", b"[]]"),
    "empty objects": lambda: filled(b"{},", b"[", b"{}]"),
    "many keys": lambda: json.dumps(dict.fromkeys(keys(6_000), 0)).encode()[:BOMB_BYTES],
    "equal keys": lambda: filled(b'"a":0,', b"{", b'"a":0}'),
    "one-digit numbers": lambda: filled(b"0,", b"[", b"0]"),
    "one long number": lambda: filled(b"9"),
    "one long fraction": lambda: filled(b"9", b"0."),
    "one long exponent": lambda: filled(b"9", b"1e"),
    "numbers of 2,000 digits": lambda: filled(b"9" * 2_000 + b",", b"[", b"0]"),
    "numbers of 4,000 digits": lambda: filled(b"9" * 4_000 + b",", b"[", b"0]"),
    "huge exponents": lambda: filled(b"1e999,", b"[", b"0]"),
    "fractions of 700 digits": lambda: filled(b"1." + b"5" * 700 + b",", b"[", b"0]"),
    "escapes": lambda: filled(b"\\u0041", b'"', b'"'),
    "surrogate pairs": lambda: filled(b"\\ud83d\\ude00", b'"', b'"'),
    "lone surrogates": lambda: filled(b"\\ud800", b'"', b'"'),
    "backslashes": lambda: filled(b"\\\\", b'"', b'"'),
    "quotes": lambda: filled(b'"'),
    "strings of one character": lambda: filled(b'"\xc3\xa4",', b"[", b'""]'),
    "a text of U+10FFFF": lambda: filled(b"\xf4\x8f\xbf\xbf"),
    "overlong UTF-8": lambda: filled(b"\xc0\xaf", b'"', b'"'),
    "blanks": lambda: filled(b" ", after=b"1"),
    "not a number, over and over": lambda: filled(b"nan,", b"[", b"nan]"),
    "not a number behind strings": lambda: filled(b'"",', b"[", b"nan]"),
    "not a number in what is broken": lambda: filled(b"nan,", b"["),
    "line ends": lambda: filled(b"\r\n", b"[", b"]"),
    "NULs": lambda: filled(b"\0", b"[]"),
    "brackets in strings": lambda: filled(b"[{", b'"', b'"'),
    "brackets behind broken strings": lambda: filled(b'["', b"["),
}
SPARKPLUG_SEEDS: tuple[bytes, ...] = (
    b"\x08\x01\x12\x0f\x0a\x04temp\x10\x01\x20\x03\x50\x07\x18\x05",
    b"\x12\x0b\x10\x01\x69" + struct.pack("<d", 31.5),
    b"\x12\x09\x0a\x01f\x65" + struct.pack("<f", 0.5) + b"\x12\x06\x0a\x01s\x7a\x01x\x12\x05\x0a\x01n\x38\x01",
)


def deflated(inner: bytes) -> bytes:
    """A compressed Sparkplug payload with *inner* in its body."""
    body, size = zlib.compress(inner, 9), bytearray()
    left = len(body)
    while left >= 0x80:
        size.append(left & 0x7F | 0x80)
        left >>= 7
    return b"\x22\x12SPBV1.0_COMPRESSED\x2a" + bytes([*size, left]) + body


SPARKPLUG_SEEDS += tuple(map(deflated, SPARKPLUG_SEEDS))
SPARKPLUG_BOMBS = {
    "a body that grows": lambda: deflated(bytes(60 * BOMB_BYTES)),
    "a body of fields": lambda: deflated(b"\x08\x01" * 2 * BOMB_BYTES),
    "a body in a body": lambda: deflated(deflated(deflated(filled(b"\x12\x03\x0a\x01x")))),
    "empty metrics": lambda: filled(b"\x12\x00"),
    "fields of one metric": lambda: b"\x12\xfc\xff\x03" + filled(b"\x38\x01", size=BOMB_BYTES - 4),
    "fields of no metric": lambda: filled(b"\x08\x01"),
    "numbers of ten bytes": lambda: filled(b"\x08" + b"\xff" * 9 + b"\x01"),
    "metrics of one letter": lambda: filled(b"\x12\x03\x0a\x01x"),
    "a name of everything": lambda: b"\x12\xf9\xff\x03\x0a\xf5\xff\x03" + b"x" * (BOMB_BYTES - 11),
}
CBOR_BOMBS = {
    "arrays in arrays": lambda: filled(b"\x81"),
    "endless arrays in arrays": lambda: filled(b"\x9f"),
    "tags in tags": lambda: filled(b"\xc1"),
    "an array of empty arrays": lambda: filled(b"\x80", b"\x9f", b"\xff"),
    "an array of empty maps": lambda: filled(b"\xa0", b"\x9f", b"\xff"),
    "an array of small numbers": lambda: filled(b"\x01", b"\x9f", b"\xff"),
    "an array of floats": lambda: filled(b"\xf9\x3c\x01", b"\x9f", b"\xff"),
    "an array of bignums": lambda: filled(b"\xc2\x49" + b"\xff" * 9, b"\x9f", b"\xff"),
    "one large bignum": lambda: b"\xc2\x59\xff\xf0" + b"\xff" * 0xFFF0,
    "an array of tagged texts": lambda: filled(b"\xd8\x23\x61(", b"\x9f", b"\xff"),
    "shared references": lambda: filled(b"\xd8\x1c\x80\xd8\x1d\x00", b"\x9f", b"\xff"),
    "a text in empty chunks": lambda: filled(b"\x60", b"\x7f", b"\xff"),
    "a text in chunks of one": lambda: filled(b"\x61a", b"\x7f", b"\xff"),
    "lengths beyond the end": lambda: filled(b"\x9b" + b"\xff" * 8),
    "a map with many keys": lambda: b"\xbf" + b"".join(b"\x64" + b"%04x" % n + b"\0" for n in range(10_900)) + b"\xff",
    "a map of number keys": lambda: filled(b"\x1b\x1f\xff\xff\xff\xff\xff\xff\xff\x00", b"\xbf", b"\xff"),
    "as deep as is read, side by side": lambda: filled(b"\x81" * 30 + b"\x80", b"\x9f", b"\xff"),
    "the same, as many as are read": lambda: filled(b"\x81" * 31 + b"\0", b"\x9f", b"\x40" * 57_200 + b"\xff"),
    "byte strings of nothing": lambda: filled(b"\x40", b"\x9f", b"\xff"),
    "a byte string in empty chunks": lambda: filled(b"\x40", b"\x5f", b"\xff"),
    "maps of byte strings, and more of them": lambda: b"\x9f" + b"\xa1\x40\x40" * 8_191 + b"\x40" * 40_900 + b"\xff",
    "as much that is composite as is read": lambda: filled(b"\x81\x81\xa1\x60\xc6\xe1", b"\x9f", b"\xff", 12_000),
    "tagged numbers, as many as are read": lambda: filled(b"\xd9\xd9\xf7\x00", b"\x9f", b"\xff", 32_760),
    "small bignums, as many as are read": lambda: filled(b"\xc3\x42\x01\x01", b"\x9f", b"\xff", 32_760),
    "maps in maps": lambda: filled(b"\xa1\x61a" * 10 + b"\x00", b"\x9f", b"\xff", 25_000),
    "simple values": lambda: filled(b"\xe1", b"\x9f", b"\xff"),
    "nothing": lambda: filled(b"\xf7", b"\x9f", b"\xff"),
    "floats of 9 bytes": lambda: filled(b"\xfb\x3f\xf1" + bytes(6), b"\x9f", b"\xff"),
}
TARGETS = (
    Target(
        "json",
        read_json,
        tuple(json.dumps(value, ensure_ascii=flag).encode() for value in VALUES for flag in (True, False)),
        (),
        (
            b"[",
            b"]",
            b"{",
            b"}",
            b'":',
            b",",
            b"null",
            b"true",
            b"NaN",
            b"Infinity",
            b"-inf",
            b"nan",
            b"\xef\xbb\xbf",
            b"\0",
            b"\\ud800",
            b"\\udc00",
            b"1e5",
            b"-0",
        ),
        bombs=JSON_BOMBS,
        plain=lambda data: payload_tree(data, "application/json", exact=True),  # never quicker than orjson
    ),
    Target(
        "sparkplug",
        read_sparkplug,
        SPARKPLUG_SEEDS,
        words=(b"\x12", b"\x0a", b"\x10\x01", b"\x20\x01", b"\x38\x01", b"\x50", b"\x58", b"\x65", b"\x69", b"\x7a"),
        bombs=SPARKPLUG_BOMBS,
        plain=sparkplug_tree,
    ),
    Target(
        "cbor",
        read_cbor_twice,
        (
            *map(cbor2.dumps, VALUES),
            b"\xbf\x61a\x9f\x01\xff\x61b\x7f\x61x\x60\xff\xff",
            b"\xd8\x23\x61(",
            b"\xc2\x41\xff",
        ),
        (ValueError,),
        (
            b"\xbf",
            b"\xff",
            b"\x9f",
            b"\x7f",
            b"\x5f",
            b"\xc2",
            b"\xd8\x1c",
            b"\xd8\x1d\x00",
            b"\xf9\x7e\x00",
            b"\xf7",
            b"\x61a",
        ),
        make=make_cbor,
        bombs=CBOR_BOMBS,
        plain=read_cbor,
        bound_ms=10 if IS_COMPILED else 40,  # in plain Python 0.2 to 0.6 us for each value
    ),
)
