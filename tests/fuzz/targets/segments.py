"""The segments of a journal, as a disk gives them back."""

from __future__ import annotations

import struct
import zlib
from random import Random

from edgebroker.errors import JournalDamaged
from edgebroker.storage.journal import format as ebj
from edgebroker.storage.journal import record_reader
from edgebroker.storage.journal.journal import Journal
from edgebroker.storage.journal.options import JournalOptions
from edgebroker.storage.journal.recovery import DAMAGE_MAX, recover
from edgelab.simworld.disk import Disk, DiskFile
from tests.fuzz.frame.target import BOMB_BYTES, Target, filled

IS_COMPILED = not str(record_reader.__file__).endswith(".py")
STORE = b"fuzz" * 4
NEXT = b"\n-- next file --\n"
SEGMENT_BYTES = 8_192


def read_journal(data: bytes) -> None:
    """Any files are a journal, and one can go on from it."""
    disk = Disk(Random(0))
    parts = data.split(NEXT)
    names = [f"segment-{number:04d}.ebj" for number in range(len(parts))]
    if _is_control(parts):
        names[-1] = ebj.CONTROL_FILE
    disk.files = {name: DiskFile(bytearray(part), bytearray(part)) for name, part in zip(names, parts, strict=True)}
    given: list[int] = []
    found = recover(disk, lambda lsn, record: given.append(lsn))
    assert given == sorted(set(given))
    if found is not None:
        assert found.records == len(given)
        assert not given or found.replay_from <= given[0] <= given[-1] <= found.lsn
        assert len(found.damage) <= DAMAGE_MAX
        journal = Journal(found.store or STORE, JournalOptions(segment_bytes=SEGMENT_BYTES), found)
        journal.append(b"more", 0)
        while (work := journal.next_work(0)) is not None:
            journal.done(work, 0)


def recover_alone(data: bytes) -> None:
    """The reading alone, of one file."""
    disk = Disk(Random(0))
    disk.files = {"segment-0001.ebj": DiskFile(bytearray(data), bytearray(data))}
    recover(disk, lambda lsn, record: None)


def segment(sequence: int, first: int, *frames: list[bytes], replay_from: int = 1, size: int = SEGMENT_BYTES) -> bytes:
    """A good segment."""
    data = ebj.encode_header(ebj.SegmentHeader(STORE, sequence, first, size, replay_from))
    for records in frames:
        data += ebj.encode_frame(records, first, sequence, ebj.salt_of(STORE, sequence))
        first += len(records)
    return data


def control(sequence: int, first: int, last: int, replay_from: int = 1) -> bytes:
    """A good control file."""
    header = ebj.SegmentHeader(STORE, sequence, first, SEGMENT_BYTES, replay_from)
    return ebj.encode_control(ebj.ControlRecord(header, "segment-0000.ebj", last))


def sealed_journal(data: bytes) -> bytes:
    """*data* with the checksums of its headers, frames and control file as they should be."""
    parts = data.split(NEXT)
    sealed = [_sealed_segment(bytearray(part)) for part in parts]
    if _is_control(parts):
        sealed[-1] = _sealed_control(bytearray(sealed[-1]))
    return NEXT.join(sealed)


def _is_control(parts: list[bytes]) -> bool:
    """Whether the last of several files is the control file: no segment is so short."""
    return len(parts) > 1 and len(parts[-1]) <= ebj.FRAMES_AT


def _sealed_control(data: bytearray) -> bytes:
    size = ebj.HEADER.size + ebj.CRC.size + ebj.CONTROL.size
    for at in ebj.HEADER_COPIES:
        if len(data) >= at + size + ebj.CRC.size:
            data[at + size : at + size + 4] = ebj.CRC.pack(zlib.crc32(data[at : at + size]))
    return bytes(data)


def _sealed_segment(data: bytearray) -> bytes:
    end = ebj.HEADER.size
    for at in (0, ebj.SECTOR_BYTES):
        if data[at : at + len(ebj.MAGIC)] == ebj.MAGIC and len(data) >= at + end + 4:
            data[at + end : at + end + 4] = ebj.CRC.pack(zlib.crc32(data[at : at + end]))
    if len(data) < ebj.FRAMES_AT:
        return bytes(data)
    header = ebj.HEADER.unpack_from(data)
    salt = ebj.salt_of(header[4], header[5])
    for at in range(ebj.FRAMES_AT, len(data) - ebj.FRAME_BYTES + 1, ebj.SECTOR_BYTES):
        if data[at : at + 4] == ebj.FRAME_MARK:
            end = at + ebj.FRAME.size
            data[end : end + 4] = ebj.CRC.pack(zlib.crc32(data[at:end], salt))
            size = ebj.FRAME.unpack_from(data, at)[5]
            spot, stop = end + 4, min(end + 4 + size, len(data))
            while spot + ebj.RECORD_BYTES <= stop:
                behind = spot + ebj.RECORD_BYTES + ebj.RECORD.unpack_from(data, spot)[1]
                if behind > stop or behind == spot + ebj.RECORD_BYTES:
                    break
                data[spot : spot + 4] = ebj.CRC.pack(zlib.crc32(data[spot + 4 : behind], salt))
                spot = behind
    return bytes(data)


JOURNALS = (
    segment(1, 1, [b"a", b"bb"], [b"ccc" * 100]) + bytes(600),
    segment(1, 1, [b"a"] * 9, [b"b"] * 3) + NEXT + segment(2, 13, [b"x" * 700], [b"y"]),
    segment(3, 13, [b"x"], [b"snapshot"], replay_from=14) + NEXT + segment(4, 15, [b"z"], replay_from=14),
    NEXT.join((segment(1, 1, [b"a"]), segment(2, 2, [b"b"])[:1_500], segment(3, 3), bytes(2_000))),
    NEXT.join((segment(1, 1, [b"a"]), segment(2, 2, [b"b"]), control(2, 2, 2))),
    NEXT.join((bytes(SEGMENT_BYTES), segment(2, 2, [b"b"]), control(3, 3, 7, replay_from=2))),
)


def whole_frame(body: bytes, count: int) -> bytes:
    """A segment of 64 KiB whose only frame has an intact head and anything behind it."""
    salt = ebj.salt_of(STORE, 1)
    head = ebj.FRAME.pack(ebj.FRAME_MARK, 0, 1, 1, count, len(body))
    frame = head + ebj.CRC.pack(zlib.crc32(head, salt)) + body
    data = ebj.encode_header(ebj.SegmentHeader(STORE, 1, 1, BOMB_BYTES)) + frame + bytes(-len(frame) % ebj.SECTOR_BYTES)
    return data + ebj.encode_frame([b"behind"], 60_001, 1, salt)


ROOM = BOMB_BYTES - 3 * 1_024
JOURNAL_BOMBS = {
    "lengths that lead from one to the next": lambda: whole_frame(
        filled(struct.pack("<IIB", 0, 1, 7), size=ROOM), 60_000
    ),
    "lengths that are right, of records that are not": lambda: whole_frame(
        filled(struct.pack("<IIB", 0, 1, 7), size=ROOM), ROOM // 9
    ),
    "lengths of half of what is there": lambda: whole_frame(filled(struct.pack("<I", ROOM // 2), size=ROOM), 60_000),
    "lengths of a little": lambda: whole_frame(filled(struct.pack("<I", 200), size=ROOM), 60_000),
    "noise": lambda: whole_frame(Random(1).randbytes(ROOM), 60_000),
    "marks at every sector": lambda: whole_frame(
        filled((ebj.FRAME_MARK + bytes(4) + struct.pack("<Q", 1)).ljust(ebj.SECTOR_BYTES, b"\1"), size=ROOM), 60_000
    ),
    "records of one byte": lambda: segment(1, 1, [b"x"] * 6_900, size=BOMB_BYTES),
    "frames of one record": lambda: segment(1, 1, *([[b"x"]] * 120), size=BOMB_BYTES),
    "a header, and nothing": lambda: segment(1, 1, size=BOMB_BYTES).ljust(BOMB_BYTES, b"\0"),
    "noise behind a header": lambda: segment(1, 1, size=BOMB_BYTES) + Random(2).randbytes(BOMB_BYTES - 1_024),
}


TARGETS = (
    Target(
        "journal",
        read_journal,
        JOURNALS,
        (JournalDamaged,),
        (NEXT, ebj.FRAME_MARK, ebj.MAGIC, bytes(512), JOURNALS[0][:1_024], JOURNALS[1][1_024:1_536]),
        mend=sealed_journal,
        bombs=JOURNAL_BOMBS,
        plain=recover_alone,
        bound_ms=10 if IS_COMPILED else 60,  # all searches together are bounded by the salvage
    ),
)
