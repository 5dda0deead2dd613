"""Records out of the bytes of a frame: what recovery does for each of a million."""

from __future__ import annotations

import zlib
from struct import unpack_from

from edgebroker.storage.journal.format import LENGTH, RECORD, RECORD_BYTES

SEEDS_MAX = 1_000
"""Lengths of records whose share of the checksum is remembered while a frame is read."""

LEADS, DEAD = 1, 2
"""Of a place in a frame: lengths lead from here to its end; or they do not, or not by intact records."""


def read_records(
    data: bytes, at: int, end: int, lsn: int, limit: int, salt: int, records: list[bytes]
) -> tuple[int, int]:
    """Add the records from *lsn* to before *limit* to *records* as long as they are intact.

    Returns the LSN and the offset of the first that is not, or *limit* and the end.
    """
    crc32 = zlib.crc32
    seeds: dict[int, int] = {}  # a length is checksummed before its record, and most records have the same
    octet = data  # compiled it is a pointer: a slice is one allocation, and no slice object
    end = min(end, len(data))
    while lsn < limit:
        behind = _behind(data, at, end)
        if not behind:
            break
        size = behind - at - RECORD_BYTES
        record = octet[at + RECORD_BYTES : behind]
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
        at = behind
    return lsn, at


def skip_broken(data: bytes, at: int, end: int, lsn: int, limit: int, salt: int) -> tuple[int, int]:
    """The LSN and the offset of the first intact record from *lsn* at *at*, where all lengths are known to be right;
    *limit* and the end if none is.
    """
    unpack, crc32 = RECORD.unpack_from, zlib.crc32
    while lsn < limit:
        crc, size = unpack(data, at)
        behind = at + 8 + size
        if size and crc32(data[at + 4 : behind], salt) == crc:
            break
        lsn += 1
        at = behind
    return lsn, at


def find_row(
    data: bytes, begin: int, stop: int, end: int, most: int, salt: int, told: bytearray, bytes_left: int
) -> tuple[int, int, int]:
    """The first place from *begin* to before *stop* where a row of intact records begins that ends at *end*; of such a
    row the last *most*, which are one or more.

    Returns the place, how many records there are, and what is left of *bytes_left*, which may be checksummed; 0 records
    if there is no such row, or nothing left. *told*: for each place up to *end*, 0 or what is known of it: no length is
    followed twice, and none is checksummed but where lengths lead to *end*.
    """
    crc32 = zlib.crc32
    base = end - len(told)
    for spot in _plausible(data, begin, stop, end):
        if told[spot - base] == DEAD:
            continue
        at = spot
        while at < end and not told[at - base]:
            behind = _behind(data, at, end)
            if not behind:
                break
            at = behind
        says = LEADS if at == end or told[at - base] == LEADS else DEAD
        _tell(data, spot, at, end, told, says)
        if says == DEAD:
            continue
        at, count = spot, 0
        while at < end:
            behind = _behind(data, at, end)
            bytes_left -= behind - at
            if bytes_left <= 0:
                return spot, 0, 0
            if crc32(data[at + 4 : behind], salt) != LENGTH.unpack_from(data, at)[0]:
                break
            at = behind
            count += 1
        if at < end:
            _tell(data, spot, at, end, told, DEAD)
            continue
        while count > most:
            spot = _behind(data, spot, end)
            count -= 1
        return spot, count, bytes_left
    return stop, 0, bytes_left


def _behind(data: bytes, at: int, end: int) -> int:
    """Where the record at *at* ends by its length; 0 if that cannot be."""
    if at + 8 > end:
        return 0
    a, b, c, d = data[at + 4], data[at + 5], data[at + 6], data[at + 7]
    size = a | b << 8 | c << 16 | d << 24
    return at + 8 + size if 0 < size <= end - at - 8 else 0


def _tell(data: bytes, at: int, last: int, end: int, told: bytearray, says: int) -> None:
    """Note *says* of all records from *at* to *last*, which lengths lead to."""
    base = end - len(told)
    while at < last:
        told[at - base] = says
        at = _behind(data, at, end)
    if last < end:
        told[last - base] = says


def _plausible(data: bytes, begin: int, stop: int, end: int) -> list[int]:
    """The places from *begin* to before *stop* where the length of a record leads no further than to *end*."""
    room = end - begin - 8
    found = []
    for first in range(begin, min(begin + 4, stop)):
        lengths = unpack_from(f"<{(stop - first + 3) // 4}I", data, first + 4)
        found += [first + 4 * number for number, size in enumerate(lengths) if 0 < size <= room]
    found.sort()
    return found
