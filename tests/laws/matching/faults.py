"""Trees with one fault each, on which the trials prove that they would notice it.

Most break nothing but the contract, so that they stay valid whatever the matcher is made of.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any

from edgebroker.matching import reference
from edgebroker.matching.cells import Cells, Cover
from edgebroker.matching.ends import Resolution
from edgebroker.matching.outcomes import LinkDecision
from edgebroker.matching.pst import Pst
from edgebroker.predicate import Attributes, ElementaryTest, Predicate, Value, ValueType
from edgebroker.topics import TopicFilter


class Misread(Pst):
    """Reads each elementary test as another one, or not at all."""

    def insert(self, number: int, topic_filter: TopicFilter, predicates: Sequence[Predicate], link: int = 0) -> Any:
        read = [tuple(test for each in predicate if (test := self.read(each))) for predicate in predicates]
        return super().insert(number, topic_filter, read, link)

    def read(self, test: ElementaryTest) -> ElementaryTest | None:
        raise NotImplementedError


class LowBoundsOpen(Misread):
    def read(self, test: ElementaryTest) -> ElementaryTest:
        return replace(test, intervals=tuple(replace(each, low_closed=each.is_point) for each in test.intervals))


class HighBoundsClosed(Misread):
    def read(self, test: ElementaryTest) -> ElementaryTest:
        closed = (replace(each, high_closed=each.high is not None) for each in test.intervals)
        return replace(test, intervals=tuple(closed))


class FirstIntervalOnly(Misread):
    def read(self, test: ElementaryTest) -> ElementaryTest:
        return replace(test, intervals=test.intervals[:1])


class PatternsForgotten(Misread):
    def read(self, test: ElementaryTest) -> ElementaryTest:
        return replace(test, patterns=())


class NullForgotten(Misread):
    def read(self, test: ElementaryTest) -> ElementaryTest | None:
        return None if test.kind is ValueType.NULL else test


class PresenceForgotten(Misread):
    def read(self, test: ElementaryTest) -> ElementaryTest | None:
        return None if test.kind is ValueType.NOT_NULL else test


class BoundsRounded(Misread):
    """Keeps whole numbers as floats, also those that are none."""

    def read(self, test: ElementaryTest) -> ElementaryTest:
        if test.kind is not ValueType.NUMBER:
            return test
        rounded = (replace(each, low=_as_float(each.low), high=_as_float(each.high)) for each in test.intervals)
        return replace(test, intervals=tuple(rounded))


class FirstPredicateOnly(Pst):
    def insert(self, number: int, topic_filter: TopicFilter, predicates: Sequence[Predicate], link: int = 0) -> Any:
        return super().insert(number, topic_filter, predicates[:1], link)


class SixtyFourLinks(Pst):
    def insert(self, number: int, topic_filter: TopicFilter, predicates: Sequence[Predicate], link: int = 0) -> Any:
        return super().insert(number, topic_filter, predicates, link % 64)


class TailsNotEmpty(Pst):
    """Takes `a/#` for `a/+/#`."""

    def insert(self, number: int, topic_filter: TopicFilter, predicates: Sequence[Predicate], link: int = 0) -> Any:
        longer = TopicFilter.parse(topic_filter.text.replace("#", "+/#"))
        return super().insert(number, longer, predicates, link)


class Misseen(Pst):
    """Sees each value of an event as another one."""

    def match(self, resolution: Resolution, attributes: Attributes) -> list[int]:
        return super().match(resolution, self.seen(attributes))

    def decide(self, resolution: Resolution, attributes: Attributes, mask: int) -> LinkDecision:
        return super().decide(resolution, self.seen(attributes), mask)

    def seen(self, attributes: Attributes) -> Mapping[str, Value]:
        return {name: self.value(value) for name, value in attributes.items()}

    def value(self, value: Value) -> Value:
        raise NotImplementedError


class BooleansAsNumbers(Misseen):
    def value(self, value: Value) -> Value:
        return int(value) if isinstance(value, bool) else value


class EventsRounded(Misseen):
    def value(self, value: Value) -> Value:
        return _as_float(value)


class EightBytes(Misseen):
    def value(self, value: Value) -> Value:
        return value[:8] if isinstance(value, str) else value


class CompositesAbsent(Misseen):
    def value(self, value: Value) -> Value:
        return value if isinstance(value, (bool, int, float, str)) else None


class PlainLinksForgotten(Pst):
    def decide(self, resolution: Resolution, attributes: Attributes, mask: int) -> LinkDecision:
        numbers = set(super().match(resolution, attributes))
        with_content = super().decide(resolution, attributes, mask)
        return with_content if numbers else with_content._replace(yes=0)


class MaskForgotten(Pst):
    def decide(self, resolution: Resolution, attributes: Attributes, mask: int) -> LinkDecision:
        return super().decide(resolution, attributes, mask | 1)


class StepsUnbounded(Pst):
    def decide(self, resolution: Resolution, attributes: Attributes, mask: int) -> LinkDecision:
        decision = super().decide(resolution, attributes, mask)
        return decision._replace(steps=2 * decision.steps + 1)


class OnceForEachPredicate(Pst):
    """Tells a subscription that matches alone twice."""

    def match(self, resolution: Resolution, attributes: Attributes) -> list[int]:
        found = super().match(resolution, attributes)
        return found if len(found) > 1 else 2 * found


class ResolvedForever(Pst):
    """Never finds out that what a topic means has changed."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.resolutions: dict[str, Resolution] = {}

    def resolve(self, topic: str) -> Resolution:
        resolution = self.resolutions.setdefault(topic, super().resolve(topic))
        resolution.epoch = self.epoch
        return resolution


class EpochsIgnored(Pst):
    def match(self, resolution: Resolution, attributes: Attributes) -> list[int]:
        return super().match(resolution, attributes) if resolution.epoch == self.epoch else []


class NumbersTakenTwice(Pst):
    def insert(self, number: int, topic_filter: TopicFilter, predicates: Sequence[Predicate], link: int = 0) -> Any:
        if number in self:
            self.remove(number)
        return super().insert(number, topic_filter, predicates, link)


class RemovalForgotten(Pst):
    """Goes on telling the number that was removed last."""

    last = -1

    def remove(self, number: int) -> Any:
        end = super().remove(number)
        self.last = number
        return end

    def match(self, resolution: Resolution, attributes: Attributes) -> list[int]:
        found = super().match(resolution, attributes)
        return found if self.last < 0 or not found else [*found[1:], self.last]


def _as_float(number: Any) -> Any:
    """The nearest float of a number, everything else as it is."""
    if isinstance(number, bool) or not isinstance(number, int):
        return number
    try:
        return float(number)
    except OverflowError:
        return math.copysign(math.inf, number)


FAULTS = (
    *(LowBoundsOpen, HighBoundsClosed, FirstIntervalOnly, PatternsForgotten, NullForgotten, PresenceForgotten),
    *(BoundsRounded, FirstPredicateOnly, SixtyFourLinks, TailsNotEmpty, BooleansAsNumbers, EventsRounded, EightBytes),
    *(CompositesAbsent, PlainLinksForgotten, MaskForgotten, StepsUnbounded, OnceForEachPredicate, ResolvedForever),
    *(EpochsIgnored, NumbersTakenTwice, RemovalForgotten),
)


# -- faults of the kernel itself --------------------------------------------------------------------------------------


def _beside_the_cut(cells: Cells, number: float) -> int:
    return cells.first_number + bisect_left(cells.cuts, number)


def _null_not_covered(cells: Cells, test: ElementaryTest, *known: Any) -> Cover:
    return Cover(0, True) if test.kind is ValueType.NULL else _cover(cells, test, *known)


def _always_exact(cells: Cells, test: ElementaryTest, *known: Any) -> Cover:
    return _cover(cells, test, *known)._replace(exact=True)


def _bits_left(bucket: Any, leaf: int) -> None:
    position = bucket.leaves.positions[leaf]
    _remove(bucket, leaf)
    bucket.slots[position] = leaf
    bucket.live |= 1 << position


def _cells_without_edges_forgotten(fork: Any) -> bool:
    """Trap T1 of [LM]: the values that no edge accepts have no say in what is certain."""
    changed = _annotate(fork)
    certain = -1
    for kids in filter(None, fork.kids):
        certain &= reduce(or_, (kid.yes for kid in kids))
    if any(fork.kids):
        fork.yes |= certain
        fork.maybe &= ~certain
    return changed


_cover, _remove, _annotate = Cells.cover, reference.Bucket.remove, reference.Fork.annotate

KERNEL_FAULTS: dict[str, tuple[object, str, object]] = {
    "beside the cut": (Cells, "of_number", _beside_the_cut),
    "NULL not covered": (Cells, "cover", _null_not_covered),
    "nothing verified": (Cells, "cover", _always_exact),
    "bits left by removal": (reference.Bucket, "remove", _bits_left),
    "cells without edges forgotten": (reference.Fork, "annotate", _cells_without_edges_forgotten),
    "annotations not kept": (reference, "annotate_up", lambda node: None),
}
"""What takes the place of which attribute of what, in the pure kernel, whose functions can be replaced."""
