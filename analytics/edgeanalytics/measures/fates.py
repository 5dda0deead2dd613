"""Fates: what became of messages and copies, by QoS and cause. From the digests: exact even if rows are sampled."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..ingest import Tables
from .measure import Measure


def facts(tables: Tables) -> DataFrame:
    """Every digest."""
    return tables.digest.select("qos", "fate", "cause", "count")


def finish(state: DataFrame) -> DataFrame:
    """Numbers as in `edgebroker.log_schema`; PUBLISHED and FILTERED count messages, the others copies."""
    return state.select("qos", "fate", "cause", "count")


FATES = Measure("fates", ("qos", "fate", "cause"), {"count": F.sum}, facts, finish)
