"""Spark computes all figures of a log directory and returns them as plain rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from edgebroker.log_schema import PEER_PREFIX

from . import ingest
from .inventory import Inventory, take_inventory
from .measures.audit import audit, by_state, differing, named, suspects
from .measures.fates import FATES, counts
from .measures.flows import FLOWS
from .measures.latency import LATENCY, LATENCY_SHAPE
from .measures.messages import MESSAGES
from .measures.parties import PUBLISHERS, SUBSCRIBERS
from .measures.runs import COMPLETE, RUNS, is_unjudged
from .measures.selectivity import SELECTIVITY
from .measures.throughput import clocks, span, throughput, width_for
from .session import job_progress

Row: TypeAlias = dict[str, Any]
Figures: TypeAlias = dict[str, list[Row]]
"""Table name -> rows in a fixed order."""

ROWS_MAX = 1_000
"""Rows of a table with one row per run, client, filter or file, as many as a browser shows without effort. No total is
a sum over them.
"""


@dataclass(frozen=True, slots=True)
class Shown:
    """The order and the limit of a table: by these columns, largest first, then by all columns."""

    largest: tuple[str, ...] = ()
    rows_max: int = ROWS_MAX
    judged_first: bool = False
    """Whether rows of complete runs come first."""


TABLES: Mapping[str, Shown] = {
    "extent": Shown(),
    "states": Shown(),
    "segments": Shown(largest=("damages",)),
    "damage": Shown(),
    "audit": Shown(largest=("lost", "duplicated", "open")),
    "flows": Shown(judged_first=True),
    "messages": Shown(judged_first=True),
    "fates": Shown(),
    "waiting": Shown(),
    "latency": Shown(),
    "latency_shape": Shown(),
    "throughput": Shown(rows_max=10_000),
    "selectivity": Shown(largest=("evaluated",)),
    "publishers": Shown(largest=("published",)),
    "subscribers": Shown(largest=("made",)),
}
"""Every table of a report."""


def compute(
    spark: SparkSession, folder: Path, progress: Callable[[str], None], inventory: Inventory | None = None
) -> Figures:
    """Compute the figures of the logs below *folder*; *progress* is called with a line before every step.

    inventory: that of the folder, if it was taken already.
    """
    inventory = inventory or take_inventory(folder, progress)
    tables = ingest.read(spark, inventory)
    found: Figures = {}

    def take(name: str, frame: DataFrame) -> None:
        found[name] = collect(frame, TABLES[name])

    progress("reading")
    with job_progress(spark, progress):
        take("segments", tables.segment)
    take("damage", tables.damage)
    found["extent"] = [
        {
            "files": tables.segment.count(),
            "damages": tables.damage.count(),
            "copied_blocks": inventory.copied_blocks,
        }
    ]
    runs = collected(spark, RUNS.compute(tables))
    pieces = collected(spark, clocks(tables))
    progress("counting")
    counted = replace(tables, digest=tables.digest)
    if not runs.where(is_unjudged()).isEmpty():
        unjudged = runs.where(is_unjudged()).select("node", "boot")
        counted = replace(tables, digest=counts(tables, unjudged).persist(StorageLevel.MEMORY_AND_DISK))
    take("fates", FATES.compute(counted))
    take("publishers", PUBLISHERS.compute(counted))
    subscribers = SUBSCRIBERS.compute(counted).persist(StorageLevel.MEMORY_AND_DISK)
    take("subscribers", subscribers)
    take("waiting", waiting(subscribers))
    take("selectivity", SELECTIVITY.compute(tables))
    progress("measuring latency and throughput")
    take("latency", LATENCY.compute(tables))
    take("latency_shape", LATENCY_SHAPE.compute(tables))
    take("throughput", over_time(tables, runs, pieces))
    progress("auditing")
    flows = FLOWS.compute(tables).persist(StorageLevel.MEMORY_AND_DISK)
    looked_at = collected(spark, suspects(tables, runs, flows))
    rows = tables.delivery.join(F.broadcast(looked_at), ["node", "boot"], "left_semi")
    if looked_at.isEmpty():
        rows = tables.delivery.where(F.lit(False))
    messages = MESSAGES.compute(replace(tables, delivery=rows)).persist(StorageLevel.MEMORY_AND_DISK)
    audited = collected(spark, audit(runs, counted.digest, flows, messages))
    take("audit", audited)
    take("states", by_state(audited))
    take("flows", differing(runs, flows))
    take("messages", named(runs, messages))
    return found


def collected(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """Return *frame*, computed once: it has a row per run or a few more, and several figures join it."""
    return spark.createDataFrame([tuple(row) for row in frame.collect()], frame.schema)


def waiting(subscribers: DataFrame) -> DataFrame:
    """Return the copies that wait, for clients and for peer gateways, from all rows of the table *subscribers*."""
    is_peer = F.col("subscriber").startswith(PEER_PREFIX).cast("bigint")
    return subscribers.groupBy(is_peer.alias("to_peer")).agg(F.sum("queued").alias("queued"))


def over_time(tables: ingest.Tables, runs: DataFrame, pieces: DataFrame) -> DataFrame:
    """Compute the throughput in steps that suit its span; from digests if a run has sampled rows."""
    sampled = runs.where((F.col("sample_qos0") != 1) & (F.col("records") > 0)).count() > 0
    ends = span(tables, pieces, sampled=sampled).first()
    assert ends is not None  # an aggregate without keys has one row
    width_s = 1 if ends["first_s"] is None else width_for(ends["first_s"], ends["last_s"], sampled=sampled)
    return (
        throughput(pieces, width_s, sampled=sampled)
        .compute(tables)
        .withColumn("width_s", F.lit(width_s).cast("bigint"))
    )


def collect(frame: DataFrame, shown: Shown) -> list[Row]:
    """Return the first rows of *frame* in the order that *shown* defines."""
    order = [*(F.desc(name) for name in shown.largest), *(F.asc_nulls_last(name) for name in frame.columns)]
    if shown.judged_first:
        order.insert(0, F.desc(F.col("state") == COMPLETE))
    return [row.asDict() for row in frame.orderBy(*order).limit(shown.rows_max).collect()]
