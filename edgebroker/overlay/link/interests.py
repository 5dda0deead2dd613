"""Interests as lists of plain values, and back: what is read is as valid as what the filter language makes.

interest    [topic filter, [test, ...]]                      tests sorted by attribute, each attribute once
test        [attribute, kind] or [attribute, kind, [interval, ...], [pattern, ...]]
interval    [low, high, 1 if low is in it + 2 if high is]    null: no bound; sorted, none touches the next
pattern     [is negated, part, ...]                          a text; 0 any run, 1 any one character
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

from edgebroker.errors import TopicInvalid
from edgebroker.interest import Interest
from edgebroker.limits import FILTER_BYTES_MAX, FILTER_TERMS_MAX
from edgebroker.predicate import ANY_ONE, ANY_RUN, Bound, ElementaryTest, Interval, Kind, Pattern, kind_of
from edgebroker.topics import TopicFilter

from .broken import FrameBroken, shown

_LOW_CLOSED: Final = 1
_HIGH_CLOSED: Final = 2
PARTS_MAX: Final = FILTER_BYTES_MAX
"""Intervals of a test, and parts of a pattern: each takes a character of the filter at least."""
_RANGED: Final = (Kind.NUMBER, Kind.STRING, Kind.BOOLEAN)


def written(interest: Interest) -> list[Any]:
    """*interest* as plain values."""
    return [interest.topic_filter.text, [_written_test(test) for test in interest.predicate]]


def read(value: Any) -> Interest:
    """The interest that *value* says. Raises FrameBroken."""
    if not _is_list(value, 2) or type(value[0]) is not str or type(value[1]) is not list:
        raise FrameBroken("an interest is a topic filter and a list of tests")
    if not value[1]:
        return Interest(topic_filter_of(value[0]), ())
    tests = tuple(map(_read_test, value[1]))
    names = [test.attribute for test in tests]
    if names != sorted(set(names)) or len(tests) > FILTER_TERMS_MAX:
        raise FrameBroken(f"the tests of an interest are sorted by attribute, each once, {FILTER_TERMS_MAX} at most")
    return Interest(topic_filter_of(value[0]), tests)


def topic_filter_of(text: str) -> TopicFilter:
    """The topic filter *text*. Raises FrameBroken."""
    try:
        return TopicFilter.parse(text)
    except TopicInvalid as error:
        raise FrameBroken(str(error)) from None


def _written_test(test: ElementaryTest) -> list[Any]:
    if test.kind not in _RANGED:
        return [test.attribute, int(test.kind)]
    intervals = [
        [each.low, each.high, each.low_closed * _LOW_CLOSED + each.high_closed * _HIGH_CLOSED]
        for each in test.intervals
    ]
    return [
        test.attribute,
        int(test.kind),
        intervals,
        [[pattern.negated, *pattern.parts] for pattern in test.patterns],
    ]


def _read_test(value: Any) -> ElementaryTest:
    if type(value) is not list or len(value) not in (2, 4) or type(value[0]) is not str:
        raise FrameBroken("a test is an attribute, a kind, and perhaps intervals and patterns")
    attribute = value[0]
    if type(value[1]) is not int or not Kind.NULL <= value[1] <= Kind.BOOLEAN:
        raise FrameBroken(f"a test of {attribute!r} has no known kind")
    kind = Kind(value[1])
    if (kind in _RANGED) != (len(value) == 4):
        raise FrameBroken(f"a test of {attribute!r} has intervals without need, or lacks them")
    if len(value) == 2:
        return ElementaryTest(attribute, kind)
    if type(value[2]) is not list or type(value[3]) is not list or not value[2]:
        raise FrameBroken(f"a test of {attribute!r} has no list of intervals, or none of patterns")
    if value[3] and kind is not Kind.STRING:
        raise FrameBroken(f"a test of {attribute!r} has patterns, and is not of strings")
    if len(value[2]) > PARTS_MAX:
        raise FrameBroken(f"a test of {attribute!r} has {len(value[2])} intervals; the limit is {PARTS_MAX}")
    intervals = tuple(_read_interval(each, kind) for each in value[2])
    for before, after in pairwise(intervals):
        if before.high is None or after.low is None or not _is_apart(before, after):
            raise FrameBroken(f"the intervals of {attribute!r} are not sorted and apart")
    return ElementaryTest(attribute, kind, intervals, tuple(map(_read_pattern, value[3])))


def _is_apart(before: Interval, after: Interval) -> bool:
    high, low = before.high, after.low
    if high == low:
        return not before.high_closed and not after.low_closed
    return high < low  # type: ignore[operator]


def _read_interval(value: Any, kind: Kind) -> Interval:
    if not _is_list(value, 3) or type(value[2]) is not int or not 0 <= value[2] <= 3:
        raise FrameBroken("an interval is two bounds and which of them are in it")
    low, high = _read_bound(value[0], kind), _read_bound(value[1], kind)
    low_closed, high_closed = bool(value[2] & _LOW_CLOSED), bool(value[2] & _HIGH_CLOSED)
    if (low is None and low_closed) or (high is None and high_closed):
        raise FrameBroken("what has no bound does not hold it")
    if (
        low is not None and high is not None and (low > high or (low == high and not (low_closed and high_closed)))  # type: ignore[operator]
    ):
        raise FrameBroken("an interval is empty")
    return Interval(low, low_closed, high, high_closed)


def _read_bound(value: Any, kind: Kind) -> Bound | None:
    if value is None:
        return None
    if type(value) not in (bool, int, float, str) or kind_of(value) is not kind or value != value:
        raise FrameBroken(f"a bound is not of its test's kind: {shown(value)}")
    bound: Bound = value
    return bound


def _read_pattern(value: Any) -> Pattern:
    if type(value) is not list or len(value) < 2 or type(value[0]) is not bool:
        raise FrameBroken("a pattern says whether it is negated, then its parts")
    if len(value) > 1 + PARTS_MAX:
        raise FrameBroken(f"a pattern of {len(value) - 1} parts; the limit is {PARTS_MAX}")
    for part in value[1:]:
        if type(part) is not str and not (type(part) is int and part in (ANY_RUN, ANY_ONE)):
            raise FrameBroken("a part of a pattern is a text, 0 or 1")
    return Pattern(tuple(value[1:]), value[0])


def _is_list(value: Any, size: int) -> bool:
    return type(value) is list and len(value) == size
