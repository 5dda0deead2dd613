"""The bytes of an `.edl` file: file header, blocks, footer, trailer. docs/edl.md is the specification.

Every byte is covered by a CRC-32, and every declared length is checked against a bound before memory is allocated.
"""

from __future__ import annotations

import re
import struct
import zlib
from itertools import chain, repeat
from operator import add
from typing import Any

from edgebroker import __version__
from edgebroker.cbor import CborReader, CborRules, encode_cbor, read_cbor
from edgebroker.dataclasses import dataclass
from edgebroker.errors import LogDamaged
from edgebroker.limits import KIB, MIB
from edgebroker.log_schema import ANCHOR, DELIVERY, TABLES, TRAFFIC, Column, ColumnType, Table

from . import columns

MAGIC = b"\x89EDL\r\n\x1a\n"  # like PNG's: detects a transfer that stripped the eighth bit or changed line ends
VERSION = 1
BLOCK_MARK = b"EDLB"
END_MARK = b"EDL$"
FOOTER = 255
"""The table number of the footer block."""
PROVISIONAL = 1
"""The flag of a block that a later one of the same number replaces."""
RECORDED = 128
"""The first table number of recordings, which contain payloads: these may expand by any factor."""

FILE_HEAD = struct.Struct("<8sHHI")  # magic, version, 0, bytes of the CBOR map that follows
BLOCK_HEAD = struct.Struct("<4sBBHIIIIqqI")  # mark, table, flags, 0, sequence, rows, raw, body, first, last, its CRC
TRAILER = struct.Struct("<QI4s")  # offset of the footer, CRC of these eight bytes, mark
MAY_BE_HEAD = re.compile(BLOCK_MARK + rb"(?=.{10}\0\0.{3}\0.{3}\0)", re.DOTALL)
"""Matches block heads with plausible numbers of rows and bytes: decoding the head at each mark would take 0.7 us."""
CRC = struct.Struct("<I")
BLOCK_HEAD_BYTES = BLOCK_HEAD.size + CRC.size
LIST_VALUES = 4  # creating a list or a map takes as long as so many values
INDEX_VALUES = 6 + LIST_VALUES + 1  # a block's entry in the footer: a list of six numbers
BLOCK_BYTES_MIN = BLOCK_HEAD_BYTES + 8  # the least output of zlib
LEVEL = 6  # of zlib

HEADER_BYTES_MAX = 64 * KIB  # node name, boot id and a few numbers; 200 bytes are usual
RAW_BYTES_MAX = 8 * MIB  # a block before compression: a recording of one large message comes near
UNFOLDED_BYTES_MAX = 2_176 * KIB  # the writer's blocks have at most 2,100 KiB, whatever the rows
# The longest text is a subscription: a topic of 65,535 bytes after a filter of 2 KiB, percent-encoded, which may be
# twice as long in canonical spelling.
TEXT_BYTES_MAX = 128 * KIB
# Characters in the texts of a body; the writer's have 525 Ki. Python stores each character in as many bytes as the
# widest of its text: 3.4 MiB of ASCII with one emoji took 24 MiB.
CHARACTERS_MAX = 576 * KIB
RECORDED_CHARACTERS_MAX = RAW_BYTES_MAX // 4
PLANE_BYTES_MAX = 512 * KIB  # byte strings of a body: 16 columns of 4,096 numbers of 64 bits
UNFOLDING_MAX = 32  # expansion of larger blocks of a delivery log; 5 to 10 are usual
BODY_BYTES_MAX = RAW_BYTES_MAX + 64 * KIB  # zlib adds 5 bytes per 16 KiB of incompressible data
ROWS_MAX = 8_192  # twice as many as the writer produces
BLOCKS_MAX = 16_384  # the footer has one row per block
# Values in columns that are not constant: the writer has eleven of numbers and six of texts, with 4,096 rows; two more
# of numbers with 2,048 at most. With 8,192 rows in all of them, numbers beyond 64 bits took 20 ms.
NUMBERS_MAX, TEXTS_MAX = 11 * 4_096, 6 * 4_096

VALUES_MAX, VALUES_PER_ROW_MAX = 1_024, 8  # lists and their items in the CBOR of a body; the writer's rows have 6 texts
ENTRIES_MAX = 12_288  # for any number of rows; the writer has 2,048 with six texts each
ROWS_OURS = 4_096  # digests per block of the writer; each further row leaves room for two entries less

RUN = (Column("count", ColumnType.INT), Column("step", ColumnType.INT))
"""Two more columns of a delivery block in which a row stands for several messages of QoS 0: those numbered `message`,
`message + step`, ..., `count` of them, which differ in nothing else; `event_sequence` grows with the number. Readers
unfold such rows.
"""
DELIVERY_RUNS = Table(DELIVERY.name, DELIVERY.columns + RUN)

LOG_TABLES: dict[int, Table] = dict(enumerate(TABLES))
"""The tables of a delivery log. Readers skip all others."""
RECORDING_TABLES: dict[int, Table] = {TABLES.index(ANCHOR): ANCHOR, RECORDED: TRAFFIC}
"""The tables of a recording. Its own begin at 128, so that new tables of a delivery log can be appended to its list."""
TABLE_NUMBERS = {table.name: number for number, table in (LOG_TABLES | RECORDING_TABLES).items()}


@dataclass(frozen=True, slots=True)
class LogHeader:
    """The origin of a log. Times are those of the file's beginning: the first clock anchor."""

    node: str = ""
    boot: str = ""
    """The id of one run of one broker; message numbers are unique in it."""
    sample_qos0: int = 1
    """QoS 0 rows are logged for message numbers divisible by this; 0: for none."""
    t_us: int = 0
    unix_us: int = 0
    product: str = f"edgebroker {__version__}"


@dataclass(frozen=True, slots=True)
class BlockHead:
    """The head of a block, decoded before its body."""

    table: int
    sequence: int
    """Counts the blocks of one boot over all its files, so that a missing block is detected."""
    rows: int
    raw_bytes: int
    body_bytes: int
    t_first_us: int
    t_last_us: int
    body_crc: int
    is_provisional: bool = False
    """Whether a later block of the same number replaces this one, which is the last of a growing file."""


@dataclass(frozen=True, slots=True)
class Footer:
    """The index at the end of a closed file: the header again, and the place of every block."""

    header: LogHeader
    blocks: tuple[tuple[int, int, int, int, int, int], ...]
    """offset, table, sequence, rows, t_first_us, t_last_us"""
    final: bool = False
    """Whether the run ended cleanly with this file, so that none follows."""
    blocks_end: int = 0
    """The number of blocks of the run, if it ended with this file; 0: not known. An old final file may not say it."""
    died: bool = False
    """Whether a later run of the broker found the file unfinished, because its own run had died."""


def encode_header(header: LogHeader) -> bytes:
    """Return the first bytes of a file."""
    text = encode_cbor(header_map(header))
    head = FILE_HEAD.pack(MAGIC, VERSION, 0, len(text)) + text
    return head + CRC.pack(zlib.crc32(head))


def decode_header(data: bytes) -> tuple[LogHeader, int] | None:
    """Return the header and the offset of the first block; None if damaged. Raises LogDamaged for a newer version."""
    if len(data) < FILE_HEAD.size + CRC.size:
        return None
    magic, version, _, length = FILE_HEAD.unpack_from(data)
    end = FILE_HEAD.size + length
    if magic != MAGIC or length > HEADER_BYTES_MAX or end + CRC.size > len(data):
        return None
    if CRC.unpack_from(data, end)[0] != zlib.crc32(data[:end]):
        return None
    if version > VERSION:
        raise LogDamaged(f"delivery log of version {version}; this program reads up to version {VERSION}")
    try:
        header = header_of(read_cbor(data[FILE_HEAD.size : end]))
    except ValueError:
        return None
    return None if header is None else (header, end + CRC.size)


def header_map(header: LogHeader) -> dict[str, Any]:
    """Return the CBOR map of *header*; readers ignore unknown keys."""
    return {name: getattr(header, name) for name in LogHeader.__slots__}


def header_of(value: object) -> LogHeader | None:
    """Return the header in a decoded CBOR map: missing keys take their defaults; None if a value has the wrong type."""
    if not isinstance(value, dict):
        return None
    plain = LogHeader()
    known = {name: value.get(name, getattr(plain, name)) for name in LogHeader.__slots__}
    if any(type(known[name]) is not type(getattr(plain, name)) for name in known):
        return None
    return LogHeader(**known)


def frame(table: int, sequence: int, rows: int, raw: bytes, t_first_us: int, t_last_us: int) -> bytes:
    """Return the block whose body is the CBOR map *raw*."""
    return seal(table, sequence, rows, len(raw), zlib.compress(raw, LEVEL), t_first_us, t_last_us)


def seal(
    table: int,
    sequence: int,
    rows: int,
    raw_bytes: int,
    body: bytes,
    t_first_us: int,
    t_last_us: int,
    *,
    is_provisional: bool = False,
) -> bytes:
    """Return the block with the compressed *body*, which expands to *raw_bytes*."""
    flags = PROVISIONAL if is_provisional else 0
    head = BLOCK_HEAD.pack(
        BLOCK_MARK, table, flags, 0, sequence, rows, raw_bytes, len(body), t_first_us, t_last_us, zlib.crc32(body)
    )
    return b"".join((head, CRC.pack(zlib.crc32(head)), body))


def number_of(block: bytes) -> int:
    """Return the number of *block* in the log."""
    return int.from_bytes(block[8:12], "little")


def is_provisional(block: bytes) -> bool:
    """Return whether a later block of the same number replaces *block*."""
    return bool(block[5] & PROVISIONAL)


def without_replaced(blocks: list[bytes]) -> list[bytes]:
    """Return *blocks*, which are in the order of writing, without the provisional ones that a later one replaces."""
    kept: list[bytes] = []
    last_full = -1
    replaced: set[int] = set()
    for block in reversed(blocks):
        number = number_of(block)
        if not is_provisional(block):
            last_full = max(last_full, number)
        elif number <= last_full or number in replaced:
            continue
        replaced.add(number)
        kept.append(block)
    kept.reverse()
    return kept


def as_full(block: bytes) -> bytes:
    """Return *block* as one that no later block replaces."""
    head = block[:5] + b"\0" + block[6 : BLOCK_HEAD.size]
    return head + CRC.pack(zlib.crc32(head)) + block[BLOCK_HEAD_BYTES:]


def decode_head(data: bytes, offset: int) -> BlockHead | None:
    """Return the head of the block at *offset*; None unless it is whole, intact and within the bounds."""
    if offset + BLOCK_HEAD_BYTES > len(data):
        return None
    mark, table, flags, _, sequence, rows, raw, body, first, last, body_crc = BLOCK_HEAD.unpack_from(data, offset)
    end = offset + BLOCK_HEAD.size
    if (
        mark != BLOCK_MARK
        or not 0 < rows <= (BLOCKS_MAX if table == FOOTER else ROWS_MAX)
        or raw > RAW_BYTES_MAX
        or body > BODY_BYTES_MAX
    ):
        return None
    if CRC.unpack_from(data, end)[0] != zlib.crc32(data[offset:end]):
        return None
    if raw > max(UNFOLDED_BYTES_MAX, UNFOLDING_MAX * body) and not RECORDED <= table < FOOTER:
        return None
    return BlockHead(table, sequence, rows, raw, body, first, last, body_crc, bool(flags & PROVISIONAL))


def decode_body(head: BlockHead, body: bytes, values_max: int = 0) -> dict[Any, Any] | None:
    """Return the CBOR map in a block's body; None if it is invalid. It is never expanded beyond the declared size.

    *values_max*: the most values it may have, if that does not depend on its rows.
    """
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(body, head.raw_bytes + 1)
    except zlib.error:
        return None
    if len(raw) != head.raw_bytes or not inflater.eof or inflater.unused_data:
        return None
    entries_max = ENTRIES_MAX - 2 * max(0, head.rows - ROWS_OURS)
    values_max = values_max or VALUES_MAX + min(VALUES_PER_ROW_MAX * head.rows, entries_max)
    is_recorded = RECORDED <= head.table < FOOTER
    rules = CborRules(
        depth_max=8,  # a footer is a map with a list of lists
        values_max=values_max,
        container_cost=LIST_VALUES,
        has_indefinite=False,
        others=None,
        text_bytes_max=TEXT_BYTES_MAX,
        characters_max=RECORDED_CHARACTERS_MAX if is_recorded else CHARACTERS_MAX,
        octets_max=RAW_BYTES_MAX if is_recorded else PLANE_BYTES_MAX,
    )
    try:
        value = CborReader(raw, rules).whole()
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def decode_rows(table: Table, head: BlockHead, body: dict[Any, Any]) -> dict[str, list[Any]]:
    """Return column name -> values, for every column of *table*. Raises ColumnDamaged.

    A column that the writer did not know is filled with 0 or ""; one that this reader does not know is ignored. A row
    that stands for several messages becomes as many rows, at most ROWS_MAX in all.
    """
    if table is DELIVERY and RUN[0].name in body:
        table = DELIVERY_RUNS
    # Encoded columns are freed as they are decoded, and unknown ones first: at most 2 MiB less memory.
    encoded = {column.name: body[column.name] for column in table.columns if column.name in body}
    body.clear()
    spread = [column.type is ColumnType.INT for column in table.columns if columns.is_spread(encoded.get(column.name))]
    numbers = sum(spread)
    if numbers * head.rows > NUMBERS_MAX or (len(spread) - numbers) * head.rows > TEXTS_MAX:
        raise columns.ColumnDamaged(f"{len(spread)} columns are not constant in {head.rows} rows")
    rows: dict[str, list[Any]] = {
        column.name: columns.decode(column, encoded.pop(column.name), head.rows)
        if column.name in encoded
        else [columns.default(column)] * head.rows
        for column in table.columns
    }
    if table is DELIVERY_RUNS:
        counts, steps = [rows.pop(column.name) for column in RUN]
        _unfold(rows, counts, steps)
    return rows


def _unfold(rows: dict[str, list[Any]], counts: list[int], steps: list[int]) -> None:
    """Replace each of *rows* by as many as it stands for. Raises ColumnDamaged."""
    if min(counts) < 1 or sum(counts) > ROWS_MAX:
        raise columns.ColumnDamaged(f"rows stand for {min(counts)} messages at least and {sum(counts)} in all")
    for name, values in rows.items():
        rows[name] = list(chain.from_iterable(map(repeat, values, counts)))
    offsets = [at * step for count, step in zip(counts, steps, strict=True) for at in range(count)]
    rows["message"] = columns.wrapped(list(map(add, rows["message"], offsets)))
    sequences = zip(rows["event_sequence"], offsets, strict=True)
    rows["event_sequence"] = columns.wrapped([sequence and sequence + offset for sequence, offset in sequences])


def encode_footer(
    header: LogHeader,
    blocks: list[tuple[int, BlockHead]],
    offset: int,
    *,
    final: bool = False,
    blocks_end: int = 0,
    died: bool = False,
) -> bytes:
    """Return footer block and trailer of a file whose blocks, as (offset, head), end at *offset*. *final*,
    *blocks_end* and *died*: see `Footer`.
    """
    index = [(at, b.table, b.sequence, b.rows, b.t_first_us, b.t_last_us) for at, b in blocks]
    mark: dict[str, Any] = {"final": True} if final else {}
    if blocks_end and not blocks:  # otherwise the last block says it
        mark["blocks_end"] = blocks_end
    if died:
        mark["died"] = True
    raw = encode_cbor({"header": header_map(header), "blocks": index, **mark})
    first = min((b.t_first_us for _, b in blocks), default=header.t_us)
    last = max((b.t_last_us for _, b in blocks), default=header.t_us)
    where = struct.pack("<Q", offset)
    # A file without blocks has a footer too; a block has at least one row, so the footer declares 1.
    return frame(FOOTER, 0, max(1, len(index)), raw, first, last) + TRAILER.pack(offset, zlib.crc32(where), END_MARK)


def decode_footer(data: bytes) -> Footer | None:
    """Return the footer that the trailer at the end of *data* points to; None if there is none or it is damaged."""
    if len(data) < TRAILER.size:
        return None
    offset, crc, mark = TRAILER.unpack_from(data, len(data) - TRAILER.size)
    if mark != END_MARK or crc != zlib.crc32(struct.pack("<Q", offset)) or offset > len(data):
        return None
    head = decode_head(data, offset)
    if head is None or head.table != FOOTER:
        return None
    body = data[offset + BLOCK_HEAD_BYTES : offset + BLOCK_HEAD_BYTES + head.body_bytes]
    if len(body) != head.body_bytes or zlib.crc32(body) != head.body_crc:
        return None
    value = decode_body(head, body, VALUES_MAX + len(data) // BLOCK_BYTES_MIN * INDEX_VALUES) or {}
    header, index = header_of(value.get("header")), value.get("blocks")
    if header is None or not isinstance(index, list):
        return None
    if not all(isinstance(entry, list) and len(entry) >= 6 and all(type(n) is int for n in entry) for entry in index):
        return None
    entries = tuple((e[0], e[1], e[2], e[3], e[4], e[5]) for e in index)
    said, final = value.get("blocks_end"), value.get("final") is True
    blocks_end = said if final and type(said) is int and said > 0 else 0
    if final and entries:
        blocks_end = entries[-1][2] + 1
    return Footer(header, entries, final, blocks_end, value.get("died") is True)
