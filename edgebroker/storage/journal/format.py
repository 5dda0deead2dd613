"""The bytes of a segment: two copies of its header, then frames of records. docs/journal.md is the specification.

A frame is the output of one group commit. It begins at a multiple of 512 bytes, so a write never touches a sector with
data that was synced before.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence

from edgebroker.dataclasses import dataclass
from edgebroker.errors import JournalDamaged
from edgebroker.limits import JOURNAL_SEGMENT_BYTES_MAX, KIB

MAGIC = b"\x89EBJ\r\n\x1a\n"  # like PNG's: detects a transfer that stripped the eighth bit or changed line ends
VERSION = 2
"""The version of the layout and of the records of a gateway."""
SECTOR_BYTES = 512
"""The smallest unit that a disk writes entirely or not at all."""
PAGE_BYTES = 4_096
"""The size of a segment is a multiple of this: the unit of file systems and flash cards."""

HEADER = struct.Struct("<8sHHI16sQQQQI")  # magic, version, 0, bytes, store, sequence, first, replay, snapshot, salt
HEADER_COPIES = (0, SECTOR_BYTES)
"""Offsets of the two copies of a header, so that one bad sector does not destroy a segment."""
FRAMES_AT = 2 * SECTOR_BYTES

FRAME_MARK = b"EBJF"
FRAME = struct.Struct("<4sIQQII")  # mark, flags, sequence, first LSN, count, bytes of records
SEQUENCE_AT = 8
CRC = struct.Struct("<I")
FRAME_BYTES = FRAME.size + CRC.size
CLEAN = 1
"""The flag of an empty frame that ends a run: everything before it was synced."""

CONTROL_FILE = "control"
"""The file beside the segments that names the newest one."""
CONTROL = struct.Struct("<Q32s")  # behind a copy of the segment's header: last LSN, name of the file

RECORD = struct.Struct("<II")  # CRC of what follows, bytes of the record
LENGTH = struct.Struct("<I")
RECORD_BYTES = RECORD.size
STORE_BYTES = 16
SEARCH_BYTES = 256 * KIB
"""Bytes searched for a frame at once; usually it is in the next sector."""
NUMBER_END = 2**63
"""Sequences and LSNs are below it, so that sums with them fit into their fields."""


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The header of a segment."""

    store: bytes
    """16 random bytes that identify the journal."""
    sequence: int
    """Counts the segments of a journal from 1, over all runs."""
    first_lsn: int
    bytes: int
    """The size of the segment."""
    replay_from: int = 1
    """The first record that recovery needs: the first of the last complete snapshot."""
    snapshot_bytes: int = 0
    """The size of that snapshot; the next run estimates the cost of a new one by it."""

    @property
    def salt(self) -> int:
        """The initial value of every CRC of this segment. No two of 2^32 successive segments have the same one.

        Equal bytes with another salt always have another CRC, so a remnant of an earlier use of a recycled file is
        never taken for a record of this one.
        """
        return salt_of(self.store, self.sequence)


@dataclass(frozen=True, slots=True)
class FrameHead:
    """The head of a frame, decoded before its records."""

    flags: int
    sequence: int
    first_lsn: int
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """The content of the control file: the newest segment, which was synced before this was written."""

    header: SegmentHeader
    """A copy of the segment's header."""
    name: str
    """The name of its file."""
    last_lsn: int
    """All records up to this one were synced then: those of its first frame, or at a clean end all."""


def salt_of(store: bytes, sequence: int) -> int:
    """Return the salt of segment *sequence* of *store*."""
    return zlib.crc32(store) ^ (sequence & 0xFFFFFFFF)


def encode_header(header: SegmentHeader) -> bytes:
    """Return the first two sectors of a segment."""
    return _encode_copy(header).ljust(SECTOR_BYTES, b"\0") * len(HEADER_COPIES)


def _encode_copy(header: SegmentHeader) -> bytes:
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
    return head + CRC.pack(zlib.crc32(head))


def decode_header(data: bytes) -> SegmentHeader | None:
    """Return the header in the first two sectors: the intact copy, the later one of two; None if both are damaged.

    After a crash one copy may be left from an earlier use of a recycled file: the higher sequence is valid. Raises
    JournalDamaged for another version.
    """
    copies = [header for at in HEADER_COPIES if (header := _decode_copy(data, at)) is not None]
    return max(copies, key=lambda header: header.sequence, default=None)


def bad_header_copies(data: bytes, header: SegmentHeader) -> list[int]:
    """Return the offsets of copies that differ from *header*."""
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


def encode_control(record: ControlRecord) -> bytes:
    """Return the two sectors of the control file, which are equal."""
    data = _encode_copy(record.header) + CONTROL.pack(record.last_lsn, record.name.encode())
    return (data + CRC.pack(zlib.crc32(data))).ljust(SECTOR_BYTES, b"\0") * len(HEADER_COPIES)


def decode_control(data: bytes) -> ControlRecord | None:
    """Return the record of a control file, the later one if a crash left two that differ; None if none is intact.

    Raises JournalDamaged for another version.
    """
    records = []
    for at in HEADER_COPIES:
        header = _decode_copy(data, at)
        begin = at + HEADER.size + CRC.size
        end = begin + CONTROL.size
        if header is None or len(data) < end + CRC.size or CRC.unpack_from(data, end)[0] != zlib.crc32(data[at:end]):
            continue
        last_lsn, name = CONTROL.unpack_from(data, begin)
        if last_lsn < NUMBER_END:
            records.append(ControlRecord(header, name.rstrip(b"\0").decode(errors="replace"), last_lsn))
    return max(records, key=lambda record: (record.header.sequence, record.last_lsn), default=None)


def encode_frame(records: Sequence[bytes], first_lsn: int, sequence: int, salt: int, flags: int = 0) -> bytes:
    """Return the frame of *records*, whose LSNs count up from *first_lsn*, padded to whole sectors."""
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
    """Return the head of the frame at *at*; None unless it is intact, belongs to segment *sequence* and fits into
    *data*.
    """
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
    """Return the size of a frame with *records* records of *record_bytes* bytes in all."""
    size = FRAME_BYTES + records * RECORD_BYTES + record_bytes
    return size + -size % SECTOR_BYTES


def fitting(records: Sequence[bytes], limit: int) -> tuple[int, int]:
    """Return how many of *records* fit into a frame of *limit* bytes, at least one, and their size there."""
    count, taken = 0, 0
    for record in records:
        size = len(record) + RECORD_BYTES
        if count and frame_bytes(0, taken + size) > limit:
            break
        count += 1
        taken += size
    return count, taken


def after_frame(at: int, head: FrameHead) -> int:
    """Return the offset behind the frame at *at*."""
    end = at + FRAME_BYTES + head.bytes
    return end + -end % SECTOR_BYTES


def find_frame(data: bytes, at: int, salt: int, sequence: int, first_lsn: int = 0) -> tuple[int, FrameHead] | None:
    """Return offset and head of the next intact frame at or behind *at* whose first LSN is at least *first_lsn*.

    *at* is a multiple of the sector size.
    """
    encoded = sequence.to_bytes(8, "little")  # most marks are left from an earlier use of the file
    for offset in marks(data, at):
        head = decode_frame(data, offset, salt, sequence) if data.startswith(encoded, offset + SEQUENCE_AT) else None
        if head is not None and head.first_lsn >= first_lsn:
            return offset, head
    return None


def marks(data: bytes, at: int) -> Iterator[int]:
    """Iterate over the sectors at or behind *at*, a multiple of the sector size, that begin like a frame."""
    end = len(data) - FRAME_BYTES + 1
    for begin in range(at, end, SEARCH_BYTES):
        firsts = data[begin : min(begin + SEARCH_BYTES, end) : SECTOR_BYTES]  # the first byte of each sector
        index = firsts.find(FRAME_MARK[0])
        while index >= 0:
            offset = begin + index * SECTOR_BYTES
            if data.startswith(FRAME_MARK, offset):
                yield offset
            index = firsts.find(FRAME_MARK[0], index + 1)
