"""The bytes of a segment: two copies of its header, then frames of records. docs/journal.md is the specification.

A frame is what one group commit wrote. It begins at a multiple of 512 bytes, so a write never touches a sector that
holds what was synced before.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence

from edgebroker.dataclasses import dataclass
from edgebroker.errors import JournalDamaged
from edgebroker.limits import JOURNAL_SEGMENT_BYTES_MAX, KIB

MAGIC = b"\x89EBJ\r\n\x1a\n"  # as PNG's: shows a transfer that stripped the eighth bit or turned line ends
VERSION = 2
"""Of the layout, and of what a gateway's records say."""
SECTOR_BYTES = 512
"""The smallest piece that a disk writes whole or not at all."""
PAGE_BYTES = 4_096
"""Segments are a multiple of this: what a file system and a flash card write at once."""

HEADER = struct.Struct("<8sHHI16sQQQQI")  # magic, version, 0, bytes, store, sequence, first, replay, snapshot, salt
HEADER_COPIES = (0, SECTOR_BYTES)
"""A header is written twice, so that one bad sector does not cost a segment."""
FRAMES_AT = 2 * SECTOR_BYTES

FRAME_MARK = b"EBJF"
FRAME = struct.Struct("<4sIQQII")  # mark, flags, sequence, first LSN, count, bytes of records
SEQUENCE_AT = 8
CRC = struct.Struct("<I")
FRAME_BYTES = FRAME.size + CRC.size
CLEAN = 1
"""The flag of an empty frame that ends a run: everything before it was synced."""

RECORD = struct.Struct("<II")  # CRC of what follows, bytes of the record
LENGTH = struct.Struct("<I")
RECORD_BYTES = RECORD.size
STORE_BYTES = 16
SEARCH_BYTES = 256 * KIB
"""How far is looked ahead for a frame at once: mostly it is in the next sector."""
NUMBER_END = 2**63
"""Sequences and LSNs are below it, so that whatever is added to them fits into its field."""


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The first sector of a segment."""

    store: bytes
    """16 random bytes that name the journal."""
    sequence: int
    """Counts the segments of a journal from 1, over all time."""
    first_lsn: int
    bytes: int
    """The size of the segment."""
    replay_from: int = 1
    """Recovery begins with this record: the first of the last complete snapshot."""
    snapshot_bytes: int = 0
    """What that snapshot took, so that the next run knows what a new one costs."""

    @property
    def salt(self) -> int:
        """What every CRC of this segment begins with. No two segments of 2^32 have the same one.

        Equal bytes under another salt always have another CRC, so what an earlier life of a recycled file left
        behind is never taken for a record of this one.
        """
        return salt_of(self.store, self.sequence)


@dataclass(frozen=True, slots=True)
class FrameHead:
    """What is known of a frame before its records are read."""

    flags: int
    sequence: int
    first_lsn: int
    count: int
    bytes: int


def salt_of(store: bytes, sequence: int) -> int:
    """The salt of segment *sequence* of *store*."""
    return zlib.crc32(store) ^ (sequence & 0xFFFFFFFF)


def encode_header(header: SegmentHeader) -> bytes:
    """The first two sectors of a segment."""
    head = HEADER.pack(
        MAGIC,
        VERSION,
        0,
        header.bytes,
        header.store,
        header.sequence,
        header.first_lsn,
        header.replay_from,
        header.snapshot_bytes,
        header.salt,
    )
    return (head + CRC.pack(zlib.crc32(head))).ljust(SECTOR_BYTES, b"\0") * len(HEADER_COPIES)


def decode_header(data: bytes) -> SegmentHeader | None:
    """The header in the first two sectors: the intact copy, the later one of two; None if both are bad.

    A crash may leave one copy of a recycled segment's former life: the higher sequence is the truth. Raises
    JournalDamaged for another version.
    """
    found = [header for at in HEADER_COPIES if (header := _decode_copy(data, at)) is not None]
    return max(found, key=lambda header: header.sequence, default=None)


def bad_header_copies(data: bytes, header: SegmentHeader) -> list[int]:
    """The offsets of copies that do not say what *header* says."""
    return [at for at in HEADER_COPIES if _decode_copy(data, at) != header]


def _decode_copy(data: bytes, at: int) -> SegmentHeader | None:
    if len(data) < at + HEADER.size + CRC.size:
        return None
    magic, version, _, size, store, sequence, first, replay, snapshot, _ = HEADER.unpack_from(data, at)
    end = at + HEADER.size
    if magic != MAGIC or CRC.unpack_from(data, end)[0] != zlib.crc32(data[at:end]):
        return None
    if version != VERSION:
        raise JournalDamaged(
            f"a journal of version {version}; this program reads version {VERSION}: use the program that wrote it, "
            "or move the folder away and begin anew"
        )
    if not FRAMES_AT < size <= JOURNAL_SEGMENT_BYTES_MAX or max(sequence, first, replay) >= NUMBER_END:
        return None
    return SegmentHeader(store, sequence, first, size, replay, snapshot)


def encode_frame(records: Sequence[bytes], first_lsn: int, sequence: int, salt: int, flags: int = 0) -> bytes:
    """The frame of *records*, whose LSNs count up from *first_lsn*, filled up to whole sectors."""
    crc32, length_of, head_of = zlib.crc32, LENGTH.pack, RECORD.pack
    parts = [b""]
    add = parts.append
    for record in records:
        size = len(record)
        add(head_of(crc32(record, crc32(length_of(size), salt)), size))
        add(record)
    size = sum(map(len, parts))
    head = FRAME.pack(FRAME_MARK, flags, sequence, first_lsn, len(records), size)
    parts[0] = head + CRC.pack(crc32(head, salt))
    add(bytes(-(FRAME_BYTES + size) % SECTOR_BYTES))
    return b"".join(parts)


def decode_frame(data: bytes, at: int, salt: int, sequence: int) -> FrameHead | None:
    """The head of the frame at *at*; None unless it is intact, of this life of the segment and fits into *data*."""
    end = at + FRAME.size
    if end + CRC.size > len(data):
        return None
    mark, flags, found, first, count, size = FRAME.unpack_from(data, at)
    if mark != FRAME_MARK or found != sequence or CRC.unpack_from(data, end)[0] != zlib.crc32(data[at:end], salt):
        return None
    if at + FRAME_BYTES + size > len(data) or first >= NUMBER_END:
        return None
    return FrameHead(flags, found, first, count, size)


def frame_bytes(records: int, record_bytes: int) -> int:
    """The room a frame of *records* with *record_bytes* in all takes."""
    size = FRAME_BYTES + records * RECORD_BYTES + record_bytes
    return size + -size % SECTOR_BYTES


def fitting(records: Sequence[bytes], limit: int) -> tuple[int, int]:
    """How many of *records* go into a frame of *limit* bytes, and what they take there; but at least one of them."""
    count, taken = 0, 0
    for record in records:
        more = len(record) + RECORD_BYTES
        if count and frame_bytes(0, taken + more) > limit:
            break
        count += 1
        taken += more
    return count, taken


def after_frame(at: int, head: FrameHead) -> int:
    """Where the frame behind the one at *at* begins."""
    end = at + FRAME_BYTES + head.bytes
    return end + -end % SECTOR_BYTES


def find_frame(data: bytes, at: int, salt: int, sequence: int, first_lsn: int = 0) -> tuple[int, FrameHead] | None:
    """Offset and head of the next intact frame at or behind *at* whose records have *first_lsn* or more.

    *at* is a multiple of the sector.
    """
    said = sequence.to_bytes(8, "little")  # most that is found is of an earlier life of the file
    for spot in marks(data, at):
        head = decode_frame(data, spot, salt, sequence) if data.startswith(said, spot + SEQUENCE_AT) else None
        if head is not None and head.first_lsn >= first_lsn:
            return spot, head
    return None


def marks(data: bytes, at: int) -> Iterator[int]:
    """The sectors at or behind *at*, a multiple of the sector, that begin like a frame."""
    end = len(data) - FRAME_BYTES + 1
    for begin in range(at, end, SEARCH_BYTES):
        firsts = data[begin : min(begin + SEARCH_BYTES, end) : SECTOR_BYTES]  # of each sector the first byte
        index = firsts.find(FRAME_MARK[0])
        while index >= 0:
            spot = begin + index * SECTOR_BYTES
            if data.startswith(FRAME_MARK, spot):
                yield spot
            index = firsts.find(FRAME_MARK[0], index + 1)
