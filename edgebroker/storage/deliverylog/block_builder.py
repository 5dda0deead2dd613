"""Builds a block in steps that are short enough to run between two events.

Building a block of 4,096 records with long content filters at once would take 15 ms, in which no message is forwarded.
So the work is a generator that yields after each part. The bytes do not depend on the steps.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterable, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

from edgebroker.cbor import MAP, encode_cbor, encode_text, head
from edgebroker.instants import MINUTE
from edgebroker.limits import KIB
from edgebroker.log_schema import Table
from edgebroker.storage.deliverylog import columns
from edgebroker.storage.deliverylog.format import LEVEL, TABLE_NUMBERS, seal

ROWS_AT_ONCE: Final = 512
"""Rows transposed into columns in one step: 0.2 ms."""
BYTES_AT_ONCE: Final = 16 * KIB
"""Bytes compressed in one step: up to 0.7 ms."""

Columns: TypeAlias = Sequence[Sequence[Any]]
"""One sequence of values per column of a table, in the order of its columns."""
ColumnsMaking: TypeAlias = Generator[None, None, Columns]
"""Yields after each step; returns the columns."""
BlockMaking: TypeAlias = Generator[None, None, bytes]
"""Yields after each step; returns the block."""


def make_columns(rows: Iterable[tuple[Any, ...]]) -> ColumnsMaking:
    """Transpose *rows*, at least one, into columns."""
    remaining = iter(rows)
    values: list[list[Any]] = [[value] for value in next(remaining)]
    while part := list(islice(remaining, ROWS_AT_ONCE)):
        for column, more in zip(values, zip(*part, strict=True), strict=True):
            column += more
        yield
    return values


def make_block(table: Table, sequence: int, making: ColumnsMaking, *, is_provisional: bool = False) -> BlockMaking:
    """Build the block number *sequence* from the columns that *making* returns, each with at least one value.

    is_provisional: a later block of the same number replaces it.
    """
    values = yield from making
    compressor = zlib.compressobj(LEVEL)
    # The map is encoded key by key: the same bytes as for a dictionary, without holding all of them twice in memory.
    raw_bytes, parts = 0, [compressor.compress(raw := head(MAP, len(table.columns)))]
    raw_bytes += len(raw)
    for column, row in zip(table.columns, values, strict=True):
        raw = encode_text(column.name) + encode_cbor(columns.encode(column, row))
        raw_bytes += len(raw)
        yield
        for start in range(0, len(raw), BYTES_AT_ONCE):
            parts.append(compressor.compress(raw[start : start + BYTES_AT_ONCE]))
            if len(raw) > BYTES_AT_ONCE:
                yield
    parts.append(compressor.flush())
    times = values[0]
    unit = 1 if table.columns[0].name == "t_us" else MINUTE
    first, last = min(times) * unit, max(times) * unit + unit - 1
    number, body = TABLE_NUMBERS[table.name], b"".join(parts)
    return seal(number, sequence, len(times), raw_bytes, body, first, last, is_provisional=is_provisional)
