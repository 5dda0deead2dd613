"""The audit of every run: flows and messages are checked for loss and duplicates, as far as the run was read."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from edgebroker.log_schema import Cause, Fate, MessageOrigin

from ..ingest import Tables
from .flows import ENDS
from .messages import DUPLICATE, LOST, SPURIOUS, UNACCOUNTED
from .runs import COMPLETE, DIED, is_unjudged

NAMED_MAX = 20
"""The most messages listed per run and finding."""

MISSING = (LOST, UNACCOUNTED)
SURPLUS = (DUPLICATE, SPURIOUS)
TOTALS = ("published", "filtered", "made", "ended", "resumed")
HASH_BITS = 0x7FFF_FFFF
"""Sums of 10**9 hashes of so many bits stay below 2**63."""


def audit(runs: DataFrame, counts: DataFrame, flows: DataFrame, messages: DataFrame) -> DataFrame:
    """Return one row per run.

    `lost` and `duplicated` of complete runs are the larger of the counts from digests and from rows: digests cover
    every message, but a loss and a duplicate in one flow may hide each other; rows show every message, but only those
    that have rows. In other runs missing copies are `open`, and `duplicated` counts only copies that rows prove to have
    ended twice. Of the copies that a died run left open, those that the next run of its node resumed are not open.
    """
    by_flow = flows.groupBy("node", "boot").agg(
        F.sum("lost").alias("flow_missing"), F.sum("duplicated").alias("flow_surplus")
    )
    by_message = messages.groupBy("node", "boot").agg(
        counted(MISSING).alias("row_missing"),
        counted(SURPLUS).alias("row_surplus"),
        counted((DUPLICATE,)).alias("row_twice"),
    )
    joined = (
        runs.join(totals(counts), ["node", "boot"], how="left")
        .join(by_flow, ["node", "boot"], how="left")
        .join(by_message, ["node", "boot"], how="left")
        .na.fill(0, [*TOTALS, *by_flow.columns[2:], *by_message.columns[2:]])
    )
    nothing = F.lit(0).cast("bigint")
    complete = F.col("state") == COMPLETE
    is_known = (F.col("node") != "") | (F.col("boot") != "")
    later = Window.partitionBy("node").orderBy("began_us", "boot")
    resumed_next = F.when(F.col("state") == DIED, F.coalesce(F.lead("resumed").over(later), nothing)).otherwise(nothing)
    unended = F.greatest(F.col("made") - F.col("ended"), nothing)
    return joined.select(
        *runs.columns,
        *TOTALS,
        F.when(complete, F.greatest("flow_missing", "row_missing")).otherwise(nothing).alias("lost"),
        F.when(complete, F.greatest("flow_surplus", "row_surplus"))
        .when(is_known, F.col("row_twice"))
        .otherwise(nothing)
        .alias("duplicated"),
        F.when(complete, nothing).otherwise(F.greatest(unended - resumed_next, nothing)).alias("open"),
    )


def totals(counts: DataFrame) -> DataFrame:
    """Return messages and copies of every run, from *counts*, by what became of them."""
    fate = F.col("fate")
    made = fate == int(Fate.MATCHED)
    conditions = {
        "published": fate == int(Fate.PUBLISHED),
        "filtered": fate == int(Fate.FILTERED),
        "made": made,
        "ended": fate.isin([int(end) for end in ENDS]),
        "resumed": made & (F.col("origin") == int(MessageOrigin.RESUMED)),
    }
    return counts.groupBy("node", "boot").agg(
        *(F.sum(F.when(condition, F.col("count")).otherwise(0)).alias(name) for name, condition in conditions.items())
    )


def suspects(tables: Tables, runs: DataFrame, flows: DataFrame) -> DataFrame:
    """Return node and boot of the runs whose messages must be looked at one by one.

    That is the most expensive step. It can find nothing in a complete run in which the digests of all flows agree, and
    the rows about messages tell of the same copies as the rows about copies: their numbers, and sums of hashes of them.
    """
    differing = flows.groupBy("node", "boot").agg(F.max((F.col("lost") + F.col("duplicated")) > 0).alias("differs"))
    step = F.greatest(F.col("sample_qos0"), F.lit(1).cast("bigint"))
    sampled = (F.col("sample_qos0") > 0) & (F.col("message") % step == 0)
    is_message = F.col("fate") == int(Fate.PUBLISHED)
    ends = F.col("fate").isin([int(end) for end in ENDS]) & (F.col("cause") != int(Cause.HANDED_OVER))
    copies = F.when(is_message, F.col("copies")).when(ends, -1).otherwise(0)
    messages = F.when(is_message & (F.col("copies") == 0), 1).when(F.col("fate") == int(Fate.FILTERED), -1).otherwise(0)
    hashed = F.xxhash64("message").bitwiseAND(HASH_BITS)
    by_rows = (
        tables.delivery.where(sampled)
        .groupBy("node", "boot")
        .agg(F.sum(copies), F.sum(copies * hashed), F.sum(messages), F.sum(messages * hashed))
        .toDF("node", "boot", "copies", "copies_hash", "messages", "messages_hash")
    )
    uneven = F.greatest(*(F.abs(name) for name in by_rows.columns[2:])) > 0
    joined = runs.join(differing, ["node", "boot"], "left").join(by_rows, ["node", "boot"], "left")
    is_suspect = is_unjudged() | F.coalesce("differs", F.lit(False)) | F.coalesce(uneven, F.lit(False))
    return joined.where(is_suspect).select("node", "boot")


def counted(findings: tuple[str, ...]) -> Column:
    """Return the sum of the counts of *findings*."""
    return F.sum(F.when(F.col("finding").isin(list(findings)), F.col("count")).otherwise(F.lit(0).cast("bigint")))


def by_state(audit: DataFrame) -> DataFrame:
    """Return the sums over all runs, by their state."""
    sums = ("records", "lost", "duplicated", "open")
    return audit.groupBy("state").agg(F.count("*").alias("runs"), *(F.sum(name).alias(name) for name in sums))


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
