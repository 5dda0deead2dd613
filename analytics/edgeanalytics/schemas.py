"""Spark's view of `edgebroker.log_schema`: derived, so that there is no second list of columns."""

from __future__ import annotations

from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from edgebroker.log_schema import TABLES, Column, ColumnType, Table

SEGMENT = Table(
    "segment",
    (
        Column("unclosed", ColumnType.INT),  # 1: not ended by a footer: still written, or its broker died
        Column("final", ColumnType.INT),  # 1: its run ended cleanly with this file
        Column("died", ColumnType.INT),  # 1: the next start of its broker found it unfinished
        Column("damages", ColumnType.INT),  # rows of `damage` but for the missing footer
        Column("t_us", ColumnType.INT),  # monotonic instant at which the file was begun
        Column("unix_us", ColumnType.INT),  # the wall clock at that instant
        Column("t_last_us", ColumnType.INT),  # monotonic instant of its last row; `t_us` if there are none
        Column("bytes", ColumnType.INT),
        Column("records", ColumnType.INT),  # in the blocks that are counted
        Column("blocks", ColumnType.INT),  # intact blocks
        Column("counted", ColumnType.INT),  # of them, those that are not counted with another file
        # sequence numbers over all files of a run; 0 and -1 if there are no blocks
        Column("first_block", ColumnType.INT),
        Column("last_block", ColumnType.INT),
        Column("blocks_end", ColumnType.INT),  # blocks of the run up to this file's end, as far as the file knows
    ),
)
"""One row per file."""

DAMAGE = Table(
    "damage",
    (
        Column("block", ColumnType.INT),  # in the file, from 0; -1: the file header or the file as a whole
        Column("offset", ColumnType.INT),
        Column("reason", ColumnType.TEXT),
        Column("records_lost", ColumnType.INT),  # -1: unknown
        Column("table", ColumnType.TEXT),  # "": unknown
    ),
)
"""One row per damage in a file."""

ORIGIN = (
    Column("node", ColumnType.TEXT),
    Column("boot", ColumnType.TEXT),
    Column("file", ColumnType.TEXT),  # path below the log directory
    Column("sample_qos0", ColumnType.INT),  # QoS 0 rows exist for message numbers divisible by this; 0: for none
)
"""The origin of a row: the first columns of every table."""

READ: tuple[Table, ...] = (SEGMENT, DAMAGE, *TABLES)
"""All tables that are read from a log directory."""

SPARK_TYPES: dict[ColumnType, DataType] = {ColumnType.INT: LongType(), ColumnType.TEXT: StringType()}


def struct(columns: tuple[Column, ...]) -> StructType:
    """Return the Spark type of *columns*; none of them is nullable."""
    return StructType([StructField(column.name, SPARK_TYPES[column.type], nullable=False) for column in columns])


def union() -> StructType:
    """Return the type of a row of any table: its origin, and the columns of its own table; the other tables are
    null.
    """
    tables = [StructField(table.name, struct(table.columns), nullable=True) for table in READ]
    return StructType([*struct(ORIGIN), *tables])
