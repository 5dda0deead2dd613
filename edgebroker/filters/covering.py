"""Covering: whether one filter accepts every event that another accepts, and when two predicates can be merged.

A filter is given as its predicates (`edgebroker.filters.Filter.predicates`), of which an event must satisfy any; `()`
accepts none, `((),)` all. The answer "covers" is always certain. "Does not cover" is certain too for filters without
patterns (`LIKE` other than a prefix), if at most STEPS_MAX steps are needed and attributes are independent of each
other: nothing is concluded from `pos.lat = 1` about `pos`, from `$topic` about `$level1`, or from values that a topic,
a client identifier or a size cannot have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from edgebroker.filters.boxes import Box, are_independent, domain_of, example_event, is_possible
from edgebroker.filters.elementary import either
from edgebroker.filters.regions import Region, difference, includes, intersection, whole
from edgebroker.predicate import Predicate, Value, ValueType

STEPS_MAX: Final = 4_096
"""Boxes cut while one filter is subtracted from another. A step takes 5 to 10 us, so the slowest answer takes about 40
ms; filters that people write need fewer than ten steps.
"""

_Regions: TypeAlias = Mapping[str, Region]


def covers(general: Sequence[Predicate], special: Sequence[Predicate]) -> bool:
    """Return whether *general* accepts every event that *special* accepts."""
    remainder = _Remainder(general)
    return not any(True for box in _boxes(special) for _ in remainder.of(box))


def counterexample(general: Sequence[Predicate], special: Sequence[Predicate]) -> dict[str, Value] | None:
    """Return the attributes of an event that *special* accepts and *general* refuses; None if none was found.

    Without patterns one is found whenever `covers` is false, except for the reasons that the module names.
    """
    names = _names(general, special)
    remainder, refusing = _Remainder(general), _boxes(general)
    for box in _boxes(special):
        for regions in remainder.of(box):
            event = _event((box,), regions, names)
            if event is not None and not any(one.accepts(event) for one in refusing):
                return event
    return None


def common_example(one: Sequence[Predicate], other: Sequence[Predicate]) -> dict[str, Value] | None:
    """Return the attributes of an event that both accept; None if none was found."""
    names = _names(one, other)
    events = (_event(boxes, regions, names) for boxes, regions in _overlaps(one, other))
    return next((event for event in events if event is not None), None)


def are_apart(one: Sequence[Predicate], other: Sequence[Predicate]) -> bool:
    """Return whether no event is accepted by both. True is certain; without patterns False is certain too."""
    return next(_overlaps(one, other), None) is None


def merged(one: Predicate, other: Predicate) -> Predicate | None:
    """Return one predicate that accepts exactly the events that either accepts; None if there is none or none was
    found.

    It exists if one covers the other, or if they differ in one attribute for which one test can express both.
    """
    boxes = _boxes((one, other))
    if len(boxes) < 2:
        return boxes[0].predicate if boxes else one
    if boxes[0].covers(boxes[1]):
        return one
    if boxes[1].covers(boxes[0]):
        return other
    left, right = ({test.attribute: test for test in predicate} for predicate in (one, other))
    differing = [attribute for attribute in left if left[attribute] != right.get(attribute)]
    if left.keys() != right.keys() or len(differing) != 1:
        return None
    tests = either((left[differing[0]], right[differing[0]]))
    if len(tests) > 1:
        return None
    del left[differing[0]]
    return tuple(sorted((*left.values(), *tests), key=lambda test: test.attribute))


def _boxes(predicates: Sequence[Predicate]) -> list[Box]:
    """Return the boxes of the predicates that can accept an event."""
    return [box for box in map(Box.of, predicates) if box is not None]


def _names(*filters: Sequence[Predicate]) -> set[str]:
    """Return the attributes of all *filters*."""
    return {test.attribute for predicates in filters for predicate in predicates for test in predicate}


def _event(boxes: Sequence[Box], regions: _Regions, names: set[str]) -> dict[str, Value] | None:
    """Return an event in all *boxes* with attributes in *regions*; None if none was found that is known to be possible.

    Those of *names* that every event has, such as `$qos`, are always included.
    """
    if not are_independent(names):
        return None
    always = {name: domain_of(name) for name in sorted(names) if not includes(domain_of(name), whole(ValueType.NULL))}
    event = example_event(always | dict(regions), boxes)
    possible = all(is_possible(name, value) for name, value in event.items())
    return event if possible and all(box.accepts(event) for box in boxes) else None


def _overlaps(one: Sequence[Predicate], other: Sequence[Predicate]) -> Iterator[tuple[tuple[Box, Box], _Regions]]:
    """Iterate over the pairs of boxes that have a common part, apart from patterns, with that part."""
    others = _boxes(other)
    for box in _boxes(one):
        for second in others:
            names = box.regions | second.regions
            common = {name: intersection(box.region(name), second.region(name)) for name in names}
            if all(common.values()):
                yield (box, second), common


class _Remainder:
    """Subtracts a filter from boxes, piece by piece. All boxes together take at most STEPS_MAX steps."""

    def __init__(self, general: Sequence[Predicate]) -> None:
        self._boxes = _boxes(general)
        self._steps = STEPS_MAX

    def of(self, box: Box) -> Iterator[_Regions]:
        """Iterate over pieces of *box* that the filter does not accept, or may not accept: because of patterns, or of
        the limit.

        Every event in *box* that the filter refuses is in one of them. Each piece is cut by all predicates before the
        next one, so the first result comes early where much remains.
        """
        cuts: list[_Regions] = []
        for general in self._boxes:
            failing = list(general.failing(box))
            if not failing:
                return
            if not any(attribute in general.patterns for attribute in failing):
                cuts.append({attribute: general.regions[attribute] for attribute in failing})
        pieces: list[tuple[_Regions, int]] = [(box.regions, 0)]
        while pieces:
            piece, done = pieces.pop()
            if done == len(cuts) or not self._steps:
                yield piece
            else:
                self._steps -= 1
                pieces.extend((left, done + 1) for left in reversed(_without(piece, cuts[done])))


def _without(piece: _Regions, cut: _Regions) -> list[_Regions]:
    """Return *piece* without *cut*, in pieces that do not overlap."""
    have = {attribute: piece.get(attribute) or domain_of(attribute) for attribute in cut}
    inside = {attribute: intersection(have[attribute], region) for attribute, region in cut.items()}
    if not all(inside.values()):
        return [piece]
    pieces: list[_Regions] = []
    cut_away = dict(piece)
    for attribute, region in cut.items():
        outside = difference(have[attribute], region)
        if outside:
            pieces.append(cut_away | {attribute: outside})
            cut_away[attribute] = inside[attribute]
    return pieces
