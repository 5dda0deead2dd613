"""Throughput: messages accepted and copies delivered, dropped and expired, over Unix time.

A gateway without a battery starts in 1970 until it hears what time it is; a suspended machine's monotonic clock stands
still; somebody sets the clock. So an event is placed by the reading of the clock that is nearest to it, and not all of
a run by one.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from edgebroker.log_schema import Fate

from ..ingest import Tables
from .fates import is_first, to_peer
from .measure import Measure

SHOWN = (Fate.PUBLISHED, Fate.DELIVERED, Fate.EXPIRED, Fate.DROPPED)
MINUTE_S = 60
MICROSECONDS = 1_000_000
POINTS_MAX = 240  # a step is then three pixels wide in the picture
WIDTHS_S = (1, 2, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 7_200, 21_600, 86_400)
"""Steps that are easy to read on a clock; beyond a day, whole days."""
STEP_US = 500_000
"""A smaller change of the offset is no step: two clocks are read one after the other, and may be slewed."""
PLAUSIBLE_US = 1_577_836_800_000_000
"""2020-01-01. A clock that shows less was not set; its readings count only where a run has no others."""
ALWAYS_US = 2**62
"""Beyond every monotonic instant."""


def facts_of_rows(tables: Tables, clocks: DataFrame, width_s: int) -> DataFrame:
    """Return every row at its own time: exact to the second if no rows are sampled."""
    return timed(tables.delivery.withColumn("count", F.lit(1).cast("bigint")), clocks, width_s)


def facts_of_digests(tables: Tables, clocks: DataFrame, width_s: int) -> DataFrame:
    """Return every digest at the start of its minute: complete even if rows are sampled."""
    return timed(tables.digest.withColumn("t_us", F.col("minute") * MINUTE_S * MICROSECONDS), clocks, width_s)


def timed(events: DataFrame, clocks: DataFrame, width_s: int) -> DataFrame:
    """Place *events* (node, boot, t_us, fate, origin, subscriber, count) on the wall clock by *clocks*, the pieces of
    their runs, in steps of *width_s* seconds. Messages of other gateways and copies for them are left out.
    """
    width_us = width_s * MICROSECONDS
    unix_us = F.col("t_us") + F.col("ahead_us")
    is_shown = F.col("fate").isin([int(fate) for fate in SHOWN]) & ~to_peer()
    return (
        events.where(is_shown & ((F.col("fate") != int(Fate.PUBLISHED)) | is_first()))
        .join(F.broadcast(clocks), ["node", "boot"], how="inner")
        .where((F.col("t_us") >= F.col("from_us")) & (F.col("t_us") < F.col("to_us")))
        .select(
            ((unix_us - F.pmod(unix_us, F.lit(width_us))) / MICROSECONDS).cast("bigint").alias("at_s"), "fate", "count"
        )
    )


def finish(state: DataFrame) -> DataFrame:
    """Return the sums; steps without events have no row."""
    return state.select("at_s", "fate", "count")


def throughput(pieces: DataFrame, width_s: int, *, sampled: bool) -> Measure:
    """Return the measure in steps of *width_s*, from digests if rows are *sampled*. *pieces*: see `clocks`."""
    source = facts_of_digests if sampled else facts_of_rows
    facts = partial(source, clocks=pieces, width_s=width_s)
    return Measure("throughput", ("at_s", "fate"), {"count": F.sum}, facts, finish)


def span(tables: Tables, clocks: DataFrame, *, sampled: bool) -> DataFrame:
    """Return one row: `first_s` and `last_s`, the range that `throughput` would show; null if it is empty."""
    source = facts_of_digests if sampled else facts_of_rows
    return source(tables, clocks, MINUTE_S if sampled else 1).agg(
        F.min("at_s").alias("first_s"), F.max("at_s").alias("last_s")
    )


def width_for(first_s: int, last_s: int, *, sampled: bool) -> int:
    """Return the finest step, in seconds, that shows the span in at most `POINTS_MAX` steps."""
    least = (last_s - first_s) // POINTS_MAX + 1
    day = WIDTHS_S[-1]
    steps = (width for width in WIDTHS_S if width >= least and (width >= MINUTE_S or not sampled))
    return next(steps, -(-least // day) * day)


def clocks(tables: Tables) -> DataFrame:
    """Return pieces of every run: from `from_us` on and before `to_us`, Unix time is `ahead_us` ahead.

    A piece begins in the middle between two readings with different offsets, and has the offset of its first reading.
    """
    readings = tables.segment.select("node", "boot", "t_us", "unix_us").unionByName(
        tables.anchor.select("node", "boot", "t_us", "unix_us")
    )
    run = Window.partitionBy("node", "boot")
    in_order = run.orderBy("t_us")
    is_set = F.col("unix_us") >= PLAUSIBLE_US
    usable = (
        readings.groupBy("node", "boot", "t_us")
        .agg(F.max("unix_us").alias("unix_us"))
        .withColumn("was_set", F.max(is_set).over(run))
        .where(is_set | ~F.col("was_set"))
    ).withColumn("ahead_us", F.col("unix_us") - F.col("t_us"))
    before = usable.withColumn("before_us", F.lag("t_us").over(in_order)).withColumn(
        "ahead_before_us", F.lag("ahead_us").over(in_order)
    )
    is_step = F.abs(F.col("ahead_us") - F.col("ahead_before_us")) > STEP_US
    pieces = before.where(F.col("before_us").isNull() | is_step).select(
        "node",
        "boot",
        "t_us",
        "ahead_us",
        F.when(F.col("before_us").isNull(), F.lit(-ALWAYS_US))
        .otherwise(F.expr("before_us + (t_us - before_us + 1) div 2"))
        .alias("from_us"),
    )
    ends = F.coalesce(F.lead("from_us").over(run.orderBy("t_us", "from_us", "ahead_us")), F.lit(ALWAYS_US))
    return pieces.select("node", "boot", "from_us", ends.alias("to_us"), "ahead_us")
