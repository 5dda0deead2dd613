"""What an edge of the tree is labelled with, and the key under which a value of an event finds it."""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias

from edgebroker.event import Composite, Value
from edgebroker.predicate import ElementaryTest, Kind

Key: TypeAlias = int | float | str | tuple[bool] | Composite | None
"""A value as the tree looks it up: equal values have equal keys. A boolean is a tuple of one, because `True == 1`."""

TRUE: Final = (True,)
FALSE: Final = (False,)


class Wide(Enum):
    """Labels of edges that accept whatever comes."""

    STAR = "*"
    """Any value, also none: the predicates below do not test the attribute."""
    SOME = "+"
    """Any value but NULL."""


Label: TypeAlias = Key | ElementaryTest | Wide
"""A key: an edge for exactly this value (None: NULL). A test: an edge for all values that it accepts."""


def key_of(value: Value) -> Key:
    """The key of *value*."""
    if value is True:
        return TRUE
    if value is False:
        return FALSE
    return value


def label_of(test: ElementaryTest) -> Label:
    """The label of the edge for *test*: as narrow as possible, so that equal tests share an edge."""
    if test.kind is Kind.NULL:
        return None
    if test.kind is Kind.NOT_NULL:
        return Wide.SOME
    if len(test.intervals) == 1 and not test.patterns and test.intervals[0].is_point:
        return key_of(test.intervals[0].low)
    return test


def single_keys(test: ElementaryTest) -> tuple[Key, ...]:
    """The keys of the values that *test* names one by one."""
    if test.kind is Kind.BOOLEAN:
        return tuple(key_of(value) for value in (False, True) if test.accepts(value))
    points = (interval.low for interval in test.intervals if interval.is_point)
    return tuple(key_of(value) for value in points if test.accepts(value))
