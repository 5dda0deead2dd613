"""Selectivity: the share of messages that a subscription's content filter accepted of those whose topic matched."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..ingest import Tables
from .measure import Measure


def facts(tables: Tables) -> DataFrame:
    """Return every record of the filter table."""
    return tables.filter.select("node", "subscriber", "filter", "evaluated", "matched")


def finish(state: DataFrame) -> DataFrame:
    """Add `ratio`, matched / evaluated; null where nothing was evaluated."""
    ratio = F.when(F.col("evaluated") > 0, F.col("matched").cast("double") / F.col("evaluated").cast("double"))
    return state.select("node", "subscriber", "filter", "evaluated", "matched", ratio.alias("ratio"))


SELECTIVITY = Measure(
    "selectivity", ("node", "subscriber", "filter"), {"evaluated": F.sum, "matched": F.sum}, facts, finish
)
