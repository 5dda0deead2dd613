"""Latency per QoS: the time from the acceptance of a message by this broker to the delivery of a copy.

Delivery is, with QoS 0, the hand-over to the subscriber's socket, with QoS 1 and 2 its acknowledgement. The state is a
histogram at full resolution: percentiles are exact, and states can be added.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from edgebroker.log_schema import Fate

from ..ingest import Tables
from .fates import to_peer
from .measure import Measure

PERCENTILES = (50, 90, 99)

STEPS_US = tuple(step * 10**power for power in range(9) for step in (1, 2, 5))
"""The starts of the bars in the picture: 1 us to 500 s, three to a decade; the first bar is for 0."""


def facts(tables: Tables) -> DataFrame:
    """Return every copy that has a row and was delivered to a client; a peer gateway's log says when it delivered."""
    delivered = tables.delivery.where((F.col("fate") == int(Fate.DELIVERED)) & ~to_peer())
    return delivered.select("qos", "wait_us", F.lit(1).cast("bigint").alias("count"))


def percentile(percent: int) -> Column:
    """Return the percentile by nearest rank: the smallest wait that at least *percent* of the copies did not exceed."""
    reached = F.col("rank") * 100 >= F.col("all") * percent
    return F.min(F.when(reached, F.col("wait_us"))).alias(f"p{percent}_us")


def finish_percentiles(state: DataFrame) -> DataFrame:
    """Return one row per QoS."""
    ranked = state.select(
        "qos",
        "wait_us",
        F.sum("count").over(Window.partitionBy("qos").orderBy("wait_us")).alias("rank"),
        F.sum("count").over(Window.partitionBy("qos")).alias("all"),
    )
    return ranked.groupBy("qos").agg(
        F.max("all").alias("count"), *map(percentile, PERCENTILES), F.max("wait_us").alias("max_us")
    )


def finish_shape(state: DataFrame) -> DataFrame:
    """Return how many copies waited at least `from_us` and less than the next step."""
    steps = [F.when(F.col("wait_us") >= step, F.lit(step).cast("bigint")) for step in STEPS_US]
    return (
        state.select("qos", F.greatest(F.lit(0).cast("bigint"), *steps).alias("from_us"), "count")
        .groupBy("qos", "from_us")
        .agg(F.sum("count").alias("count"))
    )


LATENCY = Measure("latency", ("qos", "wait_us"), {"count": F.sum}, facts, finish_percentiles)
LATENCY_SHAPE = Measure("latency_shape", ("qos", "wait_us"), {"count": F.sum}, facts, finish_shape)
