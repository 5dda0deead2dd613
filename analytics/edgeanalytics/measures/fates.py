"""Fates of messages and copies, counted by QoS and cause from the digests: exact even if rows are sampled."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..ingest import Tables
from .measure import Measure


def facts(tables: Tables) -> DataFrame:
    """Return every digest."""
    return tables.digest.select("qos", "fate", "cause", "count")


def finish(state: DataFrame) -> DataFrame:
    """Return the counts with the fate numbers of `edgebroker.log_schema`; PUBLISHED and FILTERED count messages, the
    others copies.
    """
    return state.select("qos", "fate", "cause", "count")


FATES = Measure("fates", ("qos", "fate", "cause"), {"count": F.sum}, facts, finish)
