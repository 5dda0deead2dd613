"""Content-defined chunks: the same in both builds, within their bounds, and mostly shared by two versions of a file."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from edgebroker.digests import sha256
from edgebroker.files.chunking import GEAR, chunks_of, end_of_chunk, end_of_chunk_plainly
from edgebroker.limits import CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, KIB

FILE = random.Random(7).randbytes(600 * KIB)
CHUNKS = list(chunks_of([FILE]))


def ends(data: bytes, cut: Callable[[bytes, int, tuple[int, ...]], int]) -> list[int]:
    at, found = 0, []
    while at < len(data):
        at = cut(data, at, GEAR)
        found.append(at)
    return found


@settings(max_examples=15)
@given(some.integers(0, 1 << 32), some.integers(0, 60 * KIB), some.booleans())
def test_both_builds_cut_at_the_same_bytes(seed: int, size: int, is_monotonous: bool) -> None:
    chance = random.Random(seed)
    data = bytes((chance.randrange(256),)) * size if is_monotonous else chance.randbytes(size)
    assert ends(data, end_of_chunk) == ends(data, end_of_chunk_plainly)


def test_the_cuts_are_those_that_the_page_promises() -> None:
    """Publishers of other programs share chunks with ours only if they cut alike."""
    assert GEAR[0] == 0x6E340B9CFFB37A98
    assert ends(FILE[: 240 * KIB], end_of_chunk)[:4] == [116_539, 179_375, 201_056, 238_366]


def test_chunks_have_16_to_256_kib_but_for_the_last_and_64_in_the_mean() -> None:
    sizes = [len(chunk) for chunk in CHUNKS]
    assert all(CHUNK_BYTES_MIN <= size <= CHUNK_BYTES_MAX for size in sizes[:-1])
    assert 48 * KIB < sum(sizes[:-1]) / len(sizes[:-1]) < 96 * KIB
    assert [len(chunk) for chunk in chunks_of([bytes(CHUNK_BYTES_MAX + 5)])] == [CHUNK_BYTES_MAX, 5]


@pytest.mark.parametrize("piece", [7 * KIB, 300 * KIB])
def test_chunks_do_not_depend_on_how_a_file_is_read(piece: int) -> None:
    pieces = [FILE[at : at + piece] for at in range(0, len(FILE), piece)]
    assert list(chunks_of(pieces)) == CHUNKS
    assert b"".join(CHUNKS) == FILE
    assert list(chunks_of([])) == []


def test_a_changed_byte_and_an_inserted_one_change_few_chunks() -> None:
    before = {sha256(chunk).digest() for chunk in CHUNKS}
    at = len(FILE) // 2
    for changed in (FILE[:at] + b"x" + FILE[at:], FILE[100:]):
        after = {sha256(chunk).digest() for chunk in chunks_of([changed])}
        assert len(after - before) <= 2


def test_a_chunk_begins_inside_the_data() -> None:
    for cut in (end_of_chunk, end_of_chunk_plainly):
        for at in (-1, 3, 4):
            with pytest.raises(IndexError):
                cut(b"abc", at, GEAR)
