"""Elementary tests and sets of intervals: the values that one term accepts, and the union, intersection and complement
of such sets.

An interval lies between two *cuts*. A cut lies just before or just after a value, or before or after everything; cuts
are tuples in the right order, so open and closed ends need no separate cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias, assert_never

from edgebroker.filters.patterns import prefix_of, successor
from edgebroker.filters.syntax import Between, Comparison, InTest, Like, NullTest, Operator, Term
from edgebroker.predicate import ANY_RUN, Bound, ElementaryTest, Interval, Pattern, ValueType, kind_of

Intervals: TypeAlias = tuple[Interval, ...]
"""Sorted, disjoint, none empty, no two of them touching. All bounds are of one type."""
Cut: TypeAlias = tuple[Any, ...]
Span: TypeAlias = tuple[Cut, Cut]

_BEFORE, _AFTER = 0, 1
_START: Final[Cut] = (-1,)
_END: Final[Cut] = (1,)

EVERYTHING: Final[Intervals] = (Interval(),)
"""All values of a type."""


def point(value: Bound) -> Interval:
    """Return the interval of *value* alone."""
    return Interval(value, True, value, True)


def union(intervals: Iterable[Interval]) -> Intervals:
    """Return all values in any of *intervals*, which may overlap, be empty and be in any order."""
    return tuple(map(_interval, merged(map(_span, intervals))))


def intersection(one: Intervals, other: Intervals) -> Intervals:
    """Return all values in both."""
    if one is EVERYTHING or other is EVERYTHING:  # true of most patterns; saves 10 us
        return other if one is EVERYTHING else one
    return tuple(map(_interval, common([*map(_span, one)], [*map(_span, other)])))


def complement(intervals: Intervals) -> Intervals:
    """Return all values of the same type in none of *intervals*. For numbers and strings, not for booleans."""
    return tuple(map(_interval, gaps([*map(_span, intervals)], (_START, _END))))


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return all that is in any of *spans*, which may overlap, be empty and be in any order."""
    joined: list[Span] = []
    for low, high in sorted(span for span in spans if span[0] < span[1]):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return joined


def common(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """Return all that is in both. Time is linear in both lengths."""
    found: list[Span] = []
    i = j = 0
    while i < len(one) and j < len(other):
        low, high = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if low < high:
            found.append((low, high))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return found


def gaps(spans: Sequence[Span], whole: Span) -> list[Span]:
    """Return all of *whole* that is in none of *spans*."""
    lows = [whole[0], *(high for _, high in spans)]
    highs = [*(low for low, _ in spans), whole[1]]
    return [gap for gap in zip(lows, highs, strict=True) if gap[0] < gap[1]]


def _span(interval: Interval) -> Span:
    low = _START if interval.low is None else (0, interval.low, _BEFORE if interval.low_closed else _AFTER)
    high = _END if interval.high is None else (0, interval.high, _AFTER if interval.high_closed else _BEFORE)
    return low, high


def _interval(span: Span) -> Interval:
    low, high = span
    return Interval(
        None if low is _START else low[1],
        low is not _START and low[2] == _BEFORE,
        None if high is _END else high[1],
        high is not _END and high[2] == _AFTER,
    )


def accepted_by(term: Term) -> ElementaryTest | None:
    """Return the test that accepts exactly the values for which *term* is true; None if there are no such values."""
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
    """Return the test of the same attribute that accepts the values that both accept; None if there are none."""
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
    """Return as few tests of the same attribute as possible that together accept the values that any of *tests*
    accepts.

    An empty list means every event: a NULL test and a NOT NULL test.
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
    """Return whether *other* accepts all values that *one* accepts. May be False if only patterns could decide."""
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
    if isinstance(values[0], bool):  # there are only two values, so the complement is enumerated
        return tuple(point(truth) for truth in (False, True) if (truth in values) is not negated)
    listed = tuple(map(point, sorted(set(values))))
    return complement(listed) if negated else listed


def _like(attribute: str, parts: tuple[str | int, ...], negated: bool) -> ElementaryTest | None:
    """Return the test of a pattern: one without wildcards is a value, `p%` a range; any other has the range of its
    prefix too.
    """
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
    """Return the test in its simplest form: patterns sorted, each once, and none where single values can be checked
    now.
    """
    if patterns:
        patterns = tuple(sorted(set(patterns), key=lambda pattern: (repr(pattern.parts), pattern.negated)))
        if len({pattern.parts for pattern in patterns}) < len(patterns):  # a pattern and its negation
            return None
        if all(interval.is_point for interval in intervals):
            matching = (interval for interval in intervals if _all_accept(patterns, interval.low))
            intervals, patterns = tuple(matching), ()
    return ElementaryTest(attribute, kind, intervals, patterns) if intervals else None


def _all_accept(patterns: tuple[Pattern, ...], value: Bound | None) -> bool:
    return isinstance(value, str) and all(pattern.accepts(value) for pattern in patterns)
