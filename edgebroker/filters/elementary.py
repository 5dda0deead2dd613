"""Elementary tests and sets of intervals: the values that one term accepts, and the union, intersection and
complement of such sets.

An interval lies between two *cuts*. A cut lies just before or just after a value, or before or after everything;
cuts are tuples that Python orders the right way, so no case of open and closed ends needs its own line.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias, assert_never

from edgebroker.filters.patterns import prefix_of, successor
from edgebroker.filters.syntax import Between, Comparison, InTest, Like, NullTest, Operator, Term
from edgebroker.predicate import ANY_RUN, Bound, ElementaryTest, Interval, Pattern, ValueType, kind_of

Intervals: TypeAlias = tuple[Interval, ...]
"""Sorted, disjoint, none empty, no two of them touching. All bounds are of one kind."""
Cut: TypeAlias = tuple[Any, ...]
_Span: TypeAlias = tuple[Cut, Cut]

_BEFORE, _AFTER = 0, 1
_START: Final[Cut] = (-1,)
_END: Final[Cut] = (1,)

EVERYTHING: Final[Intervals] = (Interval(),)
"""All values of a kind."""


def point(value: Bound) -> Interval:
    """The interval that holds *value* alone."""
    return Interval(value, True, value, True)


def union(intervals: Iterable[Interval]) -> Intervals:
    """Every value in any of *intervals*, which may overlap, be empty and come in any order."""
    merged: list[_Span] = []
    for low, high in sorted(span for span in map(_span, intervals) if span[0] < span[1]):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(map(_interval, merged))


def intersection(one: Intervals, other: Intervals) -> Intervals:
    """Every value in both. Time is linear in both lengths."""
    if one is EVERYTHING or other is EVERYTHING:  # as most patterns do: 10 us less
        return other if one is EVERYTHING else one
    common: list[_Span] = []
    left, right = [_span(interval) for interval in one], [_span(interval) for interval in other]
    i = j = 0
    while i < len(left) and j < len(right):
        low, high = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if low < high:
            common.append((low, high))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return tuple(map(_interval, common))


def complement(intervals: Intervals) -> Intervals:
    """Every value of the same kind that lies in none of *intervals*. For numbers and strings, not for booleans."""
    spans = [_span(interval) for interval in intervals]
    lows = [_START, *(high for _, high in spans)]
    highs = [*(low for low, _ in spans), _END]
    return tuple(_interval(gap) for gap in zip(lows, highs, strict=True) if gap[0] < gap[1])


def _span(interval: Interval) -> _Span:
    low = _START if interval.low is None else (0, interval.low, _BEFORE if interval.low_closed else _AFTER)
    high = _END if interval.high is None else (0, interval.high, _AFTER if interval.high_closed else _BEFORE)
    return low, high


def _interval(span: _Span) -> Interval:
    low, high = span
    return Interval(
        None if low is _START else low[1],
        low is not _START and low[2] == _BEFORE,
        None if high is _END else high[1],
        high is not _END and high[2] == _AFTER,
    )


def accepted_by(term: Term) -> ElementaryTest | None:
    """The one test that accepts exactly the values for which *term* is true; None if there are no such values."""
    match term:
        case Comparison(attribute, operator, value):
            return _test(attribute, kind_of(value), _compared(operator, value))
        case InTest(attribute, values, negated):
            return _test(attribute, kind_of(values[0]), _members(values, negated))
        case Between(attribute, low, high, negated):
            inside: Intervals = (Interval(low, True, high, True),) if low <= high else ()  # type: ignore[operator]
            return _test(attribute, kind_of(low), complement(inside) if negated else inside)
        case Like(attribute, parts, negated):
            return _like(attribute, parts, negated)
        case NullTest(attribute, negated):
            return ElementaryTest(attribute, ValueType.NOT_NULL if negated else ValueType.NULL)
        case _:
            assert_never(term)


def both(one: ElementaryTest, other: ElementaryTest) -> ElementaryTest | None:
    """The test of the same attribute that accepts what both accept; None if that is nothing."""
    if one.kind is not other.kind:
        if ValueType.NULL in (one.kind, other.kind):
            return None
        if one.kind is ValueType.NOT_NULL:
            return other
        return one if other.kind is ValueType.NOT_NULL else None
    if not one.intervals:
        return one
    return _test(one.attribute, one.kind, intersection(one.intervals, other.intervals), one.patterns + other.patterns)


def either(tests: Iterable[ElementaryTest]) -> list[ElementaryTest]:
    """As few tests of the same attribute as this module can make that together accept what any of *tests* does.

    An empty list means every event: a NULL test next to a NOT NULL test.
    """
    groups: dict[tuple[ValueType, tuple[Pattern, ...]], list[ElementaryTest]] = {}
    for test in tests:
        groups.setdefault((test.kind, test.patterns), []).append(test)
    kinds = {kind for kind, _ in groups}
    if ValueType.NOT_NULL in kinds:
        return [] if ValueType.NULL in kinds else [groups[ValueType.NOT_NULL, ()][0]]
    return [
        ElementaryTest(group[0].attribute, kind, union(i for test in group for i in test.intervals), patterns)
        for (kind, patterns), group in groups.items()
    ]


def implies(one: ElementaryTest, other: ElementaryTest) -> bool:
    """Whether *other* accepts whatever *one* accepts. May say False where patterns alone would decide."""
    if other.kind is ValueType.NOT_NULL:
        return one.kind is not ValueType.NULL
    if one.kind is not other.kind or (other.patterns and not set(other.patterns) <= set(one.patterns)):
        return False
    return intersection(one.intervals, other.intervals) == one.intervals


def _compared(operator: Operator, value: Bound) -> Intervals:
    if isinstance(value, bool):
        return (point(value is (operator is Operator.EQ)),)
    match operator:
        case Operator.EQ:
            return (point(value),)
        case Operator.NE:
            return complement((point(value),))
        case Operator.LT:
            return (Interval(high=value),)
        case Operator.LE:
            return (Interval(high=value, high_closed=True),)
        case Operator.GT:
            return (Interval(low=value),)
        case Operator.GE:
            return (Interval(low=value, low_closed=True),)
        case _:
            assert_never(operator)


def _members(values: tuple[Bound, ...], negated: bool) -> Intervals:
    if isinstance(values[0], bool):  # two values in all, so the complement is counted out, not cut out
        return tuple(point(truth) for truth in (False, True) if (truth in values) is not negated)
    listed = tuple(map(point, sorted(set(values))))
    return complement(listed) if negated else listed


def _like(attribute: str, parts: tuple[str | int, ...], negated: bool) -> ElementaryTest | None:
    """A pattern without wildcards is a value, `p%` is a range; any other keeps the range of its prefix beside it."""
    prefix = prefix_of(parts)
    after = successor(prefix)
    begun = (Interval(prefix, True, after, False),) if prefix else EVERYTHING
    patterns: tuple[Pattern, ...] = ()
    if not parts or parts == (prefix,):
        accepted: Intervals = (point(prefix),)
    elif parts in ((ANY_RUN,), (prefix, ANY_RUN)):
        accepted = begun
    elif negated:
        return _test(attribute, ValueType.STRING, EVERYTHING, (Pattern(parts, negated=True),))
    else:
        return _test(attribute, ValueType.STRING, begun, (Pattern(parts),))
    return _test(attribute, ValueType.STRING, complement(accepted) if negated else accepted, patterns)


def _test(
    attribute: str, kind: ValueType, intervals: Intervals, patterns: tuple[Pattern, ...] = ()
) -> ElementaryTest | None:
    """The test in its simplest form: patterns sorted, each once, and none where single values can be asked now."""
    if patterns:
        patterns = tuple(sorted(set(patterns), key=lambda pattern: (repr(pattern.parts), pattern.negated)))
        if len({pattern.parts for pattern in patterns}) < len(patterns):  # a pattern and its negation
            return None
        if all(interval.is_point for interval in intervals):
            likely = (interval for interval in intervals if _all_accept(patterns, interval.low))
            intervals, patterns = tuple(likely), ()
    return ElementaryTest(attribute, kind, intervals, patterns) if intervals else None


def _all_accept(patterns: tuple[Pattern, ...], value: Bound | None) -> bool:
    return isinstance(value, str) and all(pattern.accepts(value) for pattern in patterns)
