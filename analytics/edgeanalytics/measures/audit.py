"""The audit of every run: flows and messages are checked for loss and duplicates, as far as the run was read."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .messages import DUPLICATE, LOST, SPURIOUS, UNACCOUNTED
from .runs import COMPLETE, OVERLAPPING

NAMED_MAX = 20
"""The most messages listed per run and finding."""

MISSING = (LOST, UNACCOUNTED)
SURPLUS = (DUPLICATE, SPURIOUS)


def audit(runs: DataFrame, flows: DataFrame, messages: DataFrame) -> DataFrame:
    """Return one row per run.

    `lost` and `duplicated` of complete runs are the larger of the counts from digests and from rows: digests cover
    every message, but a loss and a duplicate in one flow may hide each other; rows show every message, but only those
    that have rows. In other runs missing copies are `open`, and `duplicated` counts only copies that rows prove to have
    ended twice.
    """
    by_flow = flows.groupBy("node", "boot").agg(
        *(F.sum(name).alias(name) for name in ("published", "filtered", "made", "ended")),
        F.sum("lost").alias("flow_missing"),
        F.sum("duplicated").alias("flow_surplus"),
    )
    by_message = messages.groupBy("node", "boot").agg(
        counted(MISSING).alias("row_missing"),
        counted(SURPLUS).alias("row_surplus"),
        counted((DUPLICATE,)).alias("row_twice"),
    )
    joined = (
        runs.join(by_flow, ["node", "boot"], how="left")
        .join(by_message, ["node", "boot"], how="left")
        .na.fill(0, [*by_flow.columns[2:], *by_message.columns[2:]])
    )
    complete = F.col("state") == COMPLETE
    missing = F.greatest("flow_missing", "row_missing")
    surplus = F.greatest("flow_surplus", "row_surplus")
    nothing = F.lit(0).cast("bigint")
    proven = F.when(F.col("state") != OVERLAPPING, F.col("row_twice")).otherwise(nothing)
    return joined.select(
        *runs.columns,
        "published",
        "filtered",
        "made",
        "ended",
        F.when(complete, missing).otherwise(nothing).alias("lost"),
        F.when(complete, surplus).otherwise(proven).alias("duplicated"),
        F.when(complete, nothing).otherwise(missing).alias("open"),
    )


def counted(findings: tuple[str, ...]) -> Column:
    """Return the sum of the counts of *findings*."""
    return F.sum(F.when(F.col("finding").isin(list(findings)), F.col("count")).otherwise(F.lit(0).cast("bigint")))


def named(runs: DataFrame, messages: DataFrame) -> DataFrame:
    """Return the first `NAMED_MAX` messages of every run and finding; `total` counts all of them."""
    kind = Window.partitionBy("node", "boot", "finding")
    return (
        messages.join(runs.select("node", "boot", "state"), ["node", "boot"], how="inner")
        .withColumn("rank", F.row_number().over(kind.orderBy("message")))
        .withColumn("total", F.count("message").over(kind))
        .where(F.col("rank") <= NAMED_MAX)
        .select("node", "boot", "state", "finding", "message", "count", "publisher", "topic", "subscribers", "total")
    )


def differing(runs: DataFrame, flows: DataFrame) -> DataFrame:
    """Return the first `NAMED_MAX` flows of every run whose two sides differ; `total` counts all of them."""
    run = Window.partitionBy("node", "boot")
    return (
        flows.where((F.col("lost") > 0) | (F.col("duplicated") > 0))
        .join(runs.select("node", "boot", "state"), ["node", "boot"], how="inner")
        .withColumn("rank", F.row_number().over(run.orderBy("publisher", "subscriber", "qos")))
        .withColumn("total", F.count("publisher").over(run))
        .where(F.col("rank") <= NAMED_MAX)
        .select(
            *("node", "boot", "state", "publisher", "subscriber", "qos"),
            *("made", "ended", "lost", "duplicated", "message", "total"),
        )
    )
