"""CBOR (RFC 8949): one reader within bounds, and one writer.

The reader serves payloads of clients, frames of peers, blocks of delivery logs, and the conversions of bridges.
`CborRules` state how much of the format each of them takes and how many values one item may hold. The writer writes
numbers and lengths in as few bytes as possible, floats in eight bytes unless short ones are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any, Final

from edgebroker.limits import PAYLOAD_COMPOSITES_MAX, PAYLOAD_DEPTH_MAX
from edgebroker.predicate import COMPOSITE

_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE = range(8)
"""Major types: numbers of C where this module is compiled."""
UNSIGNED, NEGATIVE, BYTES, TEXT, ARRAY, MAP = _UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP
NULL: Final = b"\xf6"
_FALSE: Final = b"\xf4"
_TRUE: Final = b"\xf5"
_WIDE: Final = 24
"""Smaller arguments stand in the first byte of their item, others in 1, 2, 4 or 8 bytes of their own."""
_INDEFINITE: Final = 31
_BREAK: Final = 0xFF
_SHORT_BYTES: Final = 0x40
_LONG_BYTES: Final = 0x58
"""The first byte of an empty byte string, and of the shortest whose length stands in bytes of its own."""
_SHORT_TEXT: Final = 0x60
_LONG_TEXT: Final = 0x78
"""The same for texts."""
_POSITIVE_BIGNUM: Final = 2
_NEGATIVE_BIGNUM: Final = 3
UNDEFINED: Final = 23
_HALF: Final = 25
_PLAIN: Final = {20: False, 21: True, 22: None}
_FLOATS: Final = tuple([Struct(layout).unpack_from for layout in (">e", ">f", ">d")])
"""Of 2, 4 and 8 bytes, which _HALF and the two arguments after it announce."""
_SHORT_FLOATS: Final = ((b"\xf9", Struct(">e"), 65_504.0), (b"\xfa", Struct(">f"), (2 - 2.0**-23) * 2.0**127))
"""With the largest number of each; to be refused larger ones takes 0.6 us."""
_DOUBLE: Final = Struct(">d")
_FIRST: Final = tuple([bytes((first,)) for first in range(256)])
_INFINITE: Final = float("inf")
_INFINITY, _NEGATIVE_INFINITY, _NOT_A_NUMBER = b"\xf9\x7c\x00", b"\xf9\xfc\x00", b"\xf9\x7e\x00"
REFUSED: Final = object()
"""As `CborRules.others`: tags and simple values without a meaning here are errors."""
_ANY_AMOUNT: Final = 1 << 62


class CborInvalid(ValueError):
    """Bytes are no CBOR, or CBOR that the rules of the reader exclude; or a value cannot be written."""


class CborRules:
    """How much of CBOR a reader takes.

    An array, a map or a tagged value costs *container_cost* values, and each of its members *member_cost*; a key and
    its value are one member. Strings of less than 24 bytes do not count against the bounds of strings.
    """

    def __init__(
        self,
        *,
        depth_max: int,
        values_max: int,
        container_cost: int = 0,
        member_cost: int = 1,
        keys: tuple[type, ...] = (str,),
        is_unique: bool = False,
        map_max: int = _ANY_AMOUNT,
        has_indefinite: bool = True,
        others: object = REFUSED,
        text_bytes_max: int = _ANY_AMOUNT,
        characters_max: int = _ANY_AMOUNT,
        octets_max: int = _ANY_AMOUNT,
        error: type[Exception] = CborInvalid,
    ) -> None:
        """depth_max: arrays, maps and tags inside one another; empty ones of definite length do not count.
        values_max: what one item may cost.
        keys: types of the keys of maps.
        is_unique: equal keys are an error; otherwise the last one counts.
        map_max: keys of one map.
        has_indefinite: whether lengths may be indefinite.
        others: the value of tags other than bignums and of simple values that RFC 8949 does not define; `undefined` is
        None then. REFUSED: all these are errors.
        text_bytes_max: bytes of one text.
        characters_max, octets_max: characters of all texts, and bytes of all byte strings, of one item.
        error: the class of every error.
        """
        self.depth_max = depth_max
        self.values_max = values_max
        self.container_cost = container_cost
        self.member_cost = member_cost
        self.keys = keys
        self.is_unique = is_unique
        self.map_max = map_max
        self.has_indefinite = has_indefinite
        self.others = others
        self.text_bytes_max = text_bytes_max
        self.characters_max = characters_max
        self.octets_max = octets_max
        self.error = error


PAYLOAD: Final = CborRules(
    depth_max=PAYLOAD_DEPTH_MAX,
    values_max=PAYLOAD_COMPOSITES_MAX,
    container_cost=1,
    member_cost=0,
    keys=(str, bytes),  # others could be chosen to collide
    others=COMPOSITE,
)
"""Payloads as filters read them: COMPOSITE stands for values that no filter compares."""


def read_cbor(payload: bytes) -> Any:
    """The one value in *payload*: dict, list, str, bytes, int, float, bool, None or COMPOSITE. Raises CborInvalid."""
    return CborReader(payload, PAYLOAD).whole()


class CborReader:
    """A position in *data*, which is read item by item.

    Every item takes at least one byte, so the length of an array or a map is checked against the bytes that are left
    before anything is allocated. Every method raises the error of the *rules*. Subclasses may read keys, tags and
    simple values differently.
    """

    def __init__(self, data: bytes, rules: CborRules) -> None:
        self.data = data
        self.rules = rules
        self.at = 0
        self.argument = 0
        """Of the last head."""
        self.values = 0
        """The cost of what the last call of `item` read."""
        self._characters = 0
        self._octets = 0

    # -- items whose kind is known beforehand ---------------------------------------------------------------------

    def head(self) -> int:
        """Read the first bytes of an item of definite length: returns the major type, and sets `argument`."""
        at = self.at
        data = self.data
        if at >= len(data):
            raise self._broken("an item is missing")
        first: int = data[at]
        info = first & 31
        at += 1
        if info < 24:
            self.argument = info
        elif info > 27:
            raise self._broken("a length of a reserved or an indefinite kind")
        else:
            end = at + (1 << (info - 24))
            if end > len(data):
                raise self._broken("an item ends too soon")
            number = 0
            while at < end:  # compiled, a third of what `int.from_bytes` takes
                number = number << 8 | data[at]
                at += 1
            self.argument = number
        self.at = at
        return first >> 5

    def array(self) -> int:
        """Read the head of an array; returns its length, for which there are bytes."""
        if self.head() != _ARRAY or self.argument > len(self.data) - self.at:
            raise self._broken("no array, or one that is too long,")
        return self.argument

    def unsigned(self) -> int:
        """Read a number from 0 to 2**64 - 1."""
        if self.head() != _UNSIGNED:
            raise self._broken("no unsigned number")
        return self.argument

    def integer(self) -> int:
        """Read a number from -2**64 to 2**64 - 1."""
        major = self.head()
        number = self.argument
        if major > _NEGATIVE:
            raise self._broken("no number")
        return number if major == _UNSIGNED else -1 - number

    def octets(self) -> bytes:
        """Read a byte string."""
        if self.head() != _BYTES:
            raise self._broken("no byte string")
        return self._take(self.argument)

    # -- any items ------------------------------------------------------------------------------------------------

    def whole(self) -> Any:
        """Read the one item that there is."""
        value = self.item()
        if self.at != len(self.data):
            raise self._broken("bytes after the end")
        return value

    def item(self) -> Any:
        """Read any item: int, float, bool, None, bytes, str, list, dict, or the value of the rules for others."""
        self.values = self._characters = self._octets = 0
        try:
            return self._item(0)
        except UnicodeDecodeError:
            raise self._broken("a text that is no UTF-8") from None

    def single(self) -> Any:
        """Read an item that is neither an array nor a map."""
        if self.at < len(self.data) and self.data[self.at] >> 5 in (_ARRAY, _MAP):
            raise self._broken("an array or a map, where there is none,")
        return self.item()

    def nested(self, depth: int) -> Any:
        """Read an item inside *depth* arrays, maps and tags, and add its cost to those that `item` began."""
        return self._item(depth)

    def members(self, depth: int) -> Iterable[object]:
        """Read the head of an array or a map inside *depth* others, and iterate as often as it has members. The caller
        reads one member in each turn.
        """
        if self.at < len(self.data) and self.data[self.at] & 31 == _INDEFINITE:
            self.at += 1
            self._open_indefinite(depth)
            return iter(self._at_break, True)
        self.head()
        self._open(self.argument, depth)
        return range(self.argument)

    def _item(self, depth: int) -> Any:
        at, data = self.at, self.data
        if at >= len(data):
            raise self._broken("an item is missing")
        first = data[at]
        if first < _WIDE:  # most are of one byte, or short texts
            self.at = at + 1
            return first
        if _SHORT_TEXT <= first < _LONG_TEXT:
            end = at + 1 + first - _SHORT_TEXT
            if end > len(data):
                raise self._broken("a text ends too soon")
            self.at = end
            return data[at + 1 : end].decode()
        if _SHORT_BYTES <= first < _LONG_BYTES:
            end = at + 1 + first - _SHORT_BYTES
            if end > len(data):
                raise self._broken("a byte string ends too soon")
            self.at = end
            return data[at + 1 : end]
        major = first >> 5
        info = first & 31
        if major == _SIMPLE:
            self.at = at + 1
            return self.simple(info)
        if info < _WIDE:
            self.at = at + 1
            size = info
        elif info == _WIDE and at + 1 < len(data):
            self.at = at + 2
            size = data[at + 1]
        elif info == _INDEFINITE:
            self.at = at + 1
            return self._indefinite(major, depth)
        else:
            self.head()
            size = self.argument
        if major == _ARRAY:
            self._open(size, depth)
            return self._array(size, depth + 1)
        if major == _MAP:
            self._open(size, depth)
            return self._map(size, depth + 1)
        if major == _TEXT:
            return self._text(size)
        if major == _BYTES:
            return self._bytes(size)
        if major == _TAG:
            self._open(1, depth)
            return self.tagged(size, self._item(depth + 1))
        number = size
        return number if major == _UNSIGNED else -1 - number

    def _open(self, size: int, depth: int) -> None:
        """Count an array, a map or a tag with *size* members inside *depth* others."""
        rules = self.rules
        if size > len(self.data) - self.at:
            raise self._broken("an array or a map ends too soon")
        if size and depth >= rules.depth_max:
            raise self._broken("too deep")
        self.values += rules.container_cost + size * rules.member_cost
        if self.values > rules.values_max:
            raise self._broken(f"more than {rules.values_max:,} values")

    def _array(self, size: int, depth: int) -> list[Any]:
        items: list[Any] = []
        if size < _WIDE:  # as many places as are needed: half the time, and no list needs two pieces of memory
            items = [None] * size
            for number in range(size):
                items[number] = self._item(depth)
            return items
        for _ in range(size):
            items.append(self._item(depth))
        return items

    def _map(self, size: int, depth: int) -> dict[Any, Any]:
        if size > self.rules.map_max:
            raise self._broken(f"a map of more than {self.rules.map_max} keys")
        members: dict[Any, Any] = {}
        for _ in range(size):
            self._pair(members, depth)
        return members

    def _pair(self, members: dict[Any, Any], depth: int) -> None:
        at, data = self.at, self.data
        end = at
        if at < len(data):
            first = data[at]
            if _SHORT_TEXT <= first < _LONG_TEXT:
                end = at + 1 + first - _SHORT_TEXT
        if at < end <= len(data):
            self.at = end
            key: Any = data[at + 1 : end].decode()
        else:
            key = self.key(depth)
        if self.rules.is_unique and key in members:
            raise self._broken("a key that is there twice")
        members[key] = self._item(depth)

    def _text(self, size: int) -> str:
        rules = self.rules
        if size > rules.text_bytes_max:
            raise self._broken("a text that is too long")
        at = self.at
        if size > len(self.data) - at:
            raise self._broken("a text ends too soon")
        self.at = end = at + size
        text = self.data[at:end].decode()
        self._characters += len(text)
        if self._characters > rules.characters_max:
            raise self._broken("texts that are too long together")
        return text

    def _bytes(self, size: int) -> bytes:
        if size > self.rules.octets_max - self._octets:
            raise self._broken("byte strings that are too long together")
        self._octets += size
        return self._take(size)

    def _take(self, size: int) -> bytes:
        at = self.at
        if size > len(self.data) - at:
            raise self._broken("a string ends too soon")
        self.at = at + size
        return self.data[at : at + size]

    # -- what subclasses may read differently ---------------------------------------------------------------------

    def key(self, depth: int) -> Any:
        """Read a key of a map. Texts of less than 24 bytes are keys everywhere and do not come here from `item`."""
        key = self._item(depth)
        if type(key) not in self.rules.keys:
            raise self._broken("a key of another kind than there may be")
        return key

    def simple(self, info: int) -> Any:
        """Read the rest of a simple value or a float of which *info* is the argument."""
        if info in _PLAIN:
            return _PLAIN[info]
        if _HALF <= info < _HALF + 3:
            at = self.at
            self.at = end = at + (1 << info - 24)
            if end > len(self.data):
                raise self._broken("a float ends too soon")
            return _FLOATS[info - _HALF](self.data, at)[0]
        others = self.rules.others
        if info > _HALF or (info == 24 and self._take(1)[0] < 32) or others is REFUSED:
            raise self._broken("a break without a beginning, or a simple value that is not read here")
        return None if info == UNDEFINED else others

    def tagged(self, tag: int, content: Any) -> Any:
        """The value of *content* with *tag* before it."""
        if tag in (_POSITIVE_BIGNUM, _NEGATIVE_BIGNUM):
            if type(content) is not bytes:
                raise self._broken("a bignum that is no byte string")
            number = int.from_bytes(content)
            return number if tag == _POSITIVE_BIGNUM else -1 - number
        if self.rules.others is REFUSED:
            raise self._broken(f"tag {tag}, which is not read here")
        return self.rules.others

    # -- indefinite lengths ---------------------------------------------------------------------------------------

    def _indefinite(self, major: int, depth: int) -> Any:
        """Read an item whose members or chunks end with a break."""
        if major in (_BYTES, _TEXT):
            return self._chunks(major)
        if major not in (_ARRAY, _MAP):
            raise self._broken("an indefinite number")
        self._open_indefinite(depth)
        if major == _ARRAY:
            items: list[Any] = []
            while not self._at_break():
                items.append(self._item(depth + 1))
            return items
        members: dict[Any, Any] = {}
        while not self._at_break():
            self._pair(members, depth + 1)
            if len(members) > self.rules.map_max:
                raise self._broken(f"a map of more than {self.rules.map_max} keys")
        return members

    def _open_indefinite(self, depth: int) -> None:
        rules = self.rules
        if not rules.has_indefinite or depth >= rules.depth_max:
            raise self._broken("too deep, or an indefinite length, where there is none,")
        self._open(0, depth)

    def _at_break(self) -> bool:
        """Read the break if it is next; otherwise count the member that is next. Returns whether it was the break."""
        at = self.at
        if at < len(self.data) and self.data[at] == _BREAK:
            self.at = at + 1
            return True
        rules = self.rules
        self.values += rules.member_cost
        if self.values > rules.values_max:
            raise self._broken(f"more than {rules.values_max:,} values")
        return False

    def _chunks(self, major: int) -> str | bytes:
        if not self.rules.has_indefinite:
            raise self._broken("an indefinite length, where there is none,")
        chunks: list[Any] = []
        while not self._at_break():
            if self.head() != major:
                raise self._broken("a string of other things than strings")
            if self.argument:  # 64 KiB of empty ones took 6 ms
                chunks.append(self._text(self.argument) if major == _TEXT else self._bytes(self.argument))
        return "".join(chunks) if major == _TEXT else b"".join(chunks)

    def _broken(self, what: str) -> Exception:
        return self.rules.error(f"{what} before byte {self.at}")


# -- writing ------------------------------------------------------------------------------------------------------


def head(major: int, argument: int) -> bytes:
    """The first bytes of an item: three bits of *major*, then *argument* in as few bytes as can be."""
    if argument < 24:
        return _FIRST[major << 5 | argument]
    if argument < 0x100:
        return _FIRST[major << 5 | 24] + _FIRST[argument]
    if argument < 0x1_0000:
        return bytes((major << 5 | 25, argument >> 8, argument & 0xFF))
    if argument < 0x1_0000_0000:
        return (major << 5 | 26).to_bytes() + argument.to_bytes(4)
    return (major << 5 | 27).to_bytes() + argument.to_bytes(8)


def encode_cbor(value: Any, has_short_floats: bool = False, values_max: int = _ANY_AMOUNT) -> bytes:
    """*value* as CBOR with definite lengths: None, bool, int, float, str, bytes, or a list, tuple or dict of such.

    has_short_floats: floats take 2, 4 or 8 bytes, the fewest that are exact; otherwise 8. Raises CborInvalid: a value
    of another type, or more than *values_max* values and keys.
    """
    parts: list[bytes] = []
    _write(value, parts, has_short_floats, values_max)
    return b"".join(parts)


def encode_text(text: str) -> bytes:
    """*text* as CBOR."""
    octets = text.encode()
    size = len(octets)
    return (_FIRST[_SHORT_TEXT + size] if size < _WIDE else head(_TEXT, size)) + octets


def _write(value: Any, parts: list[bytes], has_short_floats: bool, values_max: int) -> None:
    kind = type(value)
    if kind is int:
        parts.append(_FIRST[value] if 0 <= value < _WIDE else _integer(value))
    elif kind is str:
        parts.append(encode_text(value))
    elif kind is bytes:
        parts.append(head(_BYTES, len(value)) + value)
    elif kind is list or kind is tuple:
        _write_head(_ARRAY, len(value), parts, values_max)
        for one in value:
            _write(one, parts, has_short_floats, values_max)
    elif kind is dict:
        _write_head(_MAP, len(value), parts, values_max)
        for key, one in value.items():
            _write(key, parts, has_short_floats, values_max)
            _write(one, parts, has_short_floats, values_max)
    elif kind is float:
        parts.append(_float(value, has_short_floats))
    elif kind is bool:
        parts.append(_TRUE if value else _FALSE)
    elif value is None:
        parts.append(NULL)
    elif isinstance(value, int):
        parts.append(_integer(value))
    else:
        raise CborInvalid("a value that CBOR has not, or too large a number")


def _write_head(major: int, size: int, parts: list[bytes], values_max: int) -> None:
    if len(parts) + size > values_max:  # as many follow, at least
        raise CborInvalid(f"more than {values_max:,} values")
    parts.append(head(major, size))


def _integer(number: int) -> bytes:
    size = number if number >= 0 else -1 - number
    if size < 1 << 64:
        return head(_UNSIGNED if number >= 0 else _NEGATIVE, size)
    octets = size.to_bytes((size.bit_length() + 7) // 8)
    return head(_TAG, _POSITIVE_BIGNUM if number >= 0 else _NEGATIVE_BIGNUM) + head(_BYTES, len(octets)) + octets


def _float(number: float, is_short: bool) -> bytes:
    size = abs(number)
    if not size < _INFINITE:
        return _NOT_A_NUMBER if number != number else _INFINITY if number > 0 else _NEGATIVE_INFINITY
    if is_short:
        for first, layout, most in _SHORT_FLOATS:
            if size <= most:
                octets = layout.pack(number)
                if layout.unpack(octets)[0] == number:
                    return first + octets
    return b"\xfb" + _DOUBLE.pack(number)
