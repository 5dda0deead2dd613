"""Elementary tests in words: what a person would say that a predicate accepts."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from edgebroker.filters.patterns import prefix_of, spelled, successor
from edgebroker.filters.spelling import literal
from edgebroker.predicate import ElementaryTest, Interval, Kind, Pattern, Predicate

_NOUNS: Final = {Kind.NUMBER: "number", Kind.STRING: "string", Kind.BOOLEAN: "boolean"}

INDEX_WORDS: Final = {
    "equality": "found by hash",
    "range": "found among sorted ranges",
    "presence": "found by presence",
    "pattern": "tried one by one",
}
"""What the broker does with a test, by `ExplainedTest.index`."""


def words(test: ElementaryTest) -> str:
    """*test* as the end of a sentence that begins with its attribute: "is a number above 30"."""
    if test.kind is Kind.NULL:
        return "is absent or null"
    if test.kind is Kind.NOT_NULL:
        return "is there, whatever it holds"
    accepted = _accepted(test.kind, test.intervals)
    if not test.patterns:
        return f"is {accepted}"
    prefixes = {prefix_of(pattern.parts) for pattern in test.patterns if not pattern.negated} - {""}
    said = len(test.intervals) == 1 and _prefix(test.intervals[0]) in prefixes  # the pattern says it again
    patterns = " and ".join(map(_pattern, test.patterns))
    return f"is a string {patterns}" if said or accepted == "a string" else f"is {accepted} and {patterns}"


def sentence(predicate: Predicate) -> str:
    """All tests of *predicate* in words."""
    return " and ".join(f"{test.attribute} {words(test)}" for test in predicate)


def counted(count: int, noun: str, plural: str = "") -> str:
    """*count* and its noun: "1 step", "2,000 steps"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def _accepted(kind: Kind, intervals: tuple[Interval, ...]) -> str:
    """The values in *intervals*. Points are listed, holes are excepted, and else every interval is described."""
    noun = f"a {_NOUNS[kind]}"
    points = [literal(interval.low) for interval in intervals if interval.is_point and interval.low is not None]
    if len(points) == len(intervals):
        return points[0] if len(points) == 1 else f"one of {', '.join(points)}"
    holes = _holes(intervals)
    if holes is not None:
        return noun + (f" other than {', '.join(holes)}" if holes else "")
    return f"{noun} {' or '.join(map(_interval, intervals))}"


def _holes(intervals: tuple[Interval, ...]) -> list[str] | None:
    """The values left out of all values, if nothing but single values is left out; else None."""
    if intervals[0].low is not None or intervals[-1].high is not None:
        return None
    holes = []
    for below, above in pairwise(intervals):
        if below.high is None or below.high_closed or above.low_closed or below.high != above.low:
            return None
        holes.append(literal(below.high))
    return holes


def _interval(interval: Interval) -> str:
    low, high = interval.low, interval.high
    if interval.is_point and low is not None:
        return f"equal to {literal(low)}"
    prefix = _prefix(interval)
    if prefix is not None:
        return f"that begins with {literal(prefix)}"
    if low is not None and high is not None and interval.low_closed and interval.high_closed:
        return f"from {literal(low)} to {literal(high)}"
    ends = []
    if low is not None:
        ends.append(f"{'at least' if interval.low_closed else 'above'} {literal(low)}")
    if high is not None:
        ends.append(f"{'at most' if interval.high_closed else 'below'} {literal(high)}")
    return " and ".join(ends)


def _prefix(interval: Interval) -> str | None:
    """The prefix whose strings are exactly those of *interval*, if there is one."""
    low = interval.low
    if not isinstance(low, str) or not low or not interval.low_closed or interval.high_closed:
        return None
    return low if interval.high == successor(low) else None


def _pattern(pattern: Pattern) -> str:
    text, escape = spelled(pattern.parts)
    return f"{'unlike' if pattern.negated else 'like'} {literal(text)}" + (f" (escape {escape})" if escape else "")
