"""Flows: for every publisher, subscriber and QoS, whether every copy that was made has also ended.

Both sides are digests: count, sum and xor of message numbers. Equal digests mean equal sets of numbers. If one number
is missing or occurs twice, the difference of the sums is that number, and the difference of the xors confirms it.
"""

from __future__ import annotations

from decimal import Decimal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from edgebroker.log_schema import SUM_MODULUS, Fate

from ..ingest import Tables
from .measure import Measure, modular_sum

ENDS = (Fate.DELIVERED, Fate.EXPIRED, Fate.DROPPED, Fate.QUEUED)
"""Every copy ends with exactly one of these fates."""


def facts(tables: Tables) -> DataFrame:
    """Return every digest of copies, made or ended; of messages the count alone."""
    fate = F.col("fate")
    made, ended = fate == int(Fate.MATCHED), fate.isin([int(end) for end in ENDS])

    def only(condition: Column, name: str) -> Column:
        return F.when(condition, F.col(name)).otherwise(F.lit(0).cast("bigint"))

    return tables.digest.select(
        "node",
        "boot",
        "publisher",
        "subscriber",
        "qos",
        only(fate == int(Fate.PUBLISHED), "count").alias("published"),
        only(fate == int(Fate.FILTERED), "count").alias("filtered"),
        *(only(made, name).alias(f"made_{name}") for name in ("count", "sum", "xor")),
        *(only(ended, name).alias(f"ended_{name}") for name in ("count", "sum", "xor")),
    )


def finish(state: DataFrame) -> DataFrame:
    """Return the fewest lost and duplicated copies that explain the difference, and the message if it is a
    single one.
    """
    difference = F.col("made_count") - F.col("ended_count")
    modulus = F.lit(Decimal(SUM_MODULUS))
    gap = F.col("made_sum").cast("decimal(20,0)") - F.col("ended_sum").cast("decimal(20,0)")
    # The number that is missing, or, if the sign is reversed, the one that occurs twice.
    number = F.pmod(gap * F.signum(difference.cast("decimal(20,0)")).cast("int"), modulus).cast("bigint")
    xors_differ_by = F.col("made_xor").bitwiseXOR(F.col("ended_xor"))
    same = (F.col("made_sum") == F.col("ended_sum")) & (F.col("made_xor") == F.col("ended_xor"))
    single = (F.abs(difference) == 1) & (number == xors_differ_by)
    # Digests that differ although the counts are nearly equal: some numbers are missing, and as many others replace
    # them.
    masked = ((difference == 0) & ~same) | ((F.abs(difference) == 1) & ~single)
    one = F.when(masked, 1).otherwise(0)
    nothing = F.lit(0).cast("bigint")
    return state.select(
        "node",
        "boot",
        "publisher",
        "subscriber",
        "qos",
        "published",
        "filtered",
        F.col("made_count").alias("made"),
        F.col("ended_count").alias("ended"),
        (F.greatest(difference, nothing) + one).alias("lost"),
        (F.greatest(-difference, nothing) + one).alias("duplicated"),
        F.when(single, number).alias("message"),
    )


FLOWS = Measure(
    name="flows",
    keys=("node", "boot", "publisher", "subscriber", "qos"),
    totals={
        "published": F.sum,
        "filtered": F.sum,
        "made_count": F.sum,
        "made_sum": modular_sum,
        "made_xor": F.bit_xor,
        "ended_count": F.sum,
        "ended_sum": modular_sum,
        "ended_xor": F.bit_xor,
    },
    facts=facts,
    finish=finish,
)
