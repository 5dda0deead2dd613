"""How the values of one column become bytes and come back.

Whole numbers are written as their distance from a base in the fewest bytes that hold the largest distance, one *plane*
per byte: first the lowest byte of every value, then the next. The high planes are then long runs of equal bytes and
the low planes do not disturb them: zlib makes a third less of planes than of the same numbers side by side.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from itertools import accumulate, repeat
from operator import add, sub
from typing import Any

from edgebroker.records import Column, ColumnType

MASK = 2**64 - 1
HALF = 2**63

# Width in bytes of the largest distance -> the struct letter whose items hold it, and that item's size.
ITEMS = {1: ("B", 1), 2: ("H", 2), 3: ("I", 4), 4: ("I", 4), 5: ("Q", 8), 6: ("Q", 8), 7: ("Q", 8), 8: ("Q", 8)}


class ColumnDamaged(Exception):
    """The bytes of a column contradict themselves; the text says how."""


def pack(values: Sequence[int]) -> tuple[int, bytes]:
    """Base and planes of *values*, which may be empty. Equal values need no planes at all."""
    if not values:
        return 0, b""
    low, high = min(values), max(values)
    if low == high:
        return int(low), b""
    if low >= 0 and high < 256:
        return 0, bytes(values)  # the common case: one byte each, no subtraction
    if high - low > MASK:
        low, high, values = 0, MASK, [value & MASK for value in values]  # differences of extremes; unpack() wraps
    width = (high - low).bit_length() + 7 >> 3
    letter, size = ITEMS[width]
    distances = values if low == 0 else [value - low for value in values]
    raw = struct.pack(f"<{len(values)}{letter}", *distances)
    return int(low), raw if size == 1 else b"".join(raw[plane::size] for plane in range(width))


def unpack(base: int, planes: bytes, count: int) -> list[int]:
    """The *count* values that `pack` wrote, before wrapping to 64 bits. Raises ColumnDamaged."""
    if not planes:
        return [base] * count
    width, rest = divmod(len(planes), count) if count else (0, 1)
    if rest or width not in ITEMS:
        raise ColumnDamaged(f"{len(planes)} bytes cannot hold {count} numbers")
    letter, size = ITEMS[width]
    if size == 1:
        distances: Sequence[int] = planes
    else:
        raw = bytearray(count * size)
        for plane in range(width):
            raw[plane::size] = planes[plane * count : (plane + 1) * count]
        distances = struct.unpack(f"<{count}{letter}", raw)
    return list(distances) if base == 0 else list(map(add, distances, repeat(base)))


def wrapped(values: list[int]) -> list[int]:
    """*values* as signed numbers of 64 bits."""
    try:
        array("q", values)  # a third of the time that min and max take
    except OverflowError:
        return [((value + HALF) & MASK) - HALF for value in values]
    return values


def encode(column: Column, values: Sequence[Any]) -> list[Any]:
    """The CBOR array of a column: `[entries, planes]`, `[base, planes]` or, with deltas, `[first, base, planes]`.

    Entries are the different texts or byte strings.
    *values* has at least one element; numbers fit in 64 bits with sign.
    """
    if column.type is not ColumnType.INT:
        numbers = {text: number for number, text in enumerate(dict.fromkeys(values))}
        if len(numbers) == 1:
            return [list(numbers), b""]  # three times as quick, and most columns have one text in most blocks
        # Numbers count from 0, so that the base says nothing and is left out.
        return [list(numbers), pack(list(map(numbers.__getitem__, values)))[1]]
    if column.delta:
        return [int(values[0]), *pack(list(map(sub, values[1:], values)))]
    return [*pack(values)]


def decode(column: Column, encoded: object, count: int) -> list[Any]:
    """The *count* values of `encode`. Raises ColumnDamaged for anything that `encode` cannot have written."""
    match encoded:
        case [list() as texts, bytes() as planes] if column.type is ColumnType.TEXT:
            return entries_of(texts, str, unpack(0, planes, count))
        case [list() as contents, bytes() as planes] if column.type is ColumnType.BYTES:
            return entries_of(contents, bytes, unpack(0, planes, count))
        case [int() as first, int() as base, bytes() as planes] if column.type is ColumnType.INT:
            return wrapped(list(accumulate(unpack(base, planes, count - 1), initial=first)))
        case [int() as base, bytes() as planes] if column.type is ColumnType.INT:
            return wrapped(unpack(base, planes, count))
        case _:
            raise ColumnDamaged(f"column {column.name} is no {column.type.value} column")


def entries_of(entries: list[Any], kind: type[str] | type[bytes], numbers: list[int]) -> list[Any]:
    """The *entries* that *numbers* stand for. Raises ColumnDamaged for another *kind* and a number beyond them."""
    what = "text" if kind is str else "byte string"
    if not all(isinstance(entry, kind) for entry in entries):
        raise ColumnDamaged(f"a dictionary holds something that is no {what}")
    if numbers and max(numbers) >= len(entries):
        raise ColumnDamaged(f"{what} number {max(numbers)} in a dictionary of {len(entries)}")
    return list(map(entries.__getitem__, numbers))


DEFAULTS: dict[ColumnType, int | str | bytes] = {ColumnType.INT: 0, ColumnType.TEXT: "", ColumnType.BYTES: b""}


def default(column: Column) -> int | str | bytes:
    """What a column that an older writer did not know reads as."""
    return DEFAULTS[column.type]
