"""Parties: counts per publisher and per subscriber, from the digests: exact even if rows are sampled."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from edgebroker.log_schema import Fate

from ..ingest import Tables
from .measure import Measure

OF_MESSAGES = (Fate.PUBLISHED, Fate.FILTERED)
OF_COPIES = (Fate.MATCHED, Fate.DELIVERED, Fate.EXPIRED, Fate.DROPPED, Fate.QUEUED)


def name_of(fate: Fate) -> str:
    """Return the name of the column that counts *fate*."""
    return "made" if fate is Fate.MATCHED else fate.name.lower()


def counted(fate: Fate) -> Column:
    """Return the count of rows of *fate*, as a column of its name."""
    return F.when(F.col("fate") == int(fate), F.col("count")).otherwise(F.lit(0).cast("bigint")).alias(name_of(fate))


def publisher_facts(tables: Tables) -> DataFrame:
    """Return every digest."""
    return tables.digest.select("node", "publisher", *map(counted, (*OF_MESSAGES, *OF_COPIES)))


def subscriber_facts(tables: Tables) -> DataFrame:
    """Return every digest of copies; those of messages have no subscriber."""
    copies = tables.digest.where(~F.col("fate").isin([int(fate) for fate in OF_MESSAGES]))
    return copies.select("node", "subscriber", *map(counted, OF_COPIES))


def finish_publishers(state: DataFrame) -> DataFrame:
    """Return the messages published and filtered, and the copies made of the others."""
    return state.select("node", "publisher", *map(name_of, (*OF_MESSAGES, *OF_COPIES)))


def finish_subscribers(state: DataFrame) -> DataFrame:
    """Return the copies by fate."""
    return state.select("node", "subscriber", *map(name_of, OF_COPIES))


PUBLISHERS = Measure(
    "publishers",
    ("node", "publisher"),
    {name_of(fate): F.sum for fate in (*OF_MESSAGES, *OF_COPIES)},
    publisher_facts,
    finish_publishers,
)
SUBSCRIBERS = Measure(
    "subscribers",
    ("node", "subscriber"),
    {name_of(fate): F.sum for fate in OF_COPIES},
    subscriber_facts,
    finish_subscribers,
)
