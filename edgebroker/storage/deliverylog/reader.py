"""Decodes a file into columns, and reports everything that is wrong with it.

Damage never ends the reading early and never yields doubtful rows: a block is read as a whole, with every checksum
right, or not at all. After a damaged block head, reading continues at the next intact head.
"""

from __future__ import annotations

import zlib
from collections.abc import Container, Iterator, Mapping
from dataclasses import field
from typing import Any, Final, TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.errors import LogDamaged
from edgebroker.log_schema import TABLES, Table

from . import format as edl
from .columns import ColumnDamaged

ROWS_AT_ONCE_MAX: Final = 1_000_000
"""Rows of a file that is read as a whole, 100 MiB: a usual file of 4 MiB has 600,000. A few bytes may encode
thousands.
"""

Columns: TypeAlias = dict[str, list[Any]]
"""Column name -> values: int or str, in recordings also bytes."""
NO_TABLE: Final = Table("", ())
"""Used for every table that a reader does not know."""


@dataclass(frozen=True, slots=True)
class LogCorruption:
    """A fault of a file."""

    block: int
    """The number of the block in the file, from 0; -1: the file header."""
    offset: int
    """Its offset in the file."""
    reason: str
    rows_lost: int | None = None
    """The number of rows that cannot be read; None: not known."""
    table: str = ""
    """The table of these rows; "": not known."""

    def __str__(self) -> str:
        what = "file header" if self.block < 0 else f"block {self.block}"
        lost = "" if self.rows_lost is None else f"; {self.rows_lost} rows of {self.table or 'an unknown table'} lost"
        return f"{what} at offset {self.offset}: {self.reason}{lost}"


@dataclass(frozen=True, slots=True)
class Block:
    """One intact block."""

    number: int
    offset: int
    head: edl.BlockHead
    table: str
    """The table's name, "" if this reader does not know it."""
    columns: Columns
    """Empty if the table is unknown or was not requested."""

    @property
    def end(self) -> int:
        """The offset of the byte after the block."""
        return self.offset + edl.BLOCK_HEAD_BYTES + self.head.body_bytes


@dataclass(slots=True)
class LogFile:
    """The content of one file."""

    header: edl.LogHeader
    tables: dict[str, Columns]
    """Every table of `edgebroker.log_schema`, with all its columns, in the order of the file."""
    damage: list[LogCorruption] = field(default_factory=list)
    final: bool = False
    """Whether the run ended cleanly with this file. Without such a file it still runs, or it crashed."""

    def rows(self, table: str) -> int:
        """How many rows of *table* there are."""
        return len(next(iter(self.tables[table].values())))


def read_segment(data: bytes, *, growing: bool = False) -> LogFile:
    """Read everything in a file. *growing*: the file is being written (`.part`), so it may end anywhere.

    Raises LogDamaged if *data* is not a delivery log at all, or has so many rows that `iter_blocks` should read it; all
    other faults are in `LogFile.damage`.
    """
    header, damage = read_header(data)
    segment = LogFile(header, {table.name: {column.name: [] for column in table.columns} for table in TABLES}, damage)
    rows = 0
    for item in iter_blocks(data, growing=growing):
        if isinstance(item, LogCorruption):
            segment.damage.append(item)
        elif item.table:
            rows += item.head.rows
            if rows > ROWS_AT_ONCE_MAX:
                raise LogDamaged(f"more than {ROWS_AT_ONCE_MAX:,} rows: such a file is read block by block")
            for name, values in segment.tables[item.table].items():
                values += item.columns[name]
    segment.final = is_final(data, growing=growing)
    return segment


def is_final(data: bytes, *, growing: bool = False) -> bool:
    """Return whether the file declares that its run ended cleanly with it. A *growing* one never does."""
    footer = footer_of(data, growing=growing)
    return footer is not None and footer.final


def footer_of(data: bytes, *, growing: bool = False) -> edl.Footer | None:
    """Return the footer of a file; None if it is damaged or missing, or if the file is *growing*."""
    return None if growing else edl.decode_footer(data)


def read_header(data: bytes) -> tuple[edl.LogHeader, list[LogCorruption]]:
    """Return the file header and its faults: that of the footer if the one at the start is damaged, empty if both are.

    Raises LogDamaged if *data* is not a delivery log.
    """
    found = edl.decode_header(data)
    if found is not None:
        return found[0], []
    if data[: len(edl.MAGIC)] != edl.MAGIC and next_head(data, 0) is None:
        raise LogDamaged("no delivery log: it does not begin like one and no block of one is in it")
    footer = edl.decode_footer(data)
    if footer is None:
        return edl.LogHeader(product=""), [
            LogCorruption(-1, 0, "checksum or length is wrong; node and boot are not known")
        ]
    return footer.header, [LogCorruption(-1, 0, "checksum or length is wrong; the copy at the end of the file is used")]


def iter_blocks(
    data: bytes,
    *,
    tables: Container[str] | None = None,
    growing: bool = False,
    known: Mapping[int, Table] = edl.LOG_TABLES,
) -> Iterator[Block | LogCorruption]:
    """Iterate over the intact blocks in order, and the faults between them.

    tables: the names of the tables to decode, all if None; other blocks are verified and returned without columns.
    known: the tables by number, those of a delivery log or of a recording; the name of any other is "". Faults of the
    file header are reported by `read_header`.
    """
    found = edl.decode_header(data)
    position = found[1] if found else (next_head(data, 0) or len(data))
    number = 0
    last = -1  # the sequence number of the last block with an intact head
    resuming = True  # the expected sequence is unknown
    is_damaged = False
    while position < len(data):
        head = edl.decode_head(data, position)
        if head is None:
            if growing and next_head(data, position) is None:
                return  # a block that is being written
            resumed = next_head(data, position + 1)
            is_damaged = True
            resuming = True  # this fault covers the blocks that are missing before the next head
            yield LogCorruption(number, position, unreadable(data, position, resumed))
            number += 1
            position = len(data) if resumed is None else resumed
            continue
        if head.table == edl.FOOTER:
            if not growing:
                yield from check_end(data, position, head, number, is_damaged)
            return
        end = position + edl.BLOCK_HEAD_BYTES + head.body_bytes
        if growing and end > len(data) and next_head(data, position + 1) is None:
            return
        table = known.get(head.table, NO_TABLE)
        if head.sequence <= last:
            is_damaged = True
            reason = f"block {head.sequence} of the log comes after block {last} and is passed over"
            yield LogCorruption(number, position, reason, head.rows, table.name)
        else:
            if head.sequence > last + 1 and not resuming:
                is_damaged = True
                yield LogCorruption(number, position, missing(last + 1, head.sequence - 1))
            item = read_block(data, position, head, number, table, tables)
            is_damaged = is_damaged or isinstance(item, LogCorruption)
            yield item
            last = head.sequence
        resuming = False
        number += 1
        # A truncated body may be followed by the next blocks within its declared length.
        position = end if end <= len(data) else next_head(data, position + 1) or len(data)
    if not growing:
        yield LogCorruption(number, len(data), "the file ends without a footer: it was cut short, or never closed")


def read_block(
    data: bytes, offset: int, head: edl.BlockHead, number: int, table: Table, tables: Container[str] | None
) -> Block | LogCorruption:
    """Return the block of *table* with the intact *head* at *offset*, or the fault of its body."""
    name = table.name
    body = data[offset + edl.BLOCK_HEAD_BYTES : offset + edl.BLOCK_HEAD_BYTES + head.body_bytes]
    if len(body) != head.body_bytes:
        short = head.body_bytes - len(body)
        return LogCorruption(
            number, offset, f"cut short: {short} of {head.body_bytes} bytes are missing", head.rows, name
        )
    if zlib.crc32(body) != head.body_crc:
        return LogCorruption(number, offset, "checksum of the body is wrong", head.rows, name)
    columns: Columns = {}
    if name and (tables is None or name in tables):
        decoded = edl.decode_body(head, body)
        if decoded is None:
            return LogCorruption(
                number, offset, "the body does not unfold to the declared length and CBOR", head.rows, name
            )
        try:
            columns = edl.decode_rows(table, head, decoded)
        except ColumnDamaged as reason:
            return LogCorruption(number, offset, str(reason), head.rows, name)
    return Block(number, offset, head, name, columns)


def next_head(data: bytes, start: int) -> int | None:
    """Return the offset of the first intact block head from *start* on."""
    for found in edl.MAY_BE_HEAD.finditer(data, start):
        if edl.decode_head(data, found.start()) is not None:
            return found.start()
    return None


def check_end(data: bytes, offset: int, head: edl.BlockHead, number: int, is_damaged: bool) -> Iterator[LogCorruption]:
    """Iterate over the faults of the footer at *offset* and of the bytes behind it; *number* blocks came before."""
    footer = edl.decode_footer(data)
    end = offset + edl.BLOCK_HEAD_BYTES + head.body_bytes + edl.TRAILER.size
    if end > len(data):
        yield LogCorruption(number, offset, "the footer is cut short")
    elif footer is None or end != len(data):
        yield LogCorruption(number, offset, "the footer or what follows it is damaged")
    elif not is_damaged and len(footer.blocks) != number:
        yield LogCorruption(number, offset, f"the footer names {len(footer.blocks)} blocks, {number} are there")


def unreadable(data: bytes, offset: int, resumed: int | None) -> str:
    """Return the message for bytes at *offset* that are no block, when the next block is at *resumed*."""
    if resumed is None:
        return f"no block can be read in the last {len(data) - offset} bytes"
    return f"no block can be read in {resumed - offset} bytes; reading goes on at offset {resumed}"


def missing(first: int, last: int) -> str:
    """Return the message for the missing blocks *first* to *last* of the log."""
    which = f"block {first}" if first == last else f"blocks {first} to {last}"
    return f"{which} of the log should come before: never written, or removed"
