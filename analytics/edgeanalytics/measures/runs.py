"""Runs: how completely each broker's run was read, whether it can be judged, and the offset of its clock to
Unix time.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ..ingest import Tables
from .measure import Measure

COMPLETE = "complete"
"""The run ended cleanly and all of its blocks were read: differences are loss or duplicates."""
OPEN = "open"
"""No file is final: the broker is still running, or crashed. Missing records may yet be written, or never were."""
INCOMPLETE = "incomplete"
"""Blocks are damaged or missing: their records are unknown."""
OVERLAPPING = "overlapping"
"""Blocks occur twice, for instance in a copy of a file: nothing can be counted."""


def facts(tables: Tables) -> DataFrame:
    """Return the rows of files, and the readings of the wall clock at monotonic instants."""
    files = tables.segment.select(
        "node",
        "boot",
        "sample_qos0",
        F.lit(1).cast("bigint").alias("files"),
        "bytes",
        "records",
        "final",
        "damages",
        "blocks",
        (F.col("last_block") + 1).alias("blocks_end"),
        reading(),
    )
    nothing = [F.lit(0).cast("bigint").alias(name) for name in files.columns[3:-1]]
    anchors = tables.anchor.select("node", "boot", "sample_qos0", *nothing, reading())
    return files.unionByName(anchors)


def reading() -> Column:
    """Return the monotonic instant of a reading, and the offset of Unix time to it."""
    return F.struct(F.col("t_us"), (F.col("unix_us") - F.col("t_us")).alias("ahead_us")).alias("clock")


def finish(state: DataFrame) -> DataFrame:
    """Return one row per run. The last reading of the clock is used: a gateway's clock is usually corrected
    over time.
    """
    verdict = (
        F.when(F.col("blocks") > F.col("blocks_end"), OVERLAPPING)
        .when((F.col("damages") > 0) | (F.col("blocks") < F.col("blocks_end")), INCOMPLETE)
        .when(F.col("final") == 0, OPEN)
        .otherwise(COMPLETE)
    )
    return state.select(
        "node",
        "boot",
        verdict.alias("state"),
        "sample_qos0",
        "files",
        "bytes",
        "records",
        "damages",
        F.greatest(F.col("blocks_end") - F.col("blocks"), F.lit(0)).alias("blocks_missing"),
        F.col("clock.ahead_us").alias("ahead_us"),
    )


RUNS = Measure(
    name="runs",
    keys=("node", "boot"),
    totals={
        "sample_qos0": F.max,  # one broker has one; 0 only where a header is lost
        "files": F.sum,
        "bytes": F.sum,
        "records": F.sum,
        "final": F.max,
        "damages": F.sum,
        "blocks": F.sum,
        "blocks_end": F.max,
        "clock": F.max,
    },
    facts=facts,
    finish=finish,
)
