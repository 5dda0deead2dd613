"""Messages: for every message with rows, whether each of its copies ended exactly once.

The row of an accepted message holds the number of copies made; the message was filtered if and only if there are none.
A copy is identified by its subscriber and its subscription: a client may have one copy through a shared subscription
and one of its own. A copy that is handed over to another member of its group has not ended. One that waits has ended as
long as no other end follows: it may wait on the disk and be read again. Where rows of QoS 0 are sampled, missing rows
are judged only for the message numbers that the sample includes.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from edgebroker.log_schema import Cause, Fate

from ..ingest import Tables
from .flows import ENDS
from .measure import Measure

LOST = "lost"
"""Copies that were made and have not ended."""
UNACCOUNTED = "unaccounted"
"""The message was neither copied nor filtered."""
DUPLICATE = "duplicate"
"""Copies that ended more than once: delivered twice, or dropped and yet delivered."""
SPURIOUS = "spurious"
"""Ends of copies that were never made."""
LAST_ENDS = [int(fate) for fate in ENDS if fate is not Fate.QUEUED]


def facts(tables: Tables) -> DataFrame:
    """Return every row as the zeros and ones that it adds to its message and subscriber."""
    step = F.greatest(F.col("sample_qos0"), F.lit(1).cast("bigint"))
    sampled = (F.col("sample_qos0") > 0) & (F.col("message") % step == 0)
    return tables.delivery.select(
        "node",
        "boot",
        "message",
        "subscriber",
        "filter",
        "publisher",
        "topic",
        sampled.cast("bigint").alias("sampled"),
        one_if(F.col("fate") == int(Fate.PUBLISHED)).alias("published"),
        one_if(F.col("fate") == int(Fate.FILTERED)).alias("filtered"),
        "copies",
        one_if(F.col("fate").isin(LAST_ENDS) & (F.col("cause") != int(Cause.HANDED_OVER))).alias("ends"),
        one_if(F.col("fate") == int(Fate.QUEUED)).alias("queued"),
    )


def one_if(condition: Column) -> Column:
    """Return 1 where *condition* is true, else 0."""
    return condition.cast("bigint")


def finish(state: DataFrame) -> DataFrame:
    """Return one row per message and finding; `subscribers` lists those of duplicates, sorted, separated by ", "."""
    twice = F.col("ends") > 1
    messages = state.groupBy("node", "boot", "message").agg(
        F.max("publisher").alias("publisher"),
        F.max("topic").alias("topic"),
        F.max("sampled").alias("sampled"),
        F.sum("published").alias("published"),
        F.sum("filtered").alias("filtered"),
        F.sum("copies").alias("copies"),
        F.sum(one_if((F.col("ends") > 0) | (F.col("queued") > 0))).alias("ended"),
        F.sum(F.when(twice, F.col("ends") - 1).otherwise(0)).alias("repeats"),
        F.array_join(F.sort_array(F.collect_list(F.when(twice, F.col("subscriber")))), ", ").alias("subscribers"),
    )
    nothing = F.lit(0).cast("bigint")
    judged = (F.col("sampled") == 1) & (F.col("published") > 0)
    uncopied = (F.col("published") > 0) & (F.col("copies") == 0)
    counts = {
        LOST: F.when(judged, F.greatest(F.col("copies") - F.col("ended"), nothing)).otherwise(nothing),
        UNACCOUNTED: one_if(judged & uncopied & (F.col("filtered") == 0)),
        DUPLICATE: F.col("repeats") + F.greatest(F.col("published") - 1, nothing),
        SPURIOUS: F.greatest(F.col("ended") - F.col("copies"), nothing)
        + F.greatest(F.col("filtered") - one_if(uncopied), nothing),
    }
    found = F.array(*(F.struct(F.lit(name).alias("finding"), count.alias("count")) for name, count in counts.items()))
    return (
        messages.withColumn("found", F.explode(found))
        .where(F.col("found.count") > 0)
        .select(
            "node",
            "boot",
            "message",
            "found.finding",
            "found.count",
            "publisher",
            "topic",
            F.when(F.col("found.finding") == DUPLICATE, F.col("subscribers")).otherwise("").alias("subscribers"),
        )
    )


MESSAGES = Measure(
    name="messages",
    keys=("node", "boot", "message", "subscriber", "filter"),
    totals={
        "publisher": F.max,
        "topic": F.max,
        "sampled": F.max,
        "published": F.sum,
        "filtered": F.sum,
        "copies": F.sum,
        "ends": F.sum,
        "queued": F.sum,
    },
    facts=facts,
    finish=finish,
)
