"""Decodes the records of a frame; recovery does it for millions."""

from __future__ import annotations

import zlib
from struct import unpack_from

from edgebroker.storage.journal.format import LENGTH, RECORD, RECORD_BYTES

SEEDS_MAX = 1_000
"""Record lengths whose part of the checksum is cached while a frame is read."""

REACHES_END, DEAD = 1, 2
"""States of an offset in a frame: a chain of record lengths leads from it to the end of the frame; or it does not, or
not through intact records.
"""


def read_records(
    data: bytes, at: int, end: int, lsn: int, limit: int, salt: int, records: list[bytes]
) -> tuple[int, int]:
    """Append the records from *lsn* up to, but not including, *limit* to *records*, until one is not intact.

    Returns the LSN and the offset of the first record that is not intact, or *limit* and the end.
    """
    crc32 = zlib.crc32
    seeds: dict[int, int] = {}  # a checksum begins with the length, and most records have equal lengths
    octet = data  # compiled, it is a pointer: a slice is one allocation without a slice object
    end = min(end, len(data))
    while lsn < limit:
        next_at = _record_end(data, at, end)
        if not next_at:
            break
        size = next_at - at - RECORD_BYTES
        record = octet[at + RECORD_BYTES : next_at]
        seed = seeds.get(size)
        if seed is None:
            if len(seeds) >= SEEDS_MAX:
                seeds.clear()
            seed = seeds[size] = crc32(LENGTH.pack(size), salt)
        high = octet[at + 3]
        if crc32(record, seed) != (octet[at] | octet[at + 1] << 8 | octet[at + 2] << 16 | high << 24):
            break
        records.append(record)
        lsn += 1
        at = next_at
    return lsn, at


def skip_broken(data: bytes, at: int, end: int, lsn: int, limit: int, salt: int) -> tuple[int, int]:
    """Return the LSN and the offset of the first intact record from *lsn* at *at*, where all lengths are known to be
    right; *limit* and the end if none is.
    """
    unpack, crc32 = RECORD.unpack_from, zlib.crc32
    while lsn < limit:
        crc, size = unpack(data, at)
        next_at = at + 8 + size
        if size and crc32(data[at + 4 : next_at], salt) == crc:
            break
        lsn += 1
        at = next_at
    return lsn, at


def find_row(
    data: bytes, begin: int, stop: int, end: int, count_max: int, salt: int, states: bytearray, bytes_left: int
) -> tuple[int, int, int]:
    """Find the first offset from *begin* to before *stop* where a row of intact records begins that ends at *end*; if
    the row is longer, return its last *count_max* records (at least one).

    Returns the offset, the number of records, and the rest of *bytes_left*, the bytes that may be checksummed; 0
    records if there is no such row, or no bytes are left. *states*: the state of each offset up to *end*, 0 if unknown,
    so that no length is followed twice, and only chains that reach *end* are checksummed.
    """
    crc32 = zlib.crc32
    base = end - len(states)
    for start in _plausible(data, begin, stop, end):
        if states[start - base] == DEAD:
            continue
        at = start
        while at < end and not states[at - base]:
            next_at = _record_end(data, at, end)
            if not next_at:
                break
            at = next_at
        state = REACHES_END if at == end or states[at - base] == REACHES_END else DEAD
        _set_states(data, start, at, end, states, state)
        if state == DEAD:
            continue
        at, count = start, 0
        while at < end:
            next_at = _record_end(data, at, end)
            bytes_left -= next_at - at
            if bytes_left <= 0:
                return start, 0, 0
            if crc32(data[at + 4 : next_at], salt) != LENGTH.unpack_from(data, at)[0]:
                break
            at = next_at
            count += 1
        if at < end:
            _set_states(data, start, at, end, states, DEAD)
            continue
        while count > count_max:
            start = _record_end(data, start, end)
            count -= 1
        return start, count, bytes_left
    return stop, 0, bytes_left


def _record_end(data: bytes, at: int, end: int) -> int:
    """Return the end of the record at *at* by its length; 0 if that is impossible."""
    if at + 8 > end:
        return 0
    a, b, c, d = data[at + 4], data[at + 5], data[at + 6], data[at + 7]
    size = a | b << 8 | c << 16 | d << 24
    return at + 8 + size if 0 < size <= end - at - 8 else 0


def _set_states(data: bytes, at: int, last: int, end: int, states: bytearray, state: int) -> None:
    """Set *state* for all records from *at* to *last* on a chain of lengths."""
    base = end - len(states)
    while at < last:
        states[at - base] = state
        at = _record_end(data, at, end)
    if last < end:
        states[last - base] = state


def _plausible(data: bytes, begin: int, stop: int, end: int) -> list[int]:
    """Return the offsets from *begin* to before *stop* at which a record length stays within *end*."""
    room = end - begin - 8
    found = []
    for first in range(begin, min(begin + 4, stop)):
        lengths = unpack_from(f"<{(stop - first + 3) // 4}I", data, first + 4)
        found += [first + 4 * number for number, size in enumerate(lengths) if 0 < size <= room]
    found.sort()
    return found
