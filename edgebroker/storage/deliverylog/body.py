"""Decodes the CBOR of a block's body within bounds: a body that would expand to megabytes of small values is
refused.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from edgebroker.limits import KIB

DEPTH_MAX: Final = 8
"""Nesting of a footer: a map with a list of lists."""
LIST_VALUES: Final = 4
"""Creating a list or a map takes as long as so many values."""
CHARACTER_BYTES: Final = 4
"""Memory of a character: Python stores each in as many bytes as the widest. 3.4 MiB of ASCII with one emoji took 24
MiB.
"""
TEXT_BYTES_MAX: Final = 128 * KIB
"""Bytes of one text. The longest is a subscription: a topic of 65,535 bytes after a filter of 2 KiB, percent-encoded,
which may be twice as long in canonical spelling.
"""
_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE = range(8)
_SIMPLE_VALUES: Final = {20: False, 21: True}
_FLOATS: Final = {25: ">e", 26: ">f", 27: ">d"}
_TEXT_0, _TEXT_8, _TEXT_16 = 0x60, 0x78, 0x79
"""The first bytes of an empty text, and of texts whose lengths are in the next byte and in the next two bytes."""
_SHORT_SIZES: Final = bytes([first - _TEXT_0 + 1 if _TEXT_0 <= first < _TEXT_8 else 0 for first in range(256)])
"""First byte -> the encoded size of a text of less than 24 bytes; 0 for everything else."""


class BodyBroken(ValueError):
    """The bytes are not CBOR of definite lengths, or exceed the bounds."""


def read_body(raw: bytes, values_max: int, texts_max: int, bytes_max: int) -> Any:
    """Decode the single value in *raw*, which may contain at most *values_max* others. Raises ValueError.

    texts_max: memory of its texts, CHARACTER_BYTES for each character. bytes_max: size of its byte strings.

    Items that neither a block nor a footer contains (tags, other simple values) are decoded as None.
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
        return None  # a tag and its content

    def _array(self, size: int, depth: int) -> list[Any]:
        raw, at, chars, sizes = self._raw, self.at, 0, _SHORT_SIZES
        items: list[Any] = []
        append, chars_max = items.append, self._texts_left // CHARACTER_BYTES
        try:
            for _ in range(size):
                first = raw[at]
                short = sizes[first]
                if short:  # most items of lists; this path takes a third of the time
                    begin, at = at + 1, at + short
                elif chars > chars_max:  # short texts cannot take much memory before `_fill` counts them
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
                    at, chars_max = self.at, self._texts_left // CHARACTER_BYTES
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
        self._left -= 1  # 13,000 strings whose lengths are encoded in eight bytes took 12 ms
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
