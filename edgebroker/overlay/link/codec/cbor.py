"""The part of CBOR (RFC 8949) that gateways speak with each other, read strictly: no tags but bignums, no indefinite
lengths, no simple values but false, true and null. Every item takes at least a byte, so what is read is bounded by what
came; nothing is looked up, nothing is called by name.

cbor2 writes everything else than events; what it writes of plain values is this part.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from edgebroker.overlay.link.codec.errors import FrameBroken

DEPTH_MAX: Final = 12
"""A list of interests, each with tests, each with intervals, is seven deep."""
MAP_MAX: Final = 64
"""No map has as many keys; so few cannot be chosen to collide at a price."""
ITEMS_MAX: Final = 16_384
"""In one item, all that is inside it counted: the longest interest that a filter makes has a third of that, what an
event changes at most 6,200. So many take 3 ms to read; as many as 64 KiB hold took 17.
"""
UNSIGNED: Final = 0
NEGATIVE: Final = 1
BYTES: Final = 2
TEXT: Final = 3
ARRAY: Final = 4
MAP: Final = 5
NULL: Final = b"\xf6"
_TAG: Final = 6
_BIGNUM: Final = 2
_NEGATIVE_BIGNUM: Final = 3
_FALSE, _TRUE, _NULL, _HALF, _SINGLE, _DOUBLE = 20, 21, 22, 25, 26, 27
_FLOATS: Final = {_HALF: Struct(">e"), _SINGLE: Struct(">f"), _DOUBLE: Struct(">d")}


def head(major: int, argument: int) -> bytes:
    """The first bytes of an item: three bits of *major*, then *argument* in as few bytes as can be."""
    if argument < 24:
        return bytes((major << 5 | argument,))
    if argument < 0x100:
        return bytes((major << 5 | 24, argument))
    if argument < 0x1_0000:
        return bytes((major << 5 | 25, argument >> 8, argument & 0xFF))
    if argument < 0x1_0000_0000:
        return (major << 5 | 26).to_bytes() + argument.to_bytes(4)
    return (major << 5 | 27).to_bytes() + argument.to_bytes(8)


class StrictCborReader:
    """A position in *data*, which is read item by item. Every method raises FrameBroken."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.argument = 0
        """Of the last head."""
        self.items_max = ITEMS_MAX
        self.items = 0
        """How many the last call of `item` read, with all inside."""

    def head(self) -> int:
        """Read the first bytes of an item: returns the major type, and sets `argument`."""
        at = self.at
        data = self.data
        if at >= len(data):
            raise FrameBroken(f"an item is missing at byte {at}")
        first: int = data[at]
        info = first & 31
        at += 1
        if info < 24:
            self.argument = info
        elif info > 27:
            raise FrameBroken(f"a length of a reserved or an indefinite kind at byte {at - 1}")
        else:
            size = 1 << (info - 24)
            if at + size > len(data):
                raise FrameBroken(f"an item at byte {at - 1} ends too soon")
            self.argument = int.from_bytes(data[at : at + size])
            at += size
        self.at = at
        return first >> 5

    def array(self) -> int:
        """Read the head of an array; returns its length, for which there are bytes."""
        if self.head() != ARRAY or self.argument > len(self.data) - self.at:
            raise FrameBroken(f"no array, or one that is too long, before byte {self.at}")
        return self.argument

    def unsigned(self) -> int:
        """Read a number from 0 to 2**64 - 1."""
        if self.head() != UNSIGNED:
            raise FrameBroken(f"no unsigned number before byte {self.at}")
        return self.argument

    def integer(self) -> int:
        """Read a number from -2**64 to 2**64 - 1."""
        major = self.head()
        number = self.argument
        if major > NEGATIVE:
            raise FrameBroken(f"no number before byte {self.at}")
        return number if major == UNSIGNED else -1 - number

    def octets(self) -> bytes:
        """Read a byte string."""
        if self.head() != BYTES:
            raise FrameBroken(f"no byte string before byte {self.at}")
        return self._take(self.argument)

    def item(self, depth: int = 0) -> Any:
        """Read any item: int, float, bool, None, bytes, str, list or dict."""
        start = self.at
        if depth == 0:
            self.items = 0
        self.items += 1
        if self.items > self.items_max:
            raise FrameBroken(f"more than {self.items_max} values in one, at byte {start}")
        major = self.head()
        argument = self.argument
        if major == UNSIGNED:
            return argument
        if major == NEGATIVE:
            return -1 - argument
        if major == BYTES:
            return self._take(argument)
        if major == TEXT:
            try:
                return self._take(argument).decode()
            except UnicodeDecodeError:
                raise FrameBroken(f"a text at byte {start} is no UTF-8") from None
        if major == _TAG:
            return self._bignum(argument)
        if major > _TAG:
            return self._simple(start)
        if depth == DEPTH_MAX:
            raise FrameBroken(f"an array or map at byte {start}, where there is none or {DEPTH_MAX} deep")
        if argument > (MAP_MAX if major == MAP else len(self.data) - self.at):
            raise FrameBroken(f"an array or map at byte {start} is longer than can be")
        if major == ARRAY:
            return [self.item(depth + 1) for _ in range(argument)]
        return self._map(argument, depth)

    def single(self) -> Any:
        """Read an item that holds no others: int, float, bool, None, bytes or str."""
        self.items = 0
        return self.item(DEPTH_MAX)

    def _take(self, size: int) -> bytes:
        at = self.at
        if size > len(self.data) - at:
            raise FrameBroken(f"a string before byte {at} ends too soon")
        self.at = at + size
        return self.data[at : at + size]

    def _map(self, size: int, depth: int) -> dict[int | str, Any]:
        found: dict[int | str, Any] = {}
        for _ in range(size):
            start = self.at
            key = self.item(depth + 1)
            if type(key) is not int and type(key) is not str:
                raise FrameBroken(f"a key at byte {start} is neither a number nor a text")
            if key in found:
                raise FrameBroken(f"a key at byte {start} is there twice")
            found[key] = self.item(depth + 1)
        return found

    def _bignum(self, tag: int) -> int:
        if tag not in (_BIGNUM, _NEGATIVE_BIGNUM):
            raise FrameBroken(f"tag {tag} before byte {self.at}; none but bignums are read")
        number = int.from_bytes(self.octets())
        return number if tag == _BIGNUM else -1 - number

    def _simple(self, start: int) -> bool | float | None:
        info = self.data[start] & 31
        if info == _FALSE:
            return False
        if info == _TRUE:
            return True
        if info == _NULL:
            return None
        layout = _FLOATS.get(info)
        if layout is None:
            raise FrameBroken(f"a simple value at byte {start} that is neither false, true nor null")
        number: float = layout.unpack_from(self.data, start + 1)[0]
        return number
