"""Delivery logs become DataFrames: Spark's workers read every file once, block by block."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from edgebroker.errors import EdgebrokerError, LogDamaged
from edgebroker.log_schema import ColumnType, Table
from edgebroker.storage.deliverylog.reader import LogCorruption, is_final, iter_blocks, read_header

from .schemas import DAMAGE, ORIGIN, READ, SEGMENT, union

SUFFIXES = (".edl", ".edl.part")
"""The names of log files: closed ones, and those that a broker is still writing or left behind."""

FILE_BYTES_MAX = 256 * 2**20  # a segment has a few MiB; a worker holds a whole file in memory
FILES_PER_CORE = 4  # tasks per core, so that a large file does not keep one core busy while the other is idle

ARROW_TYPES = {ColumnType.INT: pa.int64(), ColumnType.TEXT: pa.string()}

Columns = dict[str, list[Any]]


class NothingToRead(EdgebrokerError):
    """There is no delivery log in the folder, or part of the folder cannot be read."""


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


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows of one table of one file."""

    table: Table
    origin: tuple[str, str, str, int]
    """node, boot, file, sample_qos0"""
    columns: Columns


def paths(folder: Path) -> list[Path]:
    """Return the log files below *folder*, sorted: closed ones, and those that a broker is still writing or left
    behind.

    Raises NothingToRead if there are none, or if a subfolder cannot be listed for lack of rights.
    """
    if not folder.is_dir():
        raise NothingToRead(f"{folder} is no directory; give the directory that `edgebroker run --log-dir` writes to")
    try:
        found = sorted(path for path in files(folder) if path.name.endswith(SUFFIXES) and path.is_file())
    except OSError as reason:
        raise NothingToRead(f"{reason.filename or folder} cannot be read: {reason.strerror}") from reason
    if not found:
        raise NothingToRead(f"{folder} has no delivery log (*.edl); a broker run with `--log-dir` writes them")
    return found


def files(folder: Path) -> Iterator[Path]:
    """Yield every file below *folder*, also in linked directories, each once.

    Raises OSError for a folder that cannot be listed: if it were skipped, its losses would not be reported.
    """

    def failed(error: OSError) -> None:
        if Path(error.filename or "").name != "lost+found":  # it belongs to root and exists on every ext4 card
            raise error

    seen = set()
    for inside, below, names in os.walk(folder, onerror=failed, followlinks=True):
        real = os.path.realpath(inside)
        if real in seen:
            below.clear()
            continue
        seen.add(real)
        yield from (Path(inside, name) for name in names)


def read(spark: SparkSession, folder: Path) -> Tables:
    """Read the logs below *folder*. Damaged files contribute their intact blocks, and rows of `damage`."""
    root = folder.resolve()
    found = [(path.as_posix(), path.relative_to(root).as_posix()) for path in paths(root)]
    # Spark's own file source is not used: it silently skips names that begin with "_", and a log that is skipped looks
    # like a log without losses.
    # read is a log without losses.
    tasks = min(len(found), FILES_PER_CORE * spark.sparkContext.defaultParallelism)
    files = spark.createDataFrame(found, "path string, file string").repartition(tasks)
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
    """Decode batches of (path, file) into rows of `schemas.union`. Runs in Spark's workers."""
    for batch in batches:
        for path, file in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            yield from map(arrow, parts(file, content(Path(path))))


def content(path: Path) -> bytes | str:
    """Return the bytes of a file, or the reason why it cannot be read, such as a rename by a running broker."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            return f"larger than {FILE_BYTES_MAX // 2**20} MiB: no delivery log"
        return path.read_bytes()
    except OSError as reason:
        return f"cannot be read: {reason.strerror}"


def parts(file: str, read: bytes | str) -> Iterator[Part]:
    """Yield the contents of one file: its blocks, then its damage, then the row about the file itself. No damage is
    dropped.

    file: the path below the log directory. read: the return value of `content`.
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
    records, sequences = 0, []
    for item in iter_blocks(data, growing=growing) if header is not None else ():
        if isinstance(item, LogCorruption):
            damage.append(item)
            continue
        sequences.append(item.head.sequence)
        table = next((table for table in READ if table.name == item.table), None)
        if table is not None:  # otherwise it is a table of a later version
            records += item.head.rows
            yield Part(table, origin, item.columns)
    if damage:
        yield Part(
            DAMAGE, origin, on_end([(d.block, d.offset, d.reason, known(d.rows_lost), d.table) for d in damage], DAMAGE)
        )
    # The reader reports only a missing footer at the very end of the file.
    damages = sum(1 for item in damage if header is None or item.offset < len(data))
    unclosed = growing or damages < len(damage)
    began = (0, 0) if header is None else (header.t_us, header.unix_us)
    ends = (sequences[0], sequences[-1]) if sequences else (0, -1)
    final = is_final(data, growing=growing)
    facts = (int(unclosed), int(final), damages, *began, len(data), records, len(sequences), *ends)
    yield Part(SEGMENT, origin, on_end([facts], SEGMENT))


def on_end(rows: list[tuple[Any, ...]], table: Table) -> Columns:
    """Return *rows* of *table* as columns."""
    return {column.name: [row[at] for row in rows] for at, column in enumerate(table.columns)}


def known(count: int | None) -> int:
    """Return *count*, or -1 if the number is unknown."""
    return -1 if count is None else count


def arrow(part: Part) -> pa.RecordBatch:
    """Return *part* as rows of `schemas.union`."""
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
