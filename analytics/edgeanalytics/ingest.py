"""Delivery logs become DataFrames: Spark's workers read every file once, block by block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from edgebroker.errors import LogDamaged
from edgebroker.log_schema import ColumnType, Table
from edgebroker.storage.deliverylog.reader import LogCorruption, footer_of, iter_blocks, read_header

from .inventory import FILE_BYTES_MAX, Inventory, from_ranges, look_at
from .schemas import DAMAGE, ORIGIN, READ, SEGMENT, union

FILES_PER_CORE = 4  # tasks per core, so that a large file does not keep one core busy while the other is idle
BATCH_ROWS = 50_000  # a batch of each block alone costs 30 ms per small file
RENAMED_MAX = 16  # files that are looked through for one that was renamed, the newest first

ARROW_TYPES = {ColumnType.INT: pa.int64(), ColumnType.TEXT: pa.string()}

Columns = dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class Tables:
    """The contents of a log directory: one DataFrame per table of `schemas.READ`, with the columns of `schemas.ORIGIN`
    first.
    """

    segment: DataFrame
    damage: DataFrame
    delivery: DataFrame
    digest: DataFrame
    filter: DataFrame
    anchor: DataFrame
    trace: DataFrame
    migration: DataFrame


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows of one table of one file."""

    table: Table
    origin: tuple[str, str, str, int]
    """node, boot, file, sample_qos0"""
    columns: Columns


def read(spark: SparkSession, inventory: Inventory) -> Tables:
    """Read the blocks of *inventory*. Damaged files contribute their intact blocks, and rows of `damage`."""
    # Spark's own file source is not used: it silently skips names that begin with "_", and a log that is skipped looks
    # like a log without losses.
    wanted = [(file.path, file.file, file.boot, file.blocks) for file in inventory.wanted]
    tasks = min(len(wanted), FILES_PER_CORE * spark.sparkContext.defaultParallelism)
    files = spark.createDataFrame(wanted, "path string, file string, boot string, blocks string").repartition(tasks)
    # All measures use these rows, and decoding them is the most expensive step: cache them.
    return split(files.mapInArrow(decoded, union()).persist(StorageLevel.MEMORY_AND_DISK))


def split(rows: DataFrame) -> Tables:
    """Separate the rows of `schemas.union` into tables."""
    origin = [column.name for column in ORIGIN]
    tables = {
        table.name: rows.where(rows[table.name].isNotNull()).select(
            *origin, *(rows[table.name][column.name].alias(column.name) for column in table.columns)
        )
        for table in READ
    }
    return Tables(**tables)


def decoded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decode batches of (path, file, boot, blocks) into rows of `schemas.union`. Runs in Spark's workers."""
    gathered = {table.name: RowBatch(table) for table in READ}
    for batch in batches:
        for path, file, boot, blocks in zip(*(batch.column(at).to_pylist() for at in range(4)), strict=True):
            for part in parts(file, content(Path(path), boot), from_ranges(blocks)):
                rows = gathered[part.table.name]
                rows.add(part)
                if rows.count >= BATCH_ROWS:
                    yield rows.take()
    yield from (rows.take() for rows in gathered.values() if rows.count)


def content(path: Path, boot: str = "") -> bytes | str:
    """Return the bytes of a file, or the reason why it cannot be read.

    A `.part` of the run *boot* that its broker has finished meanwhile is found under its new name.
    """
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            return f"larger than {FILE_BYTES_MAX // 2**20} MiB: no delivery log"
        return path.read_bytes()
    except FileNotFoundError as reason:
        renamed = renamed_from(path, boot) if path.name.endswith(".part") else None
        return f"cannot be read: {reason.strerror}" if renamed is None else renamed.read_bytes()
    except OSError as reason:
        return f"cannot be read: {reason.strerror}"


def renamed_from(part: Path, boot: str) -> Path | None:
    """Return the newest closed file of the run *boot* in the folder of *part*, which exists no longer."""
    closed = sorted(part.parent.glob("*.edl"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in closed[:RENAMED_MAX]:
        found = look_at(path, path.name)
        if found is not None and found.run[1] == boot:
            return path
    return None


def parts(file: str, read: bytes | str, wanted: set[int] | None = None) -> Iterator[Part]:
    """Yield the contents of one file: its blocks, then its damage, then the row about the file itself. No damage is
    dropped.

    file: the path below the log directory. read: the return value of `content`. wanted: the numbers of the blocks to
    read; None for all.
    """
    data = read if isinstance(read, bytes) else b""
    try:
        if isinstance(read, str):
            raise LogDamaged(read)
        header, damage = read_header(data)
    except LogDamaged as reason:
        header, damage = None, [LogCorruption(-1, 0, str(reason))]
    origin = ("", "", file, 0) if header is None else (header.node, header.boot, file, header.sample_qos0)
    growing = file.endswith(".part")
    began = (0, 0) if header is None else (header.t_us, header.unix_us)
    records, counted, last_us, sequences = 0, 0, began[0], []
    for item in iter_blocks(data, growing=growing) if header is not None else ():
        if isinstance(item, LogCorruption):
            damage.append(item)
            continue
        sequences.append(item.head.sequence)
        if wanted is not None and item.head.sequence not in wanted:
            continue
        counted += 1
        table = next((table for table in READ if table.name == item.table), None)
        if table is not None:  # otherwise it is a table of a later version
            records += item.head.rows
            last_us = max(last_us, item.head.t_first_us)
            yield Part(table, origin, item.columns)
    if damage:
        yield Part(
            DAMAGE, origin, on_end([(d.block, d.offset, d.reason, known(d.rows_lost), d.table) for d in damage], DAMAGE)
        )
    # The reader reports only a missing footer at the very end of the file.
    damages = sum(1 for item in damage if header is None or item.offset < len(data))
    unclosed = growing or damages < len(damage)
    ends = (sequences[0], sequences[-1]) if sequences else (0, -1)
    footer = footer_of(data, growing=growing)
    final, died, blocks_end = False, False, ends[1] + 1
    if footer is not None:
        final, died = footer.final, footer.died
        blocks_end = max(blocks_end, footer.blocks_end, *(entry[2] + 1 for entry in footer.blocks[-1:]))
    facts = (int(unclosed), int(final), int(died), damages, *began, last_us, len(data), records)
    yield Part(SEGMENT, origin, on_end([(*facts, len(sequences), counted, *ends, blocks_end)], SEGMENT))


def on_end(rows: list[tuple[Any, ...]], table: Table) -> Columns:
    """Return *rows* of *table* as columns."""
    return {column.name: [row[at] for row in rows] for at, column in enumerate(table.columns)}


def known(count: int | None) -> int:
    """Return *count*, or -1 if the number is unknown."""
    return -1 if count is None else count


class RowBatch:
    """Rows of one table, of any number of blocks and files, until they become a batch."""

    def __init__(self, table: Table) -> None:
        self.count = 0
        self._table = table
        self._origins: list[list[Any]] = [[] for _ in ORIGIN]
        self._columns: list[list[Any]] = [[] for _ in table.columns]

    def add(self, part: Part) -> None:
        """Add the rows of *part*."""
        added = len(part.columns[self._table.columns[0].name])
        self.count += added
        for values, value in zip(self._origins, part.origin, strict=True):
            values += [value] * added
        for column, values in zip(self._table.columns, self._columns, strict=True):
            values += part.columns[column.name]

    def take(self) -> pa.RecordBatch:
        """Return the rows as rows of `schemas.union`, and begin anew."""
        arrays: list[pa.Array] = [
            pa.array(values, ARROW_TYPES[column.type]) for column, values in zip(ORIGIN, self._origins, strict=True)
        ]
        for table in READ:
            fields = [pa.field(column.name, ARROW_TYPES[column.type], nullable=False) for column in table.columns]
            if table is self._table:
                columns = [pa.array(values, field.type) for values, field in zip(self._columns, fields, strict=True)]
                arrays.append(pa.StructArray.from_arrays(columns, fields=fields))
            else:
                arrays.append(pa.nulls(self.count, pa.struct(fields)))
        names = [*(column.name for column in ORIGIN), *(table.name for table in READ)]
        self.count, self._origins, self._columns = 0, [[] for _ in ORIGIN], [[] for _ in self._table.columns]
        return pa.RecordBatch.from_arrays(arrays, names=names)
