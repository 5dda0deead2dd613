"""Predicates: what a content filter becomes once it is normalised (link-matching section 1).

A *predicate* is a conjunction of *elementary tests*, at most one per attribute, sorted by attribute. A filter is a
disjunction of predicates. Negation is gone: every test states the values it accepts. This works because a comparison
with NULL or with a value of another type is unknown, and unknown never delivers: `NOT a > 3` accepts exactly the
*numbers* that are at most 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from edgebroker.event import Composite, Value

Bound: TypeAlias = bool | int | float | str


class Kind(IntEnum):
    """Which values an elementary test can accept."""

    NULL = 0
    """The attribute is absent or null."""
    NOT_NULL = 1
    """The attribute has any value, composite ones included."""
    NUMBER = 2
    """A number (not a boolean) in one of the intervals."""
    STRING = 3
    """A string in one of the intervals (by code point) that also satisfies all patterns."""
    BOOLEAN = 4
    """A boolean in one of the intervals."""


@dataclass(frozen=True, slots=True)
class Interval:
    """All values between `low` and `high`; None is unbounded. `low == high`, both closed, is a single value."""

    low: Bound | None = None
    low_closed: bool = False
    high: Bound | None = None
    high_closed: bool = False

    @property
    def is_point(self) -> bool:
        """Whether the interval holds exactly one value."""
        return self.low is not None and self.low_closed and self.high_closed and self.low == self.high

    def contains(self, value: Bound) -> bool:
        """Whether *value*, which must be of the kind of the bounds, lies inside."""
        if self.low is not None and not (self.low < value or (self.low_closed and self.low == value)):  # type: ignore[operator]
            return False
        return self.high is None or value < self.high or (self.high_closed and value == self.high)  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class Pattern:
    """A `LIKE` that is no plain prefix. `parts`: literal texts, ANY_RUN (`%`) and ANY_ONE (`_`) in order."""

    parts: tuple[str | int, ...]
    negated: bool = False

    def accepts(self, text: str) -> bool:
        """Whether *text* as a whole is like the pattern (or unlike it, if negated).

        Greedy matching with one point of return: time is at most len(text) times len(parts), never exponential.
        """
        return self._like(_characters(self.parts), text) is not self.negated

    @staticmethod
    def _like(wanted: list[str | int], text: str) -> bool:
        at = there = 0
        run_at, run_there = -1, 0
        while there < len(text):
            if at < len(wanted) and wanted[at] == ANY_RUN:
                run_at, run_there = at, there
                at += 1
            elif at < len(wanted) and (wanted[at] == ANY_ONE or wanted[at] == text[there]):
                at += 1
                there += 1
            elif run_at >= 0:
                run_there += 1
                at, there = run_at + 1, run_there
            else:
                return False
        return all(part == ANY_RUN for part in wanted[at:])


ANY_RUN = 0
"""In `Pattern.parts`: any run of characters, also none (`%`)."""
ANY_ONE = 1
"""In `Pattern.parts`: any one character (`_`)."""


def _characters(parts: tuple[str | int, ...]) -> list[str | int]:
    wanted: list[str | int] = []
    for part in parts:
        if isinstance(part, str):
            wanted.extend(part)
        else:
            wanted.append(part)
    return wanted


@dataclass(frozen=True, slots=True)
class ElementaryTest:
    """The values one predicate accepts for one attribute.

    `intervals` are sorted, disjoint and not empty for NUMBER, STRING and BOOLEAN, and `()` for NULL and NOT_NULL.
    `patterns` must all hold in addition (STRING only).
    """

    attribute: str
    kind: Kind
    intervals: tuple[Interval, ...] = ()
    patterns: tuple[Pattern, ...] = ()

    def accepts(self, value: Value) -> bool:
        """Whether *value* passes. The reference for every faster way to ask."""
        if self.kind is Kind.NULL:
            return value is None
        if value is None:
            return False
        if self.kind is Kind.NOT_NULL:
            return True
        if isinstance(value, Composite) or kind_of(value) is not self.kind:
            return False
        if not any(interval.contains(value) for interval in self.intervals):
            return False
        return all(pattern.accepts(value) for pattern in self.patterns)  # type: ignore[arg-type]


Predicate: TypeAlias = tuple[ElementaryTest, ...]
"""A conjunction, sorted by attribute, each attribute at most once. `()` accepts every event."""


def kind_of(value: bool | int | float | str) -> Kind:
    """The kind of a comparable value."""
    if isinstance(value, bool):
        return Kind.BOOLEAN
    return Kind.STRING if isinstance(value, str) else Kind.NUMBER
