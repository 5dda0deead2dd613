"""Recovery takes any bytes for a journal: it never raises or hangs, holds little memory, and tells what is wrong.

EDGEBROKER_FUZZ_INPUTS=100000 .venv/bin/pytest tests/fuzz/test_fuzz_journal.py      as many inputs as wanted
"""

from __future__ import annotations

import os
import struct
import tracemalloc
import zlib
from random import Random

import pytest

from edgebroker.errors import JournalDamaged
from edgebroker.storage.journal import record_reader, recovery
from edgebroker.storage.journal.format import (
    CRC,
    FRAME,
    FRAME_BYTES,
    FRAME_MARK,
    FRAMES_AT,
    HEADER,
    MAGIC,
    SECTOR_BYTES,
    SegmentHeader,
    encode_frame,
    encode_header,
    salt_of,
)
from edgebroker.storage.journal.journal import Journal
from edgebroker.storage.journal.options import JournalOptions
from edgebroker.storage.journal.recovery import DAMAGE_MAX, recover
from edgebroker.storage.journal.recovery_report import RecoveryReport
from edgelab.simworld.disk import Disk, DiskFile

CALM = 3
"""So often memory is measured again that was too much: what other threads of the test's process take is seen too."""
INPUTS = int(os.environ.get("EDGEBROKER_FUZZ_INPUTS", "3000"))
STORE = b"fuzz" * 4
NUMBERS = (0, 1, 2, 7, 255, 512, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)


def recovered(files: dict[str, bytes]) -> tuple[RecoveryReport | None, list[int]]:
    """What recovery says of *files*; None too for another version. What it says makes sense."""
    disk = Disk(Random(0))
    disk.files = {name: DiskFile(bytearray(data), bytearray(data)) for name, data in files.items()}
    given: list[int] = []
    try:
        found = recover(disk, lambda lsn, record: given.append(lsn))
    except JournalDamaged:
        return None, given
    assert given == sorted(set(given))
    if found is not None:
        assert found.records == len(given)
        assert not given or found.replay_from <= given[0] <= given[-1] <= found.lsn
        assert len(found.damage) <= DAMAGE_MAX
        journal = Journal(found.store or STORE, JournalOptions(segment_bytes=8_192), found)  # and one can go on from it
        journal.append(b"more", 0)
        while (work := journal.next_work(0)) is not None:
            journal.done(work, 0)
    return found, given


def random_header(chance: Random) -> bytes:
    """A header whose checksum is right, whatever it says."""
    sequence = chance.choice(NUMBERS) if chance.random() < 0.3 else chance.randrange(1, 5)
    head = HEADER.pack(
        MAGIC,
        chance.choice((1, 1, 1, 1, 1, 1, 1, 0, 2)),
        0,
        chance.choice((8_192, 8_192, 8_192, 0, 1_024, 2**32 - 1)),
        chance.choice((STORE, STORE, STORE, bytes(16))),
        sequence,
        chance.choice(NUMBERS),
        chance.choice(NUMBERS),
        chance.choice(NUMBERS),
        salt_of(STORE, sequence),
    )
    copy = (head + CRC.pack(zlib.crc32(head))).ljust(SECTOR_BYTES, b"\0")
    return copy * 2 if chance.random() < 0.7 else copy + bytes(SECTOR_BYTES)


def random_frame(chance: Random, sequence: int) -> bytes:
    """A frame whose head is intact, whatever it says and holds."""
    salt = salt_of(STORE, sequence)
    records = [chance.randbytes(chance.choice((1, 5, 100, 600))) for _ in range(chance.randrange(6))]
    frame = bytearray(encode_frame(records, chance.choice((*NUMBERS[:6], 3, 4, 5)), sequence, salt))
    if chance.random() < 0.4:
        mark, flags, number, lsn, count, size = FRAME.unpack_from(frame)
        count, size = chance.choice((count, *NUMBERS[:8])), chance.choice((size, *NUMBERS[:8]))
        head = FRAME.pack(mark, chance.choice((flags, 1, 2**32 - 1)), number, lsn, count, size)
        frame[:FRAME_BYTES] = head + CRC.pack(zlib.crc32(head, salt))
    for _ in range(chance.choice((0, 0, 1, 3))):
        frame[chance.randrange(len(frame))] ^= 1 << chance.randrange(8)
    return bytes(frame)


def random_file(chance: Random) -> bytes:
    """Something between noise and a good segment."""
    kind = chance.randrange(4)
    if kind == 0:
        return chance.randbytes(chance.randrange(5_000))
    sequence = chance.randrange(1, 5)
    head = (
        random_header(chance)
        if kind == 1
        else encode_header(SegmentHeader(STORE, sequence, chance.randrange(9), 8_192))
    )
    body = b"".join(random_frame(chance, sequence) for _ in range(chance.randrange(5)))
    data = bytearray((head + body).ljust(8_192, b"\0"))
    for _ in range(chance.choice((0, 0, 2, 10))):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data[: chance.randrange(len(data))] if chance.random() < 0.2 else data)


def test_no_bytes_make_recovery_raise(chance: Random) -> None:
    found = damaged = records = 0
    for _ in range(INPUTS):
        files = {f"segment-{number:04d}.ebj": random_file(chance) for number in range(chance.randrange(1, 5))}
        report, given = recovered(files)
        found += report is not None
        damaged += report is not None and bool(report.damage)
        records += len(given)
    assert min(found, damaged, records) > INPUTS / 10  # most of it gets past the first check


@pytest.mark.parametrize("size", [0, 1, 511, 512, 1_023, 1_024, 1_025, 1_060])
def test_files_cut_anywhere(size: int) -> None:
    data = encode_header(SegmentHeader(STORE, 1, 1, 8_192)) + encode_frame([b"a", b"b"], 1, 1, salt_of(STORE, 1))
    recovered({"segment-0001.ebj": data[:size]})
    recovered({"segment-0001.ebj": data[:size], "segment-0002.ebj": encode_header(SegmentHeader(STORE, 2, 9, 8_192))})


def frame_of(body: bytes, count: int, behind: bytes = b"") -> bytes:
    """A segment with one frame around *body*, whose head is intact, and something behind it."""
    salt = salt_of(STORE, 1)
    head = FRAME.pack(FRAME_MARK, 0, 1, 1, count, len(body))
    frame = head + CRC.pack(zlib.crc32(head, salt)) + body
    frame += bytes(-len(frame) % SECTOR_BYTES)
    return encode_header(SegmentHeader(STORE, 1, 1, 1 << 20)) + frame + behind


BIG = 1 << 18
BOMBS = {
    "lengths that lead from one to the next": struct.pack("<IIB", 0, 1, 7) * (BIG // 9),
    "lengths of half of what is there, everywhere": struct.pack("<I", BIG // 2) * (BIG // 4),
    "lengths of a little, everywhere": struct.pack("<I", 200) * (BIG // 4),
    "noise": Random(1).randbytes(BIG),
    "marks at every sector": (FRAME_MARK + bytes(4) + struct.pack("<Q", 1)).ljust(SECTOR_BYTES, b"\1") * (BIG // 512),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bytes_made_to_cost_much_cost_little(bomb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = 0

    def counting(data: bytes, value: int = 0) -> int:
        nonlocal checked
        checked += len(data)
        return zlib.crc32(data, value)

    monkeypatch.setattr(record_reader, "zlib", type("Counting", (), {"crc32": staticmethod(counting)}))
    proof = encode_frame([b"behind"], 60_001, 1, salt_of(STORE, 1))
    data = frame_of(BOMBS[bomb], 60_000, proof)
    assert data[FRAMES_AT : FRAMES_AT + 4] == FRAME_MARK
    for _ in range(CALM):
        checked = 0
        tracemalloc.start()
        report, _given = recovered({"segment-0001.ebj": data})
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert report is not None
        assert report.damage
        assert report.lsn == 60_001
        assert checked <= recovery.SEARCH_BYTES_MAX + 4 * len(data)
        if peak < 8 * len(data):
            break
    assert peak < 8 * len(data)
