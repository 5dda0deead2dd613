"""docs/journal.md says the bytes: its vectors are what is written, and a reader made from the page alone reads it."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from random import Random

import pytest

from edgebroker.errors import JournalDamaged
from edgebroker.storage.journal.format import (
    CLEAN,
    CRC,
    HEADER,
    ControlRecord,
    SegmentHeader,
    bad_header_copies,
    decode_control,
    decode_header,
    encode_control,
    encode_frame,
    encode_header,
)
from edgebroker.storage.journal.journal import Journal
from edgebroker.storage.journal.options import JournalOptions
from edgelab.simworld.disk import Disk

HEADER_OF_THE_PAGE = SegmentHeader(bytes(range(16)), 7, 1_000, 8 << 20, 990, 4_321)
SMALL = JournalOptions(segment_bytes=8_192, batch_bytes=3_000, snapshot_min_bytes=16_384)


@pytest.fixture(scope="module")
def vectors(root: Path) -> dict[str, bytes]:
    """The hex blocks of docs/journal.md by name."""
    text = (root / "docs" / "journal.md").read_text(encoding="utf-8")
    return {name: bytes.fromhex(block) for name, block in re.findall(r"^```text (\w+)\n([0-9a-f \n]+)```$", text, re.M)}


def test_the_header_is_the_pages(vectors: dict[str, bytes]) -> None:
    encoded = encode_header(HEADER_OF_THE_PAGE)
    sector = vectors["header"].ljust(512, b"\0")
    assert encoded == sector + sector
    assert decode_header(encoded) == HEADER_OF_THE_PAGE


def test_the_control_record_is_the_pages(vectors: dict[str, bytes]) -> None:
    record = ControlRecord(HEADER_OF_THE_PAGE, "segment-0003.ebj", 1_001)
    sector = (vectors["header"][:64] + vectors["control"]).ljust(512, b"\0")
    assert encode_control(record) == sector + sector
    assert decode_control(sector) == record


def test_the_frames_are_the_pages(vectors: dict[str, bytes]) -> None:
    salt = HEADER_OF_THE_PAGE.salt
    assert encode_frame([b"\x01a", b"\x02bc"], 1_000, 7, salt) == vectors["frame"].ljust(512, b"\0")
    assert encode_frame([], 1_002, 7, salt, CLEAN) == vectors["end"].ljust(512, b"\0")


@pytest.mark.parametrize("copy", [0, 512])
def test_one_copy_of_the_header_is_enough(copy: int) -> None:
    data = bytearray(encode_header(HEADER_OF_THE_PAGE))
    data[copy + 40] ^= 1
    assert decode_header(bytes(data)) == HEADER_OF_THE_PAGE
    assert bad_header_copies(bytes(data), HEADER_OF_THE_PAGE) == [copy]


@pytest.mark.parametrize("newer_first", [True, False])
def test_of_two_copies_the_later_life_counts(newer_first: bool) -> None:
    older = encode_header(SegmentHeader(bytes(16), 3, 1, 8_192))[:512]
    newer = encode_header(SegmentHeader(bytes(16), 9, 50, 8_192))[:512]
    found = decode_header(newer + older if newer_first else older + newer)
    assert found is not None
    assert found.sequence == 9


@pytest.mark.parametrize("version", [1, 3])
def test_another_version_is_refused(version: int) -> None:
    head = bytearray(encode_header(HEADER_OF_THE_PAGE)[: HEADER.size])
    head[8] = version
    with pytest.raises(JournalDamaged, match=f"version {version}; this program reads version 2: use the program that"):
        decode_header(bytes(head) + CRC.pack(zlib.crc32(head)))


def test_what_an_earlier_life_left_never_has_the_right_checksum(chance: Random) -> None:
    for _ in range(300):
        store, record = chance.randbytes(16), chance.randbytes(chance.randrange(1, 90))
        one, other = chance.sample(range(1, 2**32), 2)
        assert zlib.crc32(record, SegmentHeader(store, one, 1, 8_192).salt) != zlib.crc32(
            record, SegmentHeader(store, other, 1, 8_192).salt
        )


# -- a reader made from the page ------------------------------------------------------------------------------------


def number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def read_as_the_page_says(files: list[bytes]) -> dict[int, bytes]:
    """LSN -> record, of a journal in which nothing is damaged. Knows nothing but docs/journal.md."""
    segments = []
    for data in files:
        copies = [data[at : at + 72] for at in (0, 512)]
        intact = [copy for copy in copies if len(copy) == 72 and number(copy, 68, 4) == zlib.crc32(copy[:68])]
        if intact:
            segments.append((max(intact, key=lambda copy: number(copy, 32, 8)), data))
    segments.sort(key=lambda segment: number(segment[0], 32, 8))
    replay_from = max(number(header, 48, 8) for header, _ in segments)
    records: dict[int, bytes] = {}
    for index, (header, data) in enumerate(segments):
        salt = zlib.crc32(header[16:32]) ^ number(header, 32, 8) & 0xFFFFFFFF
        assert salt == number(header, 64, 4)
        following = number(segments[index + 1][0], 40, 8) if index + 1 < len(segments) else 1 << 64
        at = 1_024
        while data[at : at + 4] == b"EBJF" and number(data, at + 32, 4) == zlib.crc32(data[at : at + 32], salt):
            assert number(data, at + 8, 8) == number(header, 32, 8)
            lsn, spot = number(data, at + 16, 8), at + 36
            for _ in range(number(data, at + 24, 4)):
                size = number(data, spot + 4, 4)
                assert number(data, spot, 4) == zlib.crc32(data[spot + 4 : spot + 8 + size], salt)
                if replay_from <= lsn < following:
                    records[lsn] = data[spot + 8 : spot + 8 + size]
                lsn, spot = lsn + 1, spot + 8 + size
            assert spot == at + 36 + number(data, at + 28, 4)
            at = (spot + 511) // 512 * 512
    return records


def test_a_reader_made_from_the_page_reads_what_was_written(chance: Random) -> None:
    disk, journal = Disk(chance), Journal(bytes(range(16)), SMALL)
    said: dict[int, bytes] = {}
    now = stated = 0
    for _ in range(400):
        now += 3_000
        record = chance.randbytes(chance.choice((1, 20, 200, 2_000)))
        said[journal.append(record, now)] = record
        if journal.wants_snapshot:
            stated = journal.begin_snapshot(now)
        elif stated and journal.lsn > stated + 5:
            journal.end_snapshot(now)
            stated = 0
        while (due := journal.due()) is not None and due <= now:
            work = journal.next_work(now)
            assert work is not None
            for operation in work.operations:
                disk.do(operation)
            journal.done(work, now)
    files = [disk.read(name) for name in disk.names()]
    found = read_as_the_page_says(files)
    assert journal.replay_from > 1
    assert list(found) == list(range(journal.replay_from, journal.synced + 1))
    assert all(said[lsn] == record for lsn, record in found.items())
    assert len(files) < 12  # files are used again
    assert journal.segments.next_sequence > 20
