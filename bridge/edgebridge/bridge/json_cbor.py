"""Conversion between JSON and CBOR (RFC 8949), value by value, and selection of CBOR fields byte by byte.

The output is the same for the same values everywhere: numbers in their shortest exact form, keys in their order of
arrival. Values that one format lacks follow section 6.1 of RFC 8949: bytes become base64url, NaN and infinities null,
undefined null. Whole numbers are exact whatever their size. Other tags and simple values, duplicate keys, and keys
that are neither texts nor whole numbers raise ValueError.
"""

from __future__ import annotations

import json
import math
from binascii import b2a_base64
from enum import StrEnum
from typing import Any, Final

from edgebridge.bridge.field_tree import DuplicateField, FieldNode
from edgebroker.cbor import ARRAY, MAP, UNDEFINED, CborInvalid, CborReader, CborRules, encode_text, head
from edgebroker.filters.payloads import INTEGER_DIGITS_MAX
from edgebroker.limits import PAYLOAD_DEPTH_MAX

INTEGER_MAX: Final = 10**INTEGER_DIGITS_MAX
"""Whole numbers are smaller: to write larger ones in digits takes quadratic time."""
VALUES_MAX: Final = 6_000
"""Of CBOR that is read or written, 1.0 to 1.3 us each: so one payload holds up the others for 8 ms and no longer."""
_TRANSPARENT: Final = (0, 1, 32, 55799)
"""Tags that only say more about their content: a date as text, seconds since 1970, a URI, and "this is CBOR"."""


class PayloadFormat(StrEnum):
    """Of a payload."""

    JSON = "json"
    CBOR = "cbor"


def base64url(octets: bytes) -> str:
    """As RFC 4648 section 5 has it, without padding."""
    return b2a_base64(octets, newline=False).decode().rstrip("=").translate(_URL)


_URL: Final = str.maketrans("+/", "-_")


def _plain(item: object) -> str:
    if isinstance(item, bytes):
        return base64url(item)
    raise ValueError("a value that JSON has not, or too large a number")


_JSON: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"), default=_plain
)


def encode_json(tree: Any) -> bytes:
    """*tree* as JSON without blanks. Raises ValueError."""
    return _JSON.encode(tree).encode()


_AS_JSON: Final = CborRules(depth_max=PAYLOAD_DEPTH_MAX, values_max=VALUES_MAX, is_unique=True)
_CUT: Final = CborRules(depth_max=PAYLOAD_DEPTH_MAX, values_max=VALUES_MAX, keys=(str, int, bytes), others=None)


class CborAsJson(CborReader):
    """Reads CBOR as the tree that JSON has of it; byte strings are left to `encode_json`."""

    def __init__(self, payload: bytes) -> None:
        super().__init__(payload, _AS_JSON)

    def key(self, depth: int) -> Any:
        """A text, or a whole number in digits."""
        key = self.nested(depth)
        if type(key) is int and -INTEGER_MAX < key < INTEGER_MAX:
            return str(key)
        if type(key) is not str:
            raise CborInvalid("a key that is neither a text nor a whole number")
        return key

    def simple(self, info: int) -> Any:
        """JSON has neither `undefined`, NaN nor infinities."""
        item = None if info == UNDEFINED else super().simple(info)
        return item if type(item) is not float or math.isfinite(item) else None

    def tagged(self, tag: int, content: Any) -> Any:
        """Bignums are whole numbers, and what is only explained stays what it is."""
        if tag in _TRANSPARENT:
            return content
        item = super().tagged(tag, content)
        if not -INTEGER_MAX < item < INTEGER_MAX:
            raise CborInvalid("too large a number")
        return item


def cut_fields(part: FieldNode, payload: bytes) -> bytes:
    """What goes on of *payload*, which is CBOR: nothing within it is written anew. Raises ValueError."""
    reader = CborReader(payload, _CUT)
    kept = _cut(part, reader, 0)
    if reader.at != len(payload):
        raise CborInvalid("bytes after the end")
    return head(MAP, 0) if kept is None else kept


def _cut(part: FieldNode, reader: CborReader, depth: int) -> bytes | None:
    start = reader.at
    major = reader.data[start] >> 5 if part.children and start < len(reader.data) else -1
    if major == MAP:
        kept = _cut_map(part, reader, depth)
    elif major == ARRAY:
        kept = _cut_array(part, reader, depth)
    else:
        reader.nested(depth)
        return reader.data[start : reader.at] if part.others or not part.children else None
    if not kept and not part.others:
        return None
    return head(major, len(kept)) + b"".join(kept)


def _cut_map(part: FieldNode, reader: CborReader, depth: int) -> list[bytes]:
    kept: list[bytes] = []
    seen: set[object] = set()
    for _ in reader.members(depth):
        start = reader.at
        key = reader.key(depth + 1)
        raw = reader.data[start : reader.at]
        child = part.children.get(key) if type(key) is str else None
        if child is None:
            start = reader.at
            reader.nested(depth + 1)
            value = reader.data[start : reader.at] if part.others else None
        else:
            value = _cut(child, reader, depth + 1)
            if child.name is not None:
                key, raw = child.name, encode_text(child.name)
        if value is None:
            continue
        if key in seen:
            raise DuplicateField(f"{str(key)[:40]!r} is there twice")
        seen.add(key)
        kept.append(raw + value)
    return kept


def _cut_array(part: FieldNode, reader: CborReader, depth: int) -> list[bytes]:
    kept: list[bytes] = []
    for index, _ in enumerate(reader.members(depth)):
        child = part.children.get(index)
        value = _cut(_ALL if child is None else child, reader, depth + 1)
        if value is not None and (part.others or child is not None):
            kept.append(value)
    return kept


_ALL: Final = FieldNode(True)
