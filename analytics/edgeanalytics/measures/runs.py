"""Runs: how completely each broker's run was read, and whether it can be judged."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ..ingest import Tables
from .measure import Measure

COMPLETE = "complete"
"""The run ended cleanly and all of its blocks were read: differences are loss or duplicates."""
OPEN = "open"
"""No file is final: the broker is still running, or died and was not started again."""
DIED = "died"
"""The broker died, as its next start or its next run shows. Its last records were never written."""
INCOMPLETE = "incomplete"
"""Blocks are damaged or missing: their records are unknown."""


def facts(tables: Tables) -> DataFrame:
    """Return the row of every file."""
    offset = F.col("unix_us") - F.col("t_us")
    return tables.segment.select(
        "node",
        "boot",
        "sample_qos0",
        F.lit(1).cast("bigint").alias("files"),
        "bytes",
        "records",
        "final",
        "died",
        # A damaged copy of which nothing is needed does no harm.
        F.when((F.col("counted") > 0) | (F.col("blocks") == 0), F.col("damages")).otherwise(0).alias("damages"),
        "counted",
        "blocks_end",
        "t_us",
        "t_last_us",
        F.struct(F.col("t_us").alias("at_us"), offset.alias("ahead_us")).alias("clock"),
    )


def finish(state: DataFrame) -> DataFrame:
    """Return one row per run.

    `began_us` and `ended_us` are in Unix time by the clock that the last file states: it may have been corrected.
    """
    placed = state.withColumn("began_us", F.col("t_us") + F.col("clock.ahead_us")).withColumn(
        "ended_us", F.col("t_last_us") + F.col("clock.ahead_us")
    )
    later = Window.partitionBy("node").orderBy("began_us", "boot")
    placed = placed.withColumn("next_us", F.lead("began_us").over(later))
    missing = F.col("counted") < F.col("blocks_end")
    has_final = F.col("final") > 0
    is_known = (F.col("node") != "") | (F.col("boot") != "")
    has_died = (F.col("died") > 0) | (F.col("next_us") >= F.col("ended_us"))
    verdict = (
        F.when(~is_known | missing | (~has_final & (F.col("damages") > 0)), INCOMPLETE)
        .when(has_final, COMPLETE)
        .when(has_died, DIED)
        .otherwise(OPEN)
    )
    return placed.select(
        "node",
        "boot",
        verdict.alias("state"),
        "sample_qos0",
        "files",
        "bytes",
        "records",
        "damages",
        F.greatest(F.col("blocks_end") - F.col("counted"), F.lit(0).cast("bigint")).alias("blocks_missing"),
        "began_us",
        "ended_us",
    )


def is_unjudged() -> Column:
    """Return whether a run's missing copies are not called lost."""
    return F.col("state") != COMPLETE


RUNS = Measure(
    name="runs",
    keys=("node", "boot"),
    totals={
        "sample_qos0": F.max,  # one broker has one; 0 only where a header is lost
        "files": F.sum,
        "bytes": F.sum,
        "records": F.sum,
        "final": F.max,
        "died": F.max,
        "damages": F.sum,
        "counted": F.sum,
        "blocks_end": F.max,
        "t_us": F.min,
        "t_last_us": F.max,
        "clock": F.max,
    },
    facts=facts,
    finish=finish,
)
