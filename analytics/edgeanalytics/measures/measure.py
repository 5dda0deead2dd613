"""The algebra that all measures share.

A measure's *state* is a sufficient statistic: keys and totals. Two states, of two days or of two sites, are merged by
adding the totals of equal keys, and the law is: the states of the parts, merged, are the state of the whole. Therefore
yesterday's logs need not be read again today. (The idea is that of deequ, "unit tests for data".)
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
"""The aggregate that merges the values of a column of that name."""


def modular_sum(name: str) -> Column:
    """Return the sum modulo `SUM_MODULUS`. Decimals have room for 10**18 summands, 64 bits would overflow with the
    third.
    """
    return (F.sum(F.col(name).cast("decimal(20,0)")) % F.lit(Decimal(SUM_MODULUS))).cast("bigint")


@dataclass(frozen=True, slots=True)
class Measure:
    """A definition of a figure: the facts that are counted, and the table made of the counts."""

    name: str
    keys: tuple[str, ...]
    totals: Mapping[str, Addition]
    facts: Callable[[Tables], DataFrame]
    """Selects the rows to be counted: keys and totals, not yet added up."""
    finish: Callable[[DataFrame], DataFrame]
    """Turns the state into the table of the report."""

    def state(self, tables: Tables) -> DataFrame:
        """Return the state of *tables*."""
        return self.merge(self.facts(tables))

    def merge(self, *states: DataFrame) -> DataFrame:
        """Return the sum of *states*, each of which may also be facts that were not yet added up."""
        rows = reduce(DataFrame.unionByName, states)
        return rows.groupBy(*self.keys).agg(*(add(name).alias(name) for name, add in self.totals.items()))

    def compute(self, tables: Tables) -> DataFrame:
        """Return the finished table of *tables*."""
        return self.finish(self.state(tables))
