"""The algebra that all measures share.

A measure's *state* is a sufficient statistic: keys and totals. Two states, of two days or of two sites, add by adding
the totals of equal keys, and the law is: the states of the parts, merged, are the state of the whole. So yesterday
need not be read again today. (The idea is that of deequ, "unit tests for data".)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from edgebroker.log_schema import SUM_MODULUS

from ..ingest import Tables

Addition: TypeAlias = Callable[[str], Column]
"""How the values of a column of that name add."""


def modular_sum(name: str) -> Column:
    """The sum modulo `SUM_MODULUS`. Decimals have room for 10**18 summands, where 64 bits overflow with the third."""
    return (F.sum(F.col(name).cast("decimal(20,0)")) % F.lit(Decimal(SUM_MODULUS))).cast("bigint")


@dataclass(frozen=True, slots=True)
class Measure:
    """What is counted, and how the counts become a table."""

    name: str
    keys: tuple[str, ...]
    totals: Mapping[str, Addition]
    facts: Callable[[Tables], DataFrame]
    """The rows that count: keys and totals, not yet added up."""
    finish: Callable[[DataFrame], DataFrame]
    """The state as the table that people read."""

    def state(self, tables: Tables) -> DataFrame:
        """The state of *tables*."""
        return self.merge(self.facts(tables))

    def merge(self, *states: DataFrame) -> DataFrame:
        """The sum of *states*, which may be none but facts."""
        rows = reduce(DataFrame.unionByName, states)
        return rows.groupBy(*self.keys).agg(*(add(name).alias(name) for name, add in self.totals.items()))

    def compute(self, tables: Tables) -> DataFrame:
        """The finished table of *tables*."""
        return self.finish(self.state(tables))
