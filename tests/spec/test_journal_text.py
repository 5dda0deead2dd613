"""Texts in journal records: exactly what is UTF-8 without U+0000."""

from __future__ import annotations

from itertools import product

import pytest

from edgebridge.session.journal.text import read_text

EDGES = (
    0x00,
    0x41,
    0x7F,
    0x80,
    0x8F,
    0x90,
    0x9F,
    0xA0,
    0xBF,
    0xC0,
    0xC1,
    0xC2,
    0xDF,
    0xE0,
    0xED,
    0xEF,
    0xF0,
    0xF4,
    0xF5,
    0xFF,
)
"""Where the rules for bytes of UTF-8 change (RFC 3629 section 4)."""


def strictly(octets: bytes) -> str | None:
    try:
        text = octets.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def told(octets: bytes) -> str | None:
    record = b"?" + len(octets).to_bytes(2) + octets + b"!"
    try:
        text, end = read_text(record, 1)
    except ValueError:
        return None
    assert end == len(record) - 1
    return text


@pytest.mark.parametrize("size", range(4))
@pytest.mark.parametrize("around", [b"", b"a", "\u20ac\U0001f600".encode()], ids=["alone", "in ASCII", "in wide ones"])
def test_what_is_no_utf8_is_no_text(around: bytes, size: int) -> None:
    for octets in product(EDGES, repeat=size):
        said = around + bytes(octets) + around
        assert told(said) == strictly(said), said


@pytest.mark.parametrize(
    "octets", ["\U0010ffff".encode(), b"\xf4\x90\x80\x80", b"\xed\xa0\x80\xed\xb0\x80", b"\xf0\x80\x80\xaf"]
)
def test_four_bytes(octets: bytes) -> None:
    assert told(octets) == strictly(octets)


@pytest.mark.parametrize("record", [b"", b"\0", b"\0\1", b"\0\2a", b"\xff\xffa"])
def test_a_text_ends_within_its_record(record: bytes) -> None:
    with pytest.raises(ValueError, match="ends beyond its record"):
        read_text(record, 0)
