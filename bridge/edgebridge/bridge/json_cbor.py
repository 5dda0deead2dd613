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
from struct import Struct
from typing import Any, Final

from edgebridge.bridge.field_tree import DuplicateField, FieldNode
from edgebroker.filters.cbor import MAP, CborBroken, CborReader
from edgebroker.filters.payloads import INTEGER_DIGITS_MAX
from edgebroker.overlay.link.codec.cbor import ARRAY, BYTES, NEGATIVE, TEXT, UNSIGNED, head
from edgebroker.predicate import COMPOSITE

INTEGER_MAX: Final = 10**INTEGER_DIGITS_MAX
"""Whole numbers are smaller: to write larger ones in digits takes quadratic time."""
VALUES_MAX: Final = 6_000
"""Of CBOR that is read or written, 1.0 to 1.3 us each: so one payload holds up the others for 8 ms and no longer."""
_TRANSPARENT: Final = (0, 1, 32, 55799)
"""Tags that only say more about their content: a date as text, seconds since 1970, a URI, and "this is CBOR"."""
_FALSE, _TRUE, _NULL = b"\xf4", b"\xf5", b"\xf6"
_SHORT_FLOATS: Final = ((b"\xf9", Struct(">e"), 65_504.0), (b"\xfa", Struct(">f"), (2 - 2.0**-23) * 2.0**127))
"""With the largest number of each; to be refused larger ones takes 0.6 us."""
_DOUBLE: Final = Struct(">d")
_POSITIVE_BIGNUM, _NEGATIVE_BIGNUM = b"\xc2", b"\xc3"


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


def encode_cbor(tree: Any) -> bytes:
    """*tree*, which JSON can hold, as CBOR. Raises ValueError."""
    pieces: list[bytes] = []
    _write(tree, pieces)
    return b"".join(pieces)


def _write(item: Any, pieces: list[bytes]) -> None:
    kind = type(item)
    more = len(item) if kind is list or kind is dict else 0  # as many follow, at least
    if len(pieces) + more > VALUES_MAX:
        raise ValueError(f"more than {VALUES_MAX:,} values")
    if kind is str:
        pieces.append(encode_cbor_text(item))
    elif kind is int:
        pieces.append(_whole(item))
    elif kind is float:
        pieces.append(_float(item))
    elif kind is dict:
        pieces.append(head(MAP, len(item)))
        for key, value in item.items():
            pieces.append(encode_cbor_text(key))
            _write(value, pieces)
    elif kind is list:
        pieces.append(head(ARRAY, len(item)))
        for one in item:
            _write(one, pieces)
    elif item is None:
        pieces.append(_NULL)
    elif kind is bool:
        pieces.append(_TRUE if item else _FALSE)
    else:
        raise ValueError("a number that is too large")


def encode_cbor_text(text: str) -> bytes:
    """A text of CBOR."""
    octets = text.encode()
    return head(TEXT, len(octets)) + octets


def _whole(number: int) -> bytes:
    size = number if number >= 0 else -1 - number
    if size < 1 << 64:
        return head(UNSIGNED if number >= 0 else NEGATIVE, size)
    octets = size.to_bytes((size.bit_length() + 7) // 8)
    return (_POSITIVE_BIGNUM if number >= 0 else _NEGATIVE_BIGNUM) + head(BYTES, len(octets)) + octets


def _float(number: float) -> bytes:
    size = abs(number)
    for first, layout, most in _SHORT_FLOATS:
        if size <= most:
            octets = layout.pack(number)
            if layout.unpack(octets)[0] == number:
                return first + octets
    return b"\xfb" + _DOUBLE.pack(number)


class _BoundedCborReader(CborReader):
    """Reads so many members of arrays and maps, chunks of strings, and tags, and no more."""

    def __init__(self, payload: bytes) -> None:
        super().__init__(payload)
        self._left = VALUES_MAX

    def promised(self, size: int) -> None:
        """So many members, if that is not too many."""
        self._take_away(size)

    def at_break(self) -> bool:
        """The same where it is not said before how many."""
        if super().at_break():
            return True
        self._take_away(1)
        return False

    def tagged(self, tag: int | None, content: Any) -> Any:
        """The same for what has a tag."""
        self._take_away(1)
        return super().tagged(tag, content)

    def _take_away(self, values: int) -> None:
        self._left -= values
        if self._left < 0:
            raise CborBroken(f"more than {VALUES_MAX:,} values")


class CborAsJson(_BoundedCborReader):
    """Reads CBOR as the tree that JSON has of it; byte strings are left to `json_of`."""

    def key(self, depth: int) -> Any:
        """A text, or a whole number in digits."""
        key = self.item(depth)
        if type(key) is int and -INTEGER_MAX < key < INTEGER_MAX:
            return str(key)
        if type(key) is not str:
            raise CborBroken("a key that is neither a text nor a whole number")
        return key

    def map(self, size: int | None, depth: int) -> dict[Any, Any]:
        """The members; none of them twice."""
        found: dict[Any, Any] = {}
        for _ in self.count(size):
            key = self.key(depth)
            if key in found:
                raise DuplicateField(f"{key[:40]!r} is there twice")
            found[key] = self.item(depth)
        return found

    def simple(self, info: int) -> Any:
        """JSON has no numbers that are none."""
        item = super().simple(info)
        if item is COMPOSITE:
            raise CborBroken("a simple value that JSON has not")
        return item if type(item) is not float or math.isfinite(item) else None

    def tagged(self, tag: int | None, content: Any) -> Any:
        """Bignums are whole numbers, and what is only explained stays what it is."""
        if tag in _TRANSPARENT:
            self._take_away(1)
            return content
        item = super().tagged(tag, content)
        if item is COMPOSITE or not -INTEGER_MAX < item < INTEGER_MAX:
            raise CborBroken(f"tag {tag}, which JSON has not, or too large a number")
        return item


class _FieldCutter(_BoundedCborReader):
    """Reads any keys, as they count for whether two are the same."""

    def key(self, depth: int) -> Any:
        key = self.item(depth)
        if type(key) not in (str, int, bytes):
            raise CborBroken("a key that is neither a text, a whole number nor bytes")
        return key


def cut_fields(part: FieldNode, payload: bytes) -> bytes:
    """What goes on of *payload*, which is CBOR: nothing within it is written anew. Raises ValueError."""
    reader = _FieldCutter(payload)
    kept = _cut(part, reader, 0)
    if reader.at != len(payload):
        raise CborBroken("bytes after the end")
    return head(MAP, 0) if kept is None else kept


def _cut(part: FieldNode, reader: _FieldCutter, depth: int) -> bytes | None:
    start = reader.at
    major = ARRAY if not part.children else reader.head()[0]
    reader.at = start
    if part.children and major == MAP:
        kept = _cut_map(part, reader, depth + 1)
    elif part.children and major == ARRAY:
        kept = _cut_array(part, reader, depth + 1)
    else:
        reader.item(depth)
        return reader.payload[start : reader.at] if part.others or not part.children else None
    if not kept and not part.others:
        return None
    return head(major, len(kept)) + b"".join(kept)


def _cut_map(part: FieldNode, reader: _FieldCutter, depth: int) -> list[bytes]:
    kept: list[bytes] = []
    seen: set[object] = set()
    for _ in reader.count(reader.head()[1]):
        start = reader.at
        key = reader.key(depth)
        raw = reader.payload[start : reader.at]
        child = part.children.get(key) if type(key) is str else None
        if child is None:
            start = reader.at
            reader.item(depth)
            value = reader.payload[start : reader.at] if part.others else None
        else:
            value = _cut(child, reader, depth)
            if child.name is not None:
                key, raw = child.name, encode_cbor_text(child.name)
        if value is None:
            continue
        if key in seen:
            raise DuplicateField(f"{str(key)[:40]!r} is there twice")
        seen.add(key)
        kept.append(raw + value)
    return kept


def _cut_array(part: FieldNode, reader: _FieldCutter, depth: int) -> list[bytes]:
    kept: list[bytes] = []
    for index, _ in enumerate(reader.count(reader.head()[1])):
        child = part.children.get(index)
        value = _cut(_ALL if child is None else child, reader, depth)
        if value is not None and (part.others or child is not None):
            kept.append(value)
    return kept


_ALL: Final = FieldNode(True)
