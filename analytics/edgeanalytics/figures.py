"""Spark computes all figures of a log directory and returns them as plain rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from . import ingest
from .measures.audit import audit, differing, named
from .measures.fates import FATES
from .measures.flows import FLOWS
from .measures.latency import LATENCY, LATENCY_SHAPE
from .measures.messages import MESSAGES
from .measures.parties import PUBLISHERS, SUBSCRIBERS
from .measures.runs import RUNS
from .measures.selectivity import SELECTIVITY
from .measures.throughput import span, throughput, width_for

Row: TypeAlias = dict[str, Any]
Figures: TypeAlias = dict[str, list[Row]]
"""Table name -> rows in a fixed order."""

ROWS_MAX = 1_000
"""Rows of a table with one row per client, filter or file: the busiest, as many as a browser shows without effort."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The order and the limit of a table: by these columns, largest first, then by all columns."""

    largest: tuple[str, ...] = ()
    rows_max: int = ROWS_MAX


TABLES: Mapping[str, Shown] = {
    "segments": Shown(),
    "damage": Shown(),
    "audit": Shown(),
    "flows": Shown(),
    "messages": Shown(),
    "fates": Shown(),
    "latency": Shown(),
    "latency_shape": Shown(),
    "throughput": Shown(rows_max=10_000),
    "selectivity": Shown(largest=("evaluated",)),
    "publishers": Shown(largest=("published",)),
    "subscribers": Shown(largest=("made",)),
}
"""Every table of a report."""


def compute(spark: SparkSession, folder: Path, progress: Callable[[str], None]) -> Figures:
    """Compute the figures of the logs below *folder*; *progress* is called with a line before every step."""
    tables = ingest.read(spark, folder)
    found: Figures = {}

    def take(name: str, frame: DataFrame) -> None:
        found[name] = collect(frame, TABLES[name])

    progress("reading")
    take("segments", tables.segment)
    take("damage", tables.damage)
    runs_schema = RUNS.compute(tables)
    # It has one row per run, and three figures join it: compute it once.
    runs = spark.createDataFrame([tuple(row) for row in runs_schema.collect()], runs_schema.schema)
    progress("counting")
    take("fates", FATES.compute(tables))
    take("publishers", PUBLISHERS.compute(tables))
    take("subscribers", SUBSCRIBERS.compute(tables))
    take("selectivity", SELECTIVITY.compute(tables))
    progress("measuring latency and throughput")
    take("latency", LATENCY.compute(tables))
    take("latency_shape", LATENCY_SHAPE.compute(tables))
    take("throughput", over_time(tables, runs))
    progress("auditing")
    flows = FLOWS.compute(tables).persist(StorageLevel.MEMORY_AND_DISK)
    messages = MESSAGES.compute(tables).persist(StorageLevel.MEMORY_AND_DISK)
    take("audit", audit(runs, flows, messages))
    take("flows", differing(runs, flows))
    take("messages", named(runs, messages))
    return found


def over_time(tables: ingest.Tables, runs: DataFrame) -> DataFrame:
    """Compute the throughput in steps that suit its span; from digests if a run has sampled rows."""
    sampled = runs.where((F.col("sample_qos0") != 1) & (F.col("records") > 0)).count() > 0
    ends = span(tables, runs, sampled=sampled).first()
    assert ends is not None  # an aggregate without keys has one row
    width_s = 1 if ends["first_s"] is None else width_for(ends["first_s"], ends["last_s"], sampled=sampled)
    return (
        throughput(runs, width_s, sampled=sampled).compute(tables).withColumn("width_s", F.lit(width_s).cast("bigint"))
    )


def collect(frame: DataFrame, shown: Shown) -> list[Row]:
    """Return the first rows of *frame* in the order that *shown* defines."""
    order = [*(F.desc(name) for name in shown.largest), *(F.asc_nulls_last(name) for name in frame.columns)]
    return [row.asDict() for row in frame.orderBy(*order).limit(shown.rows_max).collect()]
