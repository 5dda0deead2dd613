"""Fates of messages and copies, counted by QoS, cause and origin from the digests: exact even if rows are sampled.

Of runs that are not complete the fuller of digests and rows counts, minute by minute: a run that died has rows up to
its end, but no digests of its last minute; where rows are sampled or damaged, the digests have more.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from edgebroker.log_schema import DIGEST, PEER_PREFIX, Fate, MessageOrigin

from ..ingest import Tables
from .measure import Measure

FIRST = (MessageOrigin.CLIENT, MessageOrigin.WILL, MessageOrigin.BRIDGE)
"""Origins of messages that no other log, and no earlier row of this one, has counted."""

MINUTE_US = 60_000_000
KEYS = ("qos", "fate", "cause", "origin", "to_peer")


def to_peer() -> Column:
    """Return whether a copy is handed over to a peer gateway, which delivers it."""
    return F.col("subscriber").startswith(PEER_PREFIX)


def is_first() -> Column:
    """Return whether a message is counted here for the first time."""
    return F.col("origin").isin([int(origin) for origin in FIRST])


def facts(tables: Tables) -> DataFrame:
    """Return every digest."""
    return tables.digest.select("qos", "fate", "cause", "origin", to_peer().cast("bigint").alias("to_peer"), "count")


def finish(state: DataFrame) -> DataFrame:
    """Return the counts with the numbers of `edgebroker.log_schema`; PUBLISHED and FILTERED count messages, the others
    copies. `to_peer` is 1 for copies that are handed over to a peer gateway.
    """
    return state.select(*KEYS, "count")


FATES = Measure("fates", KEYS, {"count": F.sum}, facts, finish)

MINUTES = ["node", "boot", "minute"]


def counts(tables: Tables, unjudged: DataFrame) -> DataFrame:
    """Return rows with the columns of digests. *unjudged*: node and boot of the runs that are not complete.

    Copies made that only rows tell of have no subscriber.
    """
    columns = ["node", "boot", *(column.name for column in DIGEST.columns)]
    runs = F.broadcast(unjudged)
    digests = tables.digest.select(*columns)
    theirs = digests.join(runs, ["node", "boot"], "left_semi")
    minute = F.floor(F.col("t_us") / F.lit(MINUTE_US)).cast("bigint")
    rows = tables.delivery.join(runs, ["node", "boot"], "left_semi").withColumn("minute", minute)
    by_rows = rows.groupBy(*MINUTES).agg(F.count("*").alias("by_rows"))
    by_digests = (
        theirs.where(F.col("fate") != int(Fate.MATCHED)).groupBy(*MINUTES).agg(F.sum("count").alias("by_digests"))
    )
    is_fuller = F.col("by_rows") > F.coalesce("by_digests", F.lit(0))
    fuller = by_rows.join(by_digests, MINUTES, "left").where(is_fuller).select(*MINUTES)
    return (
        digests.join(runs, ["node", "boot"], "left_anti")
        .unionByName(theirs.join(fuller, MINUTES, "left_anti").select(*columns))
        .unionByName(counted(rows.join(fuller, MINUTES, "left_semi")).select(*columns))
    )


def counted(rows: DataFrame) -> DataFrame:
    """Return *rows* as digests of one message each, and for accepted messages also the copies that were made."""
    each = rows.select(
        *MINUTES,
        *("publisher", "subscriber", "qos", "fate", "cause", "origin"),
        F.lit(1).cast("bigint").alias("count"),
        F.col("message").alias("sum"),
        F.col("message").alias("xor"),
    )
    copied = rows.where((F.col("fate") == int(Fate.PUBLISHED)) & (F.col("copies") > 0))
    nothing = F.lit(0).cast("bigint")
    made = copied.select(
        *MINUTES,
        *("publisher", "subscriber", "qos"),
        F.lit(int(Fate.MATCHED)).cast("bigint").alias("fate"),
        nothing.alias("cause"),
        "origin",
        F.col("copies").alias("count"),
        nothing.alias("sum"),
        nothing.alias("xor"),
    )
    return each.unionByName(made)
