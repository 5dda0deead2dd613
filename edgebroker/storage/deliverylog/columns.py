"""The encoding of the values of one column.

Whole numbers are encoded as their distance from a base in the fewest bytes that hold the largest distance, one *plane*
per byte: first the lowest byte of every value, then the next. The high planes are long runs of equal bytes, and the low
planes do not interrupt them: zlib makes planes a third smaller than the same numbers side by side.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from itertools import accumulate, repeat
from operator import add, and_, sub
from typing import TYPE_CHECKING, Any

from edgebroker.log_schema import Column, ColumnType

MASK = 2**64 - 1
HALF = 2**63

# Width in bytes of the largest distance -> the struct letter whose items hold it, and that item's size.
ITEMS = {1: ("B", 1), 2: ("H", 2), 3: ("I", 4), 4: ("I", 4), 5: ("Q", 8), 6: ("Q", 8), 7: ("Q", 8), 8: ("Q", 8)}


class ColumnDamaged(Exception):
    """The bytes of a column are inconsistent; the text says how."""


def pack(values: Sequence[int]) -> tuple[int, bytes]:
    """Return base and planes of *values*, which may be empty. Equal values need no planes at all."""
    if not values:
        return 0, b""
    low, high = min(values), max(values)
    if low == high:
        return int(low), b""
    if low >= 0 and high < 256:
        return 0, bytes(values)  # the most frequent case: one byte each, no subtraction
    if high - low > MASK:
        low, high, values = 0, MASK, [value & MASK for value in values]  # differences of extremes; wrapped() undoes it
    width = (high - low).bit_length() + 7 >> 3
    letter, size = ITEMS[width]
    distances = values if low == 0 else [value - low for value in values]
    raw = struct.pack(f"<{len(values)}{letter}", *distances)
    return int(low), raw if size == 1 else b"".join(raw[plane::size] for plane in range(width))


def unpack(planes: bytes, count: int) -> Sequence[int]:
    """Return the *count* distances in *planes*. Raises ColumnDamaged."""
    if not planes:
        return bytes(count)
    width = width_of(planes, count)
    letter, size = ITEMS[width]
    return planes if size == 1 else struct.unpack(f"<{count}{letter}", items_of(planes, width, count, size))


def width_of(planes: bytes, count: int) -> int:
    """Return the number of planes. Raises ColumnDamaged."""
    width, rest = divmod(len(planes), count) if count else (0, 1)
    if rest or width not in ITEMS:
        raise ColumnDamaged(f"{len(planes)} bytes cannot hold {count} numbers")
    return width


def check_whole(planes: bytes, count: int) -> None:
    """Raise ColumnDamaged unless *planes* contain *count* numbers, or nothing: the decoders rely on it."""
    if planes:
        width_of(planes, count)


def items_of(planes: bytes, width: int, count: int, size: int) -> bytearray:
    """Return the numbers in *planes* side by side, *size* bytes each."""
    raw = bytearray(count * size)
    for plane in range(width):
        raw[plane::size] = planes[plane * count : (plane + 1) * count]
    return raw


def sums_plainly(base: int, planes: bytes, count: int) -> list[int]:
    """Return the sum of *base* and each of the *count* distances in *planes*, as signed 64-bit numbers."""
    if not planes:
        return [signed(base)] * count
    width = width_of(planes, count)
    if base < -HALF or base + (1 << 8 * width) > HALF:
        return wide_sums(base, items_of(planes, width, count, 8), count)
    distances = unpack(planes, count)
    return list(distances) if base == 0 else list(map(add, distances, repeat(base)))


def running_plainly(first: int, base: int, planes: bytes, count: int) -> list[int]:
    """Return *first* and *count* more numbers, each the previous one plus *base* plus the next distance, as signed
    64-bit numbers.
    """
    return wrapped(list(accumulate(sums_plainly(base, planes, count), initial=signed(first))))


if TYPE_CHECKING:
    sums, running = sums_plainly, running_plainly
else:
    try:
        from edgebroker.storage.deliverylog.planes.numbers import running, sums  # compiled: a third of the time
    except ImportError:
        sums, running = sums_plainly, running_plainly


def wide_sums(base: int, raw: bytearray, count: int) -> list[int]:
    """Return the sums of *base* and each of the *count* 64-bit numbers in *raw*, modulo 2**64, as signed numbers.

    All are added at once, as one long integer without carries between numbers: 0.35 ms for 8,192, and 0.9 ms one by
    one.
    """
    ones = int.from_bytes(b"\1\0\0\0\0\0\0\0" * count, "little")
    tops = ones << 63
    rest = tops - ones
    distances, bases = int.from_bytes(raw, "little"), (base & MASK) * ones
    added = (distances & rest) + (bases & rest) ^ (distances ^ bases) & tops
    return list(struct.unpack(f"<{count}q", added.to_bytes(8 * count, "little")))


def signed(value: int) -> int:
    """Return *value* modulo 2**64 as a signed number."""
    return ((value + HALF) & MASK) - HALF


def wrapped(values: list[int]) -> list[int]:
    """Return *values* modulo 2**64 as signed numbers."""
    try:
        array("q", values)  # checks the range in a third of the time of min and max
    except OverflowError:
        return array("q", array("Q", list(map(and_, values, repeat(MASK)))).tobytes()).tolist()
    return values


def encode(column: Column, values: Sequence[Any]) -> list[Any]:
    """Return the CBOR array of a column: `[entries, planes]`, `[base, planes]` or, with deltas, `[first, base,
    planes]`.

    Entries are the distinct texts or byte strings. *values* has at least one element; numbers fit in 64 bits with sign.
    """
    if column.type is not ColumnType.INT:
        numbers = {text: number for number, text in enumerate(dict.fromkeys(values))}
        if len(numbers) == 1:
            return [list(numbers), b""]  # three times as fast, and most columns have one text in most blocks
        # Numbers count from 0, so the base is always 0 and is left out.
        return [list(numbers), pack(list(map(numbers.__getitem__, values)))[1]]
    if column.delta:
        return [int(values[0]), *pack(list(map(sub, values[1:], values)))]
    return [*pack(values)]


def decode(column: Column, encoded: object, count: int) -> list[Any]:
    """Decode the *count* values of `encode`. Raises ColumnDamaged for anything that `encode` cannot have written."""
    match encoded:
        case [list() as texts, bytes() as planes] if column.type is ColumnType.TEXT:
            return entries_of(texts, str, unpack(planes, count))
        case [list() as contents, bytes() as planes] if column.type is ColumnType.BYTES:
            return entries_of(contents, bytes, unpack(planes, count))
        case [int() as first, int() as base, bytes() as planes] if column.type is ColumnType.INT:
            check_whole(planes, count - 1)
            return running(first, base, planes, count - 1)
        case [int() as base, bytes() as planes] if column.type is ColumnType.INT:
            check_whole(planes, count)
            return sums(base, planes, count)
        case _:
            raise ColumnDamaged(f"column {column.name} is no {column.type.value} column")


def entries_of(entries: list[Any], kind: type[str] | type[bytes], numbers: Sequence[int]) -> list[Any]:
    """Return the *entries* with the given *numbers*. Raises ColumnDamaged for another *kind* and for a number out of
    range.
    """
    what = "text" if kind is str else "byte string"
    if not {kind}.issuperset(map(type, entries)):
        raise ColumnDamaged(f"a dictionary holds something that is no {what}")
    try:
        return list(map(entries.__getitem__, numbers))
    except IndexError:
        raise ColumnDamaged(f"{what} number {max(numbers)} in a dictionary of {len(entries)}") from None


def is_spread(encoded: object) -> bool:
    """Return whether the values of an encoded column are decoded one by one: it has planes, or deltas."""
    return isinstance(encoded, list) and (len(encoded) > 2 or bool(encoded and encoded[-1]))


DEFAULTS: dict[ColumnType, int | str | bytes] = {ColumnType.INT: 0, ColumnType.TEXT: "", ColumnType.BYTES: b""}


def default(column: Column) -> int | str | bytes:
    """Return the value of a column that an older writer did not know."""
    return DEFAULTS[column.type]
