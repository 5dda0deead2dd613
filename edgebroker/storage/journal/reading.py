"""Records out of the bytes of a frame: what recovery does for each of a million."""

from __future__ import annotations

import zlib

from .format import LENGTH, RECORD, RECORD_BYTES

SEEDS_MAX = 1_000
"""Lengths of records whose share of the checksum is remembered while a frame is read."""


def read_records(
    data: bytes, at: int, end: int, lsn: int, limit: int, salt: int, records: list[bytes]
) -> tuple[int, int]:
    """Add the records from *lsn* to before *limit* to *records* as long as they are intact.

    Returns the LSN and the offset of the first that is not, or *limit* and the end.
    """
    unpack, crc32 = RECORD.unpack_from, zlib.crc32
    seeds: dict[int, int] = {}  # a length is checksummed before its record, and most records have the same
    last = end - RECORD_BYTES
    while lsn < limit and at <= last:
        crc, size = unpack(data, at)
        behind = at + 8 + size
        if behind > end or not size:
            break
        record = data[at + 8 : behind]
        seed = seeds.get(size)
        if seed is None:
            if len(seeds) >= SEEDS_MAX:
                seeds.clear()
            seed = seeds[size] = crc32(LENGTH.pack(size), salt)
        if crc32(record, seed) != crc:
            break
        records.append(record)
        lsn += 1
        at = behind
    return lsn, at
