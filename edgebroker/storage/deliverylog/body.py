"""The CBOR in a block's body, read with a bound: what unfolds to megabytes of small values is refused, not built."""

from __future__ import annotations

import struct
from typing import Any, Final

from edgebroker.limits import KIB

DEPTH_MAX: Final = 8
"""A footer is a map with a list of lists."""
LIST_VALUES: Final = 4
"""To make a list or a map takes as long as so many values."""
CHARACTER_BYTES: Final = 4
"""What a character of a text takes: in Python each as much as the widest. 3.4 MiB of ASCII with one emoji took 24."""
TEXT_BYTES_MAX: Final = 128 * KIB
"""One text. The longest of ours is a subscription: a topic of 65,535 bytes behind a filter of 2 KiB in %-escapes, which
may be twice as long in canonical words."""
_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE = range(8)
_SIMPLE_VALUES: Final = {20: False, 21: True}
_FLOATS: Final = {25: ">e", 26: ">f", 27: ">d"}
_TEXT_0, _TEXT_8, _TEXT_16 = 0x60, 0x78, 0x79
"""The first byte of a text of no bytes, and of those whose lengths are told in the next byte and in the next two."""
_SHORT_SIZES: Final = bytes([first - _TEXT_0 + 1 if _TEXT_0 <= first < _TEXT_8 else 0 for first in range(256)])
"""By its first byte, how many bytes a text of less than 24 takes; 0 for all else."""


class BodyBroken(ValueError):
    """The bytes are no CBOR of definite lengths, or more than there may be."""


def read_body(raw: bytes, values_max: int, texts_max: int, bytes_max: int) -> Any:
    """The one value in *raw*, which holds *values_max* others at most. Raises ValueError.

    texts_max: what its texts take, CHARACTER_BYTES for each character. bytes_max: what its byte strings take.

    What neither a block nor a footer has (tags, other simple values) is read as None.
    """
    reader = _BodyReader(raw, values_max, texts_max, bytes_max)
    value = reader.item(0)
    if reader.at != len(raw):
        raise BodyBroken("bytes after the end")
    return value


class _BodyReader:
    def __init__(self, raw: bytes, values_max: int, texts_max: int, bytes_max: int) -> None:
        self.at = 0
        self._raw = raw
        self._left = values_max
        self._texts_left = texts_max
        self._bytes_left = bytes_max

    def item(self, depth: int) -> Any:
        raw, at = self._raw, self.at
        if at >= len(raw):
            raise BodyBroken("ends too soon")
        first = raw[at]
        self.at = at + 1
        if first < 24:
            return first
        major, info = first >> 5, first & 31
        if major == _SIMPLE:
            return self._simple(info)
        argument = info if info < 24 else self._argument(info)
        if major == _UNSIGNED:
            return argument
        if major == _NEGATIVE:
            return -1 - argument
        if major == _BYTES:
            return self._bytes(argument)
        if major == _TEXT:
            return self._text(argument)
        values = argument * (2 if major == _MAP else 1)
        if depth == DEPTH_MAX or values > min(len(raw) - self.at, self._left - LIST_VALUES):
            raise BodyBroken("too deep, or more values than there may be")
        self._left -= values + LIST_VALUES
        if major == _ARRAY:
            return self._array(argument, depth + 1)
        if major == _MAP:
            return {self._key(depth + 1): self.item(depth + 1) for _ in range(argument)}
        self.item(depth + 1)
        return None  # a tag with what it explains

    def _array(self, size: int, depth: int) -> list[Any]:
        raw, at, chars, sizes = self._raw, self.at, 0, _SHORT_SIZES
        items: list[Any] = []
        append, most = items.append, self._texts_left // CHARACTER_BYTES
        try:
            for _ in range(size):
                first = raw[at]
                short = sizes[first]
                if short:  # most that is in lists: a third of the time
                    begin, at = at + 1, at + short
                elif chars > most:  # short texts are too few to take much before they are counted
                    break
                elif first == _TEXT_8:
                    begin = at + 2
                    at = begin + raw[at + 1]
                elif first == _TEXT_16:
                    begin = at + 3
                    at = begin + (raw[at + 1] << 8 | raw[at + 2])
                else:
                    if chars:
                        self._fill(chars)
                        chars = 0
                    self.at = at
                    append(self.item(depth))
                    at, most = self.at, self._texts_left // CHARACTER_BYTES
                    continue
                text = raw[begin:at].decode()
                append(text)
                chars += len(text)
        except IndexError:
            raise BodyBroken("ends too soon") from None
        if at > len(raw):
            raise BodyBroken("ends too soon")
        self.at = at
        self._fill(chars)
        return items

    def _bytes(self, size: int) -> bytes:
        if size > self._bytes_left:
            raise BodyBroken("byte strings longer than they may be together")
        self._bytes_left -= size
        return self._take(size)

    def _text(self, size: int) -> str:
        if size > min(self._texts_left, TEXT_BYTES_MAX):
            raise BodyBroken("longer than a text may be")
        text = self._take(size).decode()
        self._fill(len(text))
        return text

    def _fill(self, chars: int) -> None:
        self._texts_left -= CHARACTER_BYTES * chars
        if self._texts_left < 0:
            raise BodyBroken("texts longer than they may be together")

    def _key(self, depth: int) -> str:
        key = self.item(depth)
        if type(key) is not str:
            raise BodyBroken("a key that is no text")
        return key

    def _argument(self, info: int) -> int:
        if info > 27:
            raise BodyBroken("a length that is reserved or not definite")
        self._left -= 1  # 13,000 strings whose lengths are told in eight bytes took 12 ms
        if self._left < 0:
            raise BodyBroken("more values than there may be")
        return int.from_bytes(self._take(1 << info - 24))

    def _take(self, size: int) -> bytes:
        at = self.at
        if size > len(self._raw) - at:
            raise BodyBroken("ends too soon")
        self.at = at + size
        return self._raw[at : at + size]

    def _simple(self, info: int) -> bool | float | None:
        if info in _FLOATS:
            self._left -= 1
            number: float = struct.unpack(_FLOATS[info], self._take(1 << info - 24))[0]
            return number
        if info == 24:
            self._take(1)
        elif info > 24:
            raise BodyBroken("a break without a beginning, or a reserved value")
        return _SIMPLE_VALUES.get(info)
