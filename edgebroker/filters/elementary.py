"""Elementary tests: what one term accepts, and how two tests of one attribute become one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from edgebroker.filters.intervals import EVERYTHING, Intervals, complement, intersection, point, union
from edgebroker.filters.patterns import prefix_of, successor
from edgebroker.filters.syntax import Between, Comparison, Like, Membership, Operator, Presence, Term
from edgebroker.predicate import ANY_RUN, Bound, ElementaryTest, Interval, Kind, Pattern, kind_of


def accepted_by(term: Term) -> ElementaryTest | None:
    """The one test that accepts exactly the values for which *term* is true; None if there are no such values."""
    match term:
        case Comparison(attribute, operator, value):
            return _test(attribute, kind_of(value), _compared(operator, value))
        case Membership(attribute, values, negated):
            return _test(attribute, kind_of(values[0]), _members(values, negated))
        case Between(attribute, low, high, negated):
            inside: Intervals = (Interval(low, True, high, True),) if low <= high else ()  # type: ignore[operator]
            return _test(attribute, kind_of(low), complement(inside) if negated else inside)
        case Like(attribute, parts, negated):
            return _like(attribute, parts, negated)
        case Presence(attribute, negated):
            return ElementaryTest(attribute, Kind.NOT_NULL if negated else Kind.NULL)
        case _:
            assert_never(term)


def both(one: ElementaryTest, other: ElementaryTest) -> ElementaryTest | None:
    """The test of the same attribute that accepts what both accept; None if that is nothing."""
    if one.kind is not other.kind:
        if Kind.NULL in (one.kind, other.kind):
            return None
        if one.kind is Kind.NOT_NULL:
            return other
        return one if other.kind is Kind.NOT_NULL else None
    if not one.intervals:
        return one
    return _test(one.attribute, one.kind, intersection(one.intervals, other.intervals), one.patterns + other.patterns)


def either(tests: Iterable[ElementaryTest]) -> list[ElementaryTest]:
    """As few tests of the same attribute as this module can make that together accept what any of *tests* does.

    An empty list means every event: a NULL test next to a NOT NULL test.
    """
    groups: dict[tuple[Kind, tuple[Pattern, ...]], list[ElementaryTest]] = {}
    for test in tests:
        groups.setdefault((test.kind, test.patterns), []).append(test)
    kinds = {kind for kind, _ in groups}
    if Kind.NOT_NULL in kinds:
        return [] if Kind.NULL in kinds else [groups[Kind.NOT_NULL, ()][0]]
    return [
        ElementaryTest(group[0].attribute, kind, union(i for test in group for i in test.intervals), patterns)
        for (kind, patterns), group in groups.items()
    ]


def implies(one: ElementaryTest, other: ElementaryTest) -> bool:
    """Whether *other* accepts whatever *one* accepts. May say False where patterns alone would decide."""
    if other.kind is Kind.NOT_NULL:
        return one.kind is not Kind.NULL
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
        return _test(attribute, Kind.STRING, EVERYTHING, (Pattern(parts, negated=True),))
    else:
        return _test(attribute, Kind.STRING, begun, (Pattern(parts),))
    return _test(attribute, Kind.STRING, complement(accepted) if negated else accepted, patterns)


def _test(
    attribute: str, kind: Kind, intervals: Intervals, patterns: tuple[Pattern, ...] = ()
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
