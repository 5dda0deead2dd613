"""A directory of delivery logs as DataFrames: every file is read once, block by block, by Spark's workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from edgebroker.errors import EdgebrokerError, LogDamaged
from edgebroker.records import ColumnType, Table
from edgebroker.storage.deliverylog.reader import Damage, iter_blocks, read_header

from .schemas import DAMAGE, ORIGIN, READ, SEGMENT, union

FILES = "*.{edl,part}"
"""Which files of a log directory are read: closed ones, and those that a broker is still writing or left behind."""

ARROW_TYPES = {ColumnType.INT: pa.int64(), ColumnType.TEXT: pa.string()}

Columns = dict[str, list[Any]]


class NothingToRead(EdgebrokerError):
    """There is no delivery log where one was expected."""


@dataclass(frozen=True, slots=True)
class Tables:
    """What was read: one DataFrame per table of `schemas.READ`, each with the columns of `schemas.ORIGIN` first."""

    segment: DataFrame
    damage: DataFrame
    delivery: DataFrame
    digest: DataFrame
    filter: DataFrame
    anchor: DataFrame


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows of one table of one file."""

    table: Table
    origin: tuple[str, str, str, int]
    """node, boot, file, sample_qos0"""
    columns: Columns


def paths(folder: Path) -> list[Path]:
    """The log files below *folder*, sorted. Raises NothingToRead if there are none."""
    if not folder.is_dir():
        raise NothingToRead(f"{folder} is no directory; give the directory that `edgebroker run --log-dir` writes to")
    try:
        found = sorted(path for path in folder.rglob("*") if path.suffix in (".edl", ".part") and path.is_file())
    except OSError as reason:
        raise NothingToRead(f"{folder} cannot be read: {reason.strerror}") from reason
    if not found:
        raise NothingToRead(f"{folder} has no delivery log (*.edl); a broker run with `--log-dir` writes them")
    return found


def read(spark: SparkSession, folder: Path) -> Tables:
    """The logs below *folder*. Files that are damaged contribute what is intact, and rows of `damage`."""
    root = folder.resolve()
    files = (
        spark.read.format("binaryFile")
        .option("pathGlobFilter", FILES)
        .option("recursiveFileLookup", "true")
        .load(str(root))
        .select("path", "content")
    )
    # Read once, use often: all measures read these rows, and decoding is the dearest step.
    rows = files.mapInArrow(partial(decoded, root=str(root)), union()).persist(StorageLevel.MEMORY_AND_DISK)
    return split(rows)


def split(rows: DataFrame) -> Tables:
    """The tables in *rows* of `schemas.union`."""
    origin = [column.name for column in ORIGIN]
    tables = {
        table.name: rows.where(rows[table.name].isNotNull()).select(
            *origin, *(rows[table.name][column.name].alias(column.name) for column in table.columns)
        )
        for table in READ
    }
    return Tables(**tables)


def decoded(batches: Iterable[pa.RecordBatch], *, root: str) -> Iterator[pa.RecordBatch]:
    """Rows of `schemas.union` for batches of (path, content). Runs in Spark's workers."""
    for batch in batches:
        for row in range(batch.num_rows):
            path = unquote(urlsplit(batch.column(0)[row].as_py()).path)
            for part in parts(path.removeprefix(root).lstrip("/"), batch.column(1)[row].as_py()):
                yield arrow(part)


def parts(file: str, data: bytes) -> Iterator[Part]:
    """Everything in one file: its blocks, then its damage, then the row about the file itself. No damage is dropped."""
    try:
        header, damage = read_header(data)
    except LogDamaged as reason:
        header, damage = None, [Damage(-1, 0, str(reason))]
    origin = ("", "", file, 0) if header is None else (header.node, header.boot, file, header.sample_qos0)
    growing = file.endswith(".part")
    records, sequences = 0, []
    for item in iter_blocks(data, growing=growing) if header is not None else ():
        if isinstance(item, Damage):
            damage.append(item)
            continue
        sequences.append(item.head.sequence)
        table = next((table for table in READ if table.name == item.table), None)
        if table is not None:  # else a table of the future
            records += item.head.rows
            yield Part(table, origin, item.columns)
    if damage:
        yield Part(
            DAMAGE, origin, on_end([(d.block, d.offset, d.reason, known(d.rows_lost), d.table) for d in damage], DAMAGE)
        )
    # The reader reports a missing footer at the very end of the file, and nothing else there.
    damages = sum(1 for item in damage if header is None or item.offset < len(data))
    unclosed = growing or damages < len(damage)
    began = (0, 0) if header is None else (header.t_us, header.unix_us)
    ends = (sequences[0], sequences[-1]) if sequences else (0, -1)
    yield Part(
        SEGMENT, origin, on_end([(int(unclosed), damages, *began, len(data), records, len(sequences), *ends)], SEGMENT)
    )


def on_end(rows: list[tuple[Any, ...]], table: Table) -> Columns:
    """*rows* of *table* as columns."""
    return {column.name: [row[at] for row in rows] for at, column in enumerate(table.columns)}


def known(count: int | None) -> int:
    """-1 for a number that nobody knows."""
    return -1 if count is None else count


def arrow(part: Part) -> pa.RecordBatch:
    """*part* as rows of `schemas.union`."""
    rows = len(part.columns[part.table.columns[0].name])
    arrays: list[pa.Array] = [
        pa.array([value] * rows, ARROW_TYPES[column.type]) for column, value in zip(ORIGIN, part.origin, strict=True)
    ]
    for table in READ:
        fields = [pa.field(column.name, ARROW_TYPES[column.type], nullable=False) for column in table.columns]
        if table is part.table:
            columns = [pa.array(part.columns[column.name], ARROW_TYPES[column.type]) for column in table.columns]
            arrays.append(pa.StructArray.from_arrays(columns, fields=fields))
        else:
            arrays.append(pa.nulls(rows, pa.struct(fields)))
    return pa.RecordBatch.from_arrays(
        arrays, names=[*(column.name for column in ORIGIN), *(table.name for table in READ)]
    )
