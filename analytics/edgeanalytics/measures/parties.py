"""Parties: counts per publisher and per subscriber, from the digests: exact even if rows are sampled."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from edgebroker.log_schema import Fate, MessageOrigin

from ..ingest import Tables
from .fates import is_first
from .measure import Measure

OF_MESSAGES = (Fate.PUBLISHED, Fate.FILTERED)
RESUMED = "resumed"
"""Copies that were made in an earlier run of the broker, or before they waited on the disk."""
OF_COPIES = (Fate.MATCHED, Fate.DELIVERED, Fate.EXPIRED, Fate.DROPPED, Fate.QUEUED)


def name_of(fate: Fate) -> str:
    """Return the name of the column that counts *fate*."""
    return "made" if fate is Fate.MATCHED else fate.name.lower()


def counted(fate: Fate) -> Column:
    """Return the count of rows of *fate*, as a column of its name. Messages are counted where they were first."""
    is_one = F.col("fate") == int(fate)
    if fate in OF_MESSAGES:
        is_one &= is_first()
    return only(is_one).alias(name_of(fate))


def only(condition: Column) -> Column:
    """Return the count where *condition* is true, else 0."""
    return F.when(condition, F.col("count")).otherwise(F.lit(0).cast("bigint"))


def resumed() -> Column:
    """Return the count of copies that were made before."""
    again = (F.col("fate") == int(Fate.MATCHED)) & (F.col("origin") == int(MessageOrigin.RESUMED))
    return only(again).alias(RESUMED)


def publisher_facts(tables: Tables) -> DataFrame:
    """Return every digest."""
    return tables.digest.select("node", "publisher", *map(counted, (*OF_MESSAGES, *OF_COPIES)), resumed())


def subscriber_facts(tables: Tables) -> DataFrame:
    """Return every digest of copies; those of messages have no subscriber."""
    copies = tables.digest.where(F.col("subscriber") != "")
    return copies.select("node", "subscriber", *map(counted, OF_COPIES), resumed())


def copies_once(state: DataFrame) -> list[Column]:
    """Return the copies by fate, each counted once although it waited: when a run ends, and again in the next."""
    nothing = F.lit(0).cast("bigint")
    waiting = F.greatest(F.col("queued") - F.col(RESUMED), nothing)
    ended = reduce(Column.__add__, (F.col(name_of(fate)) for fate in OF_COPIES[1:-1]))
    # Of a run that died it may be known that copies ended, and not that they were made.
    made = F.greatest(F.col("made") - F.col(RESUMED), ended)
    return [made.alias("made"), *(F.col(name_of(fate)) for fate in OF_COPIES[1:-1]), waiting.alias("queued")]


def finish_publishers(state: DataFrame) -> DataFrame:
    """Return the messages published and filtered, and the copies made of the others."""
    return state.select("node", "publisher", *map(name_of, OF_MESSAGES), *copies_once(state))


def finish_subscribers(state: DataFrame) -> DataFrame:
    """Return the copies by fate."""
    return state.select("node", "subscriber", *copies_once(state))


PUBLISHERS = Measure(
    "publishers",
    ("node", "publisher"),
    dict.fromkeys((*map(name_of, (*OF_MESSAGES, *OF_COPIES)), RESUMED), F.sum),
    publisher_facts,
    finish_publishers,
)
SUBSCRIBERS = Measure(
    "subscribers",
    ("node", "subscriber"),
    dict.fromkeys((*map(name_of, OF_COPIES), RESUMED), F.sum),
    subscriber_facts,
    finish_subscribers,
)
