"""Regions: sets of values of one attribute, of any types, exact for the values that an event can have.

All values are ordered on one line: NULL, the composite values, numbers, strings, booleans. A *span* contains the values
from one cut up to the next; a *cut* `(kind, value)` lies just before a value, `(kind,)` before all values of a type.
There is no cut after a value: the values above 5 begin at the next number that an event can have, so `a > 5` and `a >=
5.000000000000001` are the same region, and a range between two adjacent numbers is recognised as empty.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, TypeAlias

from edgebroker.filters.elementary import Cut, Span, common, gaps, merged
from edgebroker.filters.patterns import successor
from edgebroker.predicate import COMPOSITE, Bound, ElementaryTest, Interval, Value, ValueType, kind_of

Region: TypeAlias = tuple[Span, ...]
"""Spans in order; none is empty, no two touch. Equal sets are equal regions."""

EVERYTHING: Final[Region] = (((ValueType.NULL,), (ValueType.BOOLEAN + 1,)),)
"""All values, and NULL."""
PRESENT: Final[Region] = (((ValueType.NOT_NULL,), (ValueType.BOOLEAN + 1,)),)
"""All values without NULL. The composite ones are at the number of NOT_NULL."""

_COMPARABLE: Final[Region] = (((ValueType.NUMBER,), (ValueType.BOOLEAN + 1,)),)
_BEGINNINGS: Final[tuple[Cut, ...]] = tuple((kind,) for kind in range(ValueType.BOOLEAN + 2))
"""The cuts before all values of each type, and after the last: one object for thousands of half-open ranges."""
_FLOAT_WHOLE_MIN: Final = 2**53
"""From here on whole numbers, which are exact, are closer together than doubles."""


def whole(kind: ValueType) -> Region:
    """Return all values of *kind*: NULL, NUMBER, STRING or BOOLEAN."""
    return (((kind,), (kind + 1,)),)


def region_of(test: ElementaryTest) -> Region:
    """Return the values that the type and the intervals of *test* accept; its patterns may accept fewer."""
    if test.kind is ValueType.NULL:
        return whole(ValueType.NULL)
    if test.kind is ValueType.NOT_NULL:
        return PRESENT
    if len(test.intervals) == 1:  # of most tests
        low, high = _span(test.kind, test.intervals[0])
        return ((low, high),) if low < high else ()
    return tuple(merged(_span(test.kind, interval) for interval in test.intervals))


def point(value: Bound) -> Region:
    """Return the region of *value* alone."""
    return (_span(kind_of(value), Interval(value, True, value, True)),)


def beginning_with(prefix: str) -> Region:
    """Return the strings that begin with *prefix*."""
    return (_span(ValueType.STRING, Interval(prefix, True, successor(prefix), False)),)


def union(regions: Iterable[Region]) -> Region:
    """Return the values in any of *regions*."""
    return tuple(merged(span for region in regions for span in region))


def intersection(one: Region, other: Region) -> Region:
    """Return the values in both regions. Time is linear in both lengths."""
    if other is EVERYTHING:
        return one
    return tuple(common(one, other))


def difference(one: Region, other: Region) -> Region:
    """Return the values in *one* and not in *other*."""
    return intersection(one, tuple(gaps(other, EVERYTHING[0])))


def includes(wide: Region, narrow: Region) -> bool:
    """Return whether *wide* contains all of *narrow*."""
    at = 0
    for low, high in narrow:
        while at < len(wide) and wide[at][1] < high:
            at += 1
        if at == len(wide) or low < wide[at][0]:
            return False
    return True


def point_of(span: Span) -> tuple[Bound] | None:
    """Return the single value in *span*, of numbers, strings or booleans; None if there are more."""
    low, high = span
    if len(low) > 1:
        return (low[1],) if high == _above(low[0], low[1]) else None
    if low == (ValueType.STRING,):
        return ("",) if high == (ValueType.STRING, "\0") else None
    return (False,) if low == (ValueType.BOOLEAN,) and high == (ValueType.BOOLEAN, True) else None


def example_of(region: Region) -> Value:
    """Return a value in *region*, which is not empty: NULL if possible, otherwise a short one that can be compared."""
    if region[0][0] == (ValueType.NULL,):
        return None
    low, high = (intersection(region, _COMPARABLE) or region)[0]
    match low[0]:
        case ValueType.NOT_NULL:
            return COMPOSITE
        case ValueType.NUMBER:
            return _number(low, high)
        case ValueType.STRING:
            text: str = low[1] if len(low) > 1 else ""
            readable = text.removesuffix("\0") + "a" if not text or text.endswith("\0") else text
            return readable if low <= (ValueType.STRING, readable) < high else text
        case _:
            return len(low) > 1


def _number(low: Cut, high: Cut) -> int | float:
    """Return a number from *low* on and below *high*, with few digits."""
    if len(low) == 1:
        return 0 if high > (ValueType.NUMBER, 0) else math.floor(high[1]) - 1
    least: int | float = low[1]
    if isinstance(least, float) and abs(least) < _FLOAT_WHOLE_MIN:
        for digits in range(10):
            rounded = math.ceil(least) if digits == 0 else round(least + 0.5 * 10**-digits, digits)
            if low <= (ValueType.NUMBER, rounded) < high:
                return rounded
    return least


def _span(kind: ValueType, interval: Interval) -> Span:
    low: Cut = _BEGINNINGS[kind] if interval.low is None else _cut(kind, interval.low, after=not interval.low_closed)
    high: Cut = (
        _BEGINNINGS[kind + 1] if interval.high is None else _cut(kind, interval.high, after=interval.high_closed)
    )
    return low, high


def _cut(kind: ValueType, value: Bound, *, after: bool) -> Cut:
    if after:
        return _above(kind, value)
    return (kind,) if value is False or value == "" else (kind, value)


def _above(kind: int, value: Bound) -> Cut:
    """Return the cut before the least value greater than *value*. Bounds are finite: the language has no infinity."""
    if isinstance(value, bool):
        return (kind + 1,) if value else (kind, True)
    if isinstance(value, str):
        return kind, value + "\0"
    return kind, math.nextafter(value, math.inf) if abs(value) < _FLOAT_WHOLE_MIN else int(value) + 1
