"""The CBOR in a block's body, read with a bound: what unfolds to megabytes of small values is refused, not built."""

from __future__ import annotations

import struct
from typing import Any, Final

DEPTH_MAX: Final = 8
"""A footer is a map with a list of lists."""
LIST_VALUES: Final = 4
"""To make a list or a map takes as long as so many values."""
_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE = range(8)
_SIMPLE_VALUES: Final = {20: False, 21: True}
_FLOATS: Final = {25: ">e", 26: ">f", 27: ">d"}
_SHORT_TEXT, _LONG_TEXT = 0x60, 0x78
"""The first byte of a text of no bytes, and of one whose length is told in other bytes than the first."""


class BodyBroken(ValueError):
    """The bytes are no CBOR of definite lengths, or more values than there may be."""


def read_body(raw: bytes, values_max: int) -> Any:
    """The one value in *raw*, which holds *values_max* others at most. Raises ValueError.

    What neither a block nor a footer has (tags, other simple values) is read as None.
    """
    reader = _Reader(raw, values_max)
    value = reader.item(0)
    if reader.at != len(raw):
        raise BodyBroken("bytes after the end")
    return value


class _Reader:
    def __init__(self, raw: bytes, values_max: int) -> None:
        self.at = 0
        self._raw = raw
        self._left = values_max

    def item(self, depth: int) -> Any:
        raw, at = self._raw, self.at
        if at >= len(raw):
            raise BodyBroken("ends too soon")
        first = raw[at]
        major, info = first >> 5, first & 31
        self.at = at + 1
        if major == _SIMPLE:
            return self._simple(info)
        argument = info if info < 24 else self._argument(info)
        if major == _UNSIGNED:
            return argument
        if major == _NEGATIVE:
            return -1 - argument
        if major in (_BYTES, _TEXT):
            octets = self._take(argument)
            return octets if major == _BYTES else octets.decode()
        values = argument * (2 if major == _MAP else 1)
        self._left -= values + LIST_VALUES
        if depth == DEPTH_MAX or self._left < 0 or values > len(raw) - self.at:
            raise BodyBroken("too deep, or more values than there may be")
        if major == _ARRAY:
            return self._array(argument, depth + 1)
        if major == _MAP:
            return {self._key(depth + 1): self.item(depth + 1) for _ in range(argument)}
        self.item(depth + 1)
        return None  # a tag with what it explains

    def _array(self, size: int, depth: int) -> list[Any]:
        raw, end = self._raw, len(self._raw)
        items: list[Any] = []
        for _ in range(size):
            at = self.at
            behind = at + 1 + raw[at] - _SHORT_TEXT if at < end else 0
            if at < behind <= end and raw[at] < _LONG_TEXT:  # most that is in lists: half the time
                self.at = behind
                items.append(raw[at + 1 : behind].decode())
            else:
                items.append(self.item(depth))
        return items

    def _key(self, depth: int) -> str:
        key = self.item(depth)
        if type(key) is not str:
            raise BodyBroken("a key that is no text")
        return key

    def _argument(self, info: int) -> int:
        if info > 27:
            raise BodyBroken("a length that is reserved or not definite")
        return int.from_bytes(self._take(1 << info - 24))

    def _take(self, size: int) -> bytes:
        at = self.at
        if size > len(self._raw) - at:
            raise BodyBroken("ends too soon")
        self.at = at + size
        return self._raw[at : at + size]

    def _simple(self, info: int) -> bool | float | None:
        if info in _FLOATS:
            number: float = struct.unpack(_FLOATS[info], self._take(1 << info - 24))[0]
            return number
        if info == 24:
            self._take(1)
        elif info > 24:
            raise BodyBroken("a break without a beginning, or a reserved value")
        return _SIMPLE_VALUES.get(info)
