"""Throughput: messages accepted and copies delivered, dropped and expired, over Unix time."""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from edgebroker.log_schema import Fate

from ..ingest import Tables
from .measure import Measure

SHOWN = (Fate.PUBLISHED, Fate.DELIVERED, Fate.EXPIRED, Fate.DROPPED)
MINUTE_S = 60
MICROSECONDS = 1_000_000
POINTS_MAX = 240  # a step is then three pixels wide in the picture
WIDTHS_S = (1, 2, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 7_200, 21_600, 86_400)
"""Steps that are easy to read on a clock; beyond a day, whole days."""


def facts_of_rows(tables: Tables, runs: DataFrame, width_s: int) -> DataFrame:
    """Return every row at its own time: exact to the second if no rows are sampled."""
    return timed(tables.delivery.withColumn("count", F.lit(1).cast("bigint")), runs, width_s)


def facts_of_digests(tables: Tables, runs: DataFrame, width_s: int) -> DataFrame:
    """Return every digest at the start of its minute: complete even if rows are sampled."""
    return timed(tables.digest.withColumn("t_us", F.col("minute") * MINUTE_S * MICROSECONDS), runs, width_s)


def timed(events: DataFrame, runs: DataFrame, width_s: int) -> DataFrame:
    """Place *events* (node, boot, t_us, fate, count) on the wall clock of their *runs*, in steps of *width_s*
    seconds.
    """
    clocks = runs.select("node", "boot", "ahead_us")
    width_us = width_s * MICROSECONDS
    unix_us = F.col("t_us") + F.col("ahead_us")
    return (
        events.where(F.col("fate").isin([int(fate) for fate in SHOWN]))
        .join(F.broadcast(clocks), ["node", "boot"], how="inner")
        .select(
            ((unix_us - F.pmod(unix_us, F.lit(width_us))) / MICROSECONDS).cast("bigint").alias("at_s"), "fate", "count"
        )
    )


def finish(state: DataFrame) -> DataFrame:
    """Return the sums; steps without events have no row."""
    return state.select("at_s", "fate", "count")


def throughput(runs: DataFrame, width_s: int, *, sampled: bool) -> Measure:
    """Return the measure in steps of *width_s*, from digests if rows are *sampled*. *runs* is the table of that
    name.
    """
    source = facts_of_digests if sampled else facts_of_rows
    facts = partial(source, runs=runs, width_s=width_s)
    return Measure("throughput", ("at_s", "fate"), {"count": F.sum}, facts, finish)


def span(tables: Tables, runs: DataFrame, *, sampled: bool) -> DataFrame:
    """Return one row: `first_s` and `last_s`, the range that `throughput` would show; null if it is empty."""
    source = facts_of_digests if sampled else facts_of_rows
    return source(tables, runs, MINUTE_S if sampled else 1).agg(
        F.min("at_s").alias("first_s"), F.max("at_s").alias("last_s")
    )


def width_for(first_s: int, last_s: int, *, sampled: bool) -> int:
    """Return the finest step, in seconds, that shows the span in at most `POINTS_MAX` steps."""
    least = (last_s - first_s) // POINTS_MAX + 1
    day = WIDTHS_S[-1]
    steps = (width for width in WIDTHS_S if width >= least and (width >= MINUTE_S or not sampled))
    return next(steps, -(-least // day) * day)
