"""Cells: the parts into which a column of a bucket, or a fork, divides the domain of one attribute [LM 2.7].

While a bucket's tests name few bounds, the cells are elementary: each test accepts whole cells only, and the cell of a
value decides the test. Beyond that the bounds are thinned out to quantiles and strings share cells; a test with bounds
inside a cell then *covers* that cell loosely, and its matches are verified. The sizes of buckets and of their columns
are the same for both kernels.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import inf, nextafter
from typing import Final, NamedTuple

from edgebroker.predicate import ElementaryTest, Interval, ValueType

STAR: Final = 0
"""The set of cells of the `*` edge: its leaves do not test the attribute, or accept most of its values."""
BUCKET_LIMIT: Final = 4096
"""The most leaves in a bucket."""
CUT_FIRST: Final = 24
"""The least leaves of a bucket with columns. Fewer are tested one by one, about 10 ns each."""
SAMPLE_MAX: Final = 512
"""Leaves examined to choose columns and forks. Their quantiles are within a few hundredths of those of all leaves."""
COLUMNS_MAX: Final = 16
"""Columns of a bucket: the attributes that most of its leaves test. Tests of other attributes are verified."""
CAPACITY_WORDS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Sizes of a bucket's rows, in words of 64 leaves."""


ABSENT: Final = 0
"""The cell of NULL."""
OTHERWISE: Final = 1
"""The cell of every value of a type that no test of the column is for, composite values included."""

CUTS_MAX: Final = 24
"""Cuts up to which number cells are elementary: twelve distinct values, or twenty-four thresholds. More are thinned out
to this many. Twenty-five cells cost three bytes per predicate and column; with ten thousand predicates of four ranges
each, 20 are verified for every 10 that match.
"""
STRING_CELLS_MAX: Final = 32
"""Strings up to which each has a cell of its own; more of them share this many. 2 + two booleans + other strings +
32 strings + 25 numbers = 62: a set of cells fits into a machine word.
"""
EXACT_INTEGER_MAX: Final = 2**53
"""Integers up to this one are exact as floats."""


class Cover(NamedTuple):
    """The cells that a test accepts, one bit each. `exact`: it accepts all of each of them."""

    cells: int
    exact: bool


class Cells:
    """The divided domain of one attribute."""

    __slots__ = (
        "attribute",
        "count",
        "cuts",
        "false_cell",
        "first_number",
        "first_string",
        "other_string",
        "strings",
        "strings_shared",
        "true_cell",
    )

    def __init__(
        self,
        attribute: int,
        cuts: Sequence[float] | None = None,
        strings: Sequence[int] | None = None,
        booleans: bool = False,
    ) -> None:
        """Divide the domain of the attribute with number *attribute*.

        cuts: ascending; cell n of the numbers is [cuts[n-1], cuts[n]). strings: their numbers. None: no test is for
        this type.
        """
        self.attribute = attribute
        self.cuts = tuple(cuts or ())
        self.strings_shared = strings is not None and len(strings) > STRING_CELLS_MAX
        self.strings = () if strings is None or self.strings_shared else tuple(strings)
        count = OTHERWISE + 1
        self.false_cell = self.true_cell = OTHERWISE
        if booleans:
            self.false_cell, self.true_cell = count, count + 1
            count += 2
        self.other_string = OTHERWISE
        self.first_string = count
        if strings is not None:
            self.other_string = count
            self.first_string = count + 1
            count += 1 + (STRING_CELLS_MAX if self.strings_shared else len(self.strings))
        self.first_number = OTHERWISE
        if cuts is not None:
            self.first_number = count
            count += len(self.cuts) + 1
        self.count = count

    @property
    def values(self) -> int:
        """The number of cells of values that can be compared."""
        return self.count - 1 - OTHERWISE

    def of_number(self, number: float) -> int:
        """Return the cell of *number*."""
        return self.first_number + (bisect_right(self.cuts, number) if self.cuts else 0)

    def of_string(self, string: int) -> int:
        """Return the cell of the string with number *string*, or UNKNOWN."""
        if self.strings_shared:
            return self.other_string if string < 0 else self.first_string + string % STRING_CELLS_MAX
        return self.first_string + self.strings.index(string) if string in self.strings else self.other_string

    def cover(self, test: ElementaryTest, texts: Sequence[str | None], numbers: dict[str, int]) -> Cover:
        """Return the cells of *test*. texts, numbers: the strings by number, and back."""
        if test.kind is ValueType.NULL:
            return Cover(1 << ABSENT, True)
        if test.kind is ValueType.NOT_NULL:
            return Cover((1 << self.count) - 1 & ~(1 << ABSENT), True)
        if test.kind is ValueType.BOOLEAN:
            accepted = 1 << self.false_cell if test.accepts(False) else 0
            return Cover(accepted | (1 << self.true_cell if test.accepts(True) else 0), self.false_cell != OTHERWISE)
        if test.kind is ValueType.NUMBER:
            return self._cover_numbers(test.intervals)
        return self._cover_strings(test, texts, numbers)

    def _cover_numbers(self, intervals: tuple[Interval, ...]) -> Cover:
        if self.first_number == OTHERWISE:
            return Cover(1 << OTHERWISE, False)
        covered, exact = 0, True
        for interval in intervals:
            low, low_exact = low_cut(interval)
            high, high_exact = high_cut(interval)
            first = 0 if low is None else bisect_right(self.cuts, low)
            last = len(self.cuts) if high is None else bisect_left(self.cuts, high)
            covered |= (1 << last + 1) - (1 << first)
            exact = exact and low_exact and high_exact
            exact = exact and (low is None or (first > 0 and self.cuts[first - 1] == low))
            exact = exact and (high is None or (last < len(self.cuts) and self.cuts[last] == high))
        return Cover(covered << self.first_number, exact)

    def _cover_strings(self, test: ElementaryTest, texts: Sequence[str | None], numbers: dict[str, int]) -> Cover:
        if self.other_string == OTHERWISE:
            return Cover(1 << OTHERWISE, False)
        named = points_of(test)
        if named is not None:
            strings = [numbers.get(text, -1) for text in named]
            covered = 0
            for string in strings:
                covered |= 1 << self.of_string(string)
            return Cover(covered, all(string in self.strings for string in strings))
        if self.strings_shared:
            every = (1 << STRING_CELLS_MAX) - 1 << self.first_string | 1 << self.other_string
            return Cover(every, test.intervals == (Interval(),) and not test.patterns)
        covered = 1 << self.other_string
        for cell, string in enumerate(self.strings, self.first_string):
            text = texts[string]
            if text is not None and test.accepts(text):
                covered |= 1 << cell
        holes = holes_of(test)
        return Cover(covered, holes is not None and all(numbers.get(text, -1) in self.strings for text in holes))

    def bytes(self) -> int:
        """Return the memory in bytes."""
        strings = sys.getsizeof(self.strings) if self.strings else 0
        return 120 + sys.getsizeof(self.cuts) + 24 * len(self.cuts) + strings


def low_cut(interval: Interval) -> tuple[float | None, bool]:
    """Return the cut at which *interval* begins (None: unbounded), and whether it begins exactly there."""
    if interval.low is None:
        return None, True
    cut, exact = as_float(interval.low)
    if interval.low_closed or not exact:
        return cut, exact
    return nextafter(cut, inf), cut != inf  # there is no cut beyond infinity


def high_cut(interval: Interval) -> tuple[float | None, bool]:
    """Return the cut at which the numbers beyond *interval* begin (None: unbounded), and whether they begin exactly
    there.
    """
    if interval.high is None:
        return None, True
    cut, exact = as_float(interval.high)
    if cut == inf and (interval.high_closed or not exact):
        return None, exact
    return (nextafter(cut, inf) if interval.high_closed or not exact else cut), exact


def as_float(number: object) -> tuple[float, bool]:
    """Return the float nearest to a number, and whether it is exact. Order is preserved: a < b never becomes a > b."""
    assert isinstance(number, (int, float))
    try:
        nearest = float(number)
    except OverflowError:
        return (inf if number > 0 else -inf), False
    return nearest + 0.0, nearest == number


def strings_of(test: ElementaryTest) -> list[str]:
    """Return the strings in the bounds of *test*, with repetitions."""
    if test.kind is not ValueType.STRING:
        return []
    return [bound for interval in test.intervals for bound in (interval.low, interval.high) if isinstance(bound, str)]


def points_of(test: ElementaryTest) -> tuple[str, ...] | None:
    """Return the strings that a STRING test names one by one; None if it names none or has patterns."""
    if test.patterns:
        return None
    named = tuple(interval.low for interval in test.intervals if interval.is_point and isinstance(interval.low, str))
    return named if len(named) == len(test.intervals) else None


def holes_of(test: ElementaryTest) -> tuple[str, ...] | None:
    """Return the strings that a STRING test excludes one by one; None if it excludes others too."""
    if test.patterns or test.intervals[0].low is not None or test.intervals[-1].high is not None:
        return None
    holes = []
    for below, above in pairwise(test.intervals):
        if below.high_closed or above.low_closed or below.high != above.low:
            return None
        assert isinstance(below.high, str)
        holes.append(below.high)
    return tuple(holes)


def thinned(cuts: list[float], thinned_to: int = CUTS_MAX, different_max: int = CUTS_MAX) -> list[float]:
    """Return the distinct ones of *cuts*, ascending; or *thinned_to* quantiles of them, weighted by multiplicity, if
    there are more than *different_max*.
    """
    cuts.sort()
    different = [cut for number, cut in enumerate(cuts) if not number or cut != cuts[number - 1]]
    if len(different) <= different_max:
        return different
    kept = [cuts[len(cuts) * part // (thinned_to + 1)] for part in range(1, thinned_to + 1)]
    return [cut for number, cut in enumerate(kept) if not number or cut != kept[number - 1]]
