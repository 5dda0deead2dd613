"""Broken delivery logs: every truncation, every flipped bit, random mutations, hostile lengths.

The promise: never a wrong row, never silence about damage, never an exception but LogDamaged, never much memory.
"""

from __future__ import annotations

import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import cbor2
import pytest

from edgebroker.errors import LogDamaged
from edgebroker.limits import KIB
from edgebroker.log_schema import Fate, TraceParent
from edgebroker.storage.deliverylog.format import (
    BLOCK_HEAD,
    BLOCK_MARK,
    CRC,
    RAW_BYTES_MAX,
    ROWS_MAX,
    LogHeader,
    decode_head,
    encode_footer,
    encode_header,
    frame,
)
from edgebroker.storage.deliverylog.reader import ROWS_AT_ONCE_MAX, Block, LogFile, iter_blocks, read_segment
from edgebroker.storage.deliverylog.writer import DeliveryLog

SEED = 20_26
MUTATIONS = 3_000


def small_file(blocks: int = 4) -> tuple[bytes, list[int]]:
    """A closed file with one-row delivery blocks and their offsets."""
    header = LogHeader("n", "b", 1, 0, 0)
    data, index = encode_header(header), []
    for block in some_blocks(blocks):
        head = decode_head(block, 0)
        assert head is not None
        index.append((len(data), head))
        data += block
    return data + encode_footer(header, index, len(data)), [offset for offset, _ in index]


def some_blocks(count: int) -> list[bytes]:
    log = DeliveryLog("n", "b", block_rows=1)
    for number in range(count):
        trace = TraceParent(f"{number:032x}", "7" * 16) if number % 2 else None
        log.fate(number, f"p{number}", "s", 10 + number, 1, "t", "t", 1, Fate.DELIVERED, 0, 5, 6, trace)
    return [block for block in log.take(0) if block[4] == 0]


def rows(segment: LogFile) -> list[tuple[Any, ...]]:
    return list(zip(*segment.tables["delivery"].values(), strict=True))


WHOLE, OFFSETS = small_file()
ROWS = rows(read_segment(WHOLE))


def check_broken(data: bytes, what: str) -> None:
    """*data*, made from WHOLE by breaking it, gives only rows that WHOLE has, at most once each, and says so."""
    try:
        segment = read_segment(data)
    except LogDamaged:
        return
    found = rows(segment)
    assert len(set(found)) == len(found), what
    assert set(found) <= set(ROWS), what
    assert segment.damage, what
    assert all(str(damage) for damage in segment.damage)


def test_the_whole_file_is_well() -> None:
    assert read_segment(WHOLE).damage == []
    assert [row[1] for row in ROWS] == [10, 11, 12, 13]


def test_every_truncation_keeps_the_blocks_before_it() -> None:
    ends = [*OFFSETS[1:], WHOLE.index(b"EDLB\xff")]
    for length in range(len(WHOLE)):
        check_broken(WHOLE[:length], f"truncated to {length} bytes")
        if length >= OFFSETS[0]:
            kept = sum(end <= length for end in ends)
            assert rows(read_segment(WHOLE[:length])) == ROWS[:kept]
            growing = read_segment(WHOLE[:length], growing=True)
            assert (rows(growing), growing.damage) == (ROWS[:kept], [])


def test_every_flipped_bit_costs_at_most_its_own_block() -> None:
    for position in range(len(WHOLE)):
        for bit in range(8):
            data = bytearray(WHOLE)
            data[position] ^= 1 << bit
            check_broken(bytes(data), f"bit {bit} of byte {position} flipped")
            hit = sum(offset <= position for offset in OFFSETS) - 1
            intact = ROWS if hit < 0 or position >= WHOLE.index(b"EDLB\xff") else ROWS[:hit] + ROWS[hit + 1 :]
            assert rows(read_segment(bytes(data))) == intact


@pytest.mark.parametrize("part", range(4))
def test_random_mutations(part: int) -> None:
    """Flips, cuts, repeats and swaps. Repeat one: `random.Random(SEED + part)` and the number in the message."""
    chance = random.Random(SEED + part)
    for number in range(MUTATIONS // 4):
        data = bytearray(WHOLE)
        for _ in range(chance.randint(1, 4)):
            start = chance.randrange(len(data) + 1)
            end = min(len(data), start + chance.choice([1, 2, 8, 50, 200]))
            match chance.randrange(5):
                case 0:
                    data[start:end] = chance.randbytes(end - start)
                case 1:
                    del data[start:end]
                case 2:
                    data[start:start] = data[end : end + 100]
                case 3:
                    data[start:start] = chance.randbytes(chance.randrange(60))
                case _:
                    at = chance.choice(OFFSETS)  # a whole block once more, somewhere
                    data[start:start] = WHOLE[at : at + 180]
        if data != WHOLE:
            check_broken(bytes(data), f"seed {SEED + part}, mutation {number}")


def test_a_repeated_block_is_passed_over_and_a_missing_one_reported() -> None:
    first, second, third = OFFSETS[:3]
    twice = read_segment(WHOLE[:second] + WHOLE[first:])
    assert rows(twice) == ROWS
    assert "passed over" in str(twice.damage[0])
    without = read_segment(WHOLE[:second] + WHOLE[third:])
    assert rows(without) == [ROWS[0], *ROWS[2:]]
    assert "block 1 of the log should come before" in str(without.damage[0])


def test_the_report_names_block_offset_reason_and_rows() -> None:
    data = bytearray(WHOLE)
    data[OFFSETS[2] + 60] ^= 1
    (damage,) = read_segment(bytes(data)).damage
    assert (damage.block, damage.offset, damage.rows_lost, damage.table) == (2, OFFSETS[2], 1, "delivery")
    assert str(damage) == f"block 2 at offset {OFFSETS[2]}: checksum of the body is wrong; 1 rows of delivery lost"


@pytest.mark.parametrize("data", [b"", b"\x89", b"PAR1" * 100, b"EDLB" * 100, bytes(5_000), b"\x89EDL\r\n\x1a\x0b"])
def test_what_is_no_delivery_log_is_refused(data: bytes) -> None:
    with pytest.raises(LogDamaged, match="no delivery log"):
        read_segment(data)


def test_a_later_version_is_refused_by_name() -> None:
    head = struct.pack("<8sHHI", b"\x89EDL\r\n\x1a\n", 2, 0, 1) + b"\xa0"
    with pytest.raises(LogDamaged, match="version 2"):
        read_segment(head + CRC.pack(zlib.crc32(head)))


def test_damaged_file_headers_are_replaced_by_the_copy_at_the_end() -> None:
    data = bytearray(WHOLE)
    data[20] ^= 255
    segment = read_segment(bytes(data))
    assert (segment.header, rows(segment)) == (LogHeader("n", "b", 1, 0, 0), ROWS)
    assert str(segment.damage[0]).startswith("file header at offset 0")


def test_tables_and_columns_of_later_writers_are_passed_over() -> None:
    known = cbor2.dumps({"t_us": [7, 0, b""], "unix_us": [8, 0, b""], "leap_s": [["no"], b""]})
    older = cbor2.dumps({"t_us": [9, 0, b""]})
    data = encode_header(LogHeader("n", "b")) + b"".join(
        [frame(77, 0, 3, b"whatever", 0, 0), frame(3, 1, 1, known, 7, 7), frame(3, 2, 1, older, 9, 9)]
    )
    segment = read_segment(data, growing=True)
    assert segment.damage == []
    assert segment.tables["anchor"] == {"t_us": [7, 9], "unix_us": [8, 0]}


HOSTILE: list[Any] = [
    {"t_us": [0, b"\x01" * 7]},
    {"t_us": [0, b"\x01" * 18]},
    {"t_us": [0, 0, b""], "unix_us": ["x", b""]},
    {"t_us": [["a"], b""]},
    {"t_us": [1.5, b""]},
    {"t_us": []},
    {"t_us": None},
    {"t_us": {}},
    [1, 2],
    "text",
    None,
]


@pytest.mark.parametrize("body", [*map(cbor2.dumps, HOSTILE), b"", b"\x81" * 100_000, b"\x9b" + b"\xff" * 8])
def test_bodies_with_right_checksums_and_wrong_contents_are_damage(body: bytes) -> None:
    data = encode_header(LogHeader("n", "b")) + frame(3, 0, 2, body, 0, 0)
    segment = read_segment(data, growing=True)
    assert segment.rows("anchor") == 0
    assert len(segment.damage) == 1


@pytest.mark.parametrize("planes", [b"\x02\x00", b"\x00" * 3, b"\xff" * 16])
def test_text_numbers_outside_the_dictionary_are_damage(planes: bytes) -> None:
    body = cbor2.dumps({"publisher": [["a", "b"], planes]})
    segment = read_segment(encode_header(LogHeader("n", "b")) + frame(1, 0, 2, body, 0, 0), growing=True)
    assert (segment.rows("digest"), len(segment.damage)) == (0, 1)


def raw_block(rows_declared: int, raw_declared: int, body: bytes, body_declared: int | None = None) -> bytes:
    """A block whose head is intact and says what it likes."""
    size = len(body) if body_declared is None else body_declared
    head = BLOCK_HEAD.pack(BLOCK_MARK, 3, 0, 0, 0, rows_declared, raw_declared, size, 0, 0, zlib.crc32(body))
    return head + CRC.pack(zlib.crc32(head)) + body


@pytest.mark.parametrize(
    "make",
    [
        lambda: raw_block(20_000_000, 1, zlib.compress(b"\xa0")),  # an empty map: all columns of all rows are defaults
        lambda: raw_block(0, 1, zlib.compress(b"\xa0")),
        lambda: raw_block(1, 2**32 - 1, b"x"),
        lambda: raw_block(1, 10, b"x", 2**32 - 1),
        lambda: raw_block(1, 10, b"x", 1_000_000),
        lambda: raw_block(1, RAW_BYTES_MAX, zlib.compress(bytes(200 * 2**20))),
        lambda: raw_block(1, 10, zlib.compress(bytes(10 * 2**20))),
        lambda: raw_block(1, 1, zlib.compress(b"\xa0") + b"more"),
    ],
    ids=["rows", "no rows", "raw", "body", "body beyond the end", "bomb", "more than raw", "bytes after the stream"],
)
def test_hostile_lengths_cost_no_memory(make: Callable[[], bytes]) -> None:
    data = encode_header(LogHeader("n", "b")) + make()
    tracemalloc.start()
    try:
        segment = read_segment(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert segment.rows("anchor") == 0
    assert "no block can be read" in str(segment.damage[0]) or segment.damage[0].rows_lost == 1
    assert peak < 4 * RAW_BYTES_MAX


def test_a_file_of_too_many_rows_is_not_read_as_a_whole() -> None:
    """A block of a hundred bytes may have 8,192 rows; who reads block by block holds one block."""
    rows = ROWS_AT_ONCE_MAX // ROWS_MAX + 1
    data = encode_header(LogHeader("n", "b")) + b"".join(frame(0, n, ROWS_MAX, b"\xa0", 0, 0) for n in range(rows))
    assert len(data) < 8 * KIB
    read = sum(block.head.rows for block in iter_blocks(data, growing=True) if isinstance(block, Block))
    assert read == rows * ROWS_MAX > ROWS_AT_ONCE_MAX
    with pytest.raises(LogDamaged, match="read block by block"):
        read_segment(data, growing=True)
