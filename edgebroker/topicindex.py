"""An index of values by topic filter; it finds the values whose filters overlap a given one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, Protocol, TypeVar

from edgebroker.topics import MULTI_LEVEL, SINGLE_LEVEL, TopicFilter

V = TypeVar("V")


class TopicLevel(Protocol):
    """A node of an index by topic filter."""

    @property
    def below(self: L) -> Mapping[str, L]:
        """The next levels of longer filters."""


L = TypeVar("L", bound=TopicLevel)


class _IndexLevel(Generic[V]):
    """A node of the index: the next levels of longer filters, and the values of the filter that ends here."""

    __slots__ = ("below", "values")

    def __init__(self) -> None:
        self.below: dict[str, _IndexLevel[V]] = {}
        self.values: dict[V, None] = {}


class TopicIndex(Generic[V]):
    """Values by topic filter; a value may have several filters."""

    def __init__(self) -> None:
        self._root: _IndexLevel[V] = _IndexLevel()

    def add(self, topic_filter: TopicFilter, value: V) -> None:
        """Add *value* under *topic_filter*."""
        level = self._root
        for name in topic_filter.longest_form:
            level = level.below.setdefault(name, _IndexLevel())
        level.values[value] = None

    def discard(self, topic_filter: TopicFilter, value: V) -> None:
        """Remove *value* from *topic_filter*. Raises KeyError if it is not there."""
        names = topic_filter.longest_form
        path = [self._root]
        for name in names:
            path.append(path[-1].below[name])
        del path[-1].values[value]
        while names and not path[-1].values and not path[-1].below:
            path.pop()
            del path[-1].below[names[-1]]
            names = names[:-1]

    def overlapping(self, topic_filter: TopicFilter) -> Iterator[V]:
        """Iterate over the values whose filters share a topic with *topic_filter*, in a fixed order."""
        for level in overlapping_levels(self._root, topic_filter):
            yield from level.values

    def overlaps(self, topic_filter: TopicFilter) -> bool:
        """Return whether there is such a value."""
        return next(self.overlapping(topic_filter), None) is not None


def overlapping_levels(root: L, topic_filter: TopicFilter) -> Iterator[L]:
    """Iterate over the levels at and below *root* at which a filter may end that shares a topic with *topic_filter*, in
    a fixed order.
    """
    reached = [root]
    for position, name in enumerate(topic_filter.longest_form):
        if name == MULTI_LEVEL:
            for level in reached:
                yield from _all_levels(level)
            return
        following: list[L] = []
        for level in reached:
            if MULTI_LEVEL in level.below:
                yield level.below[MULTI_LEVEL]
            following += _steps(level, name, position == 0)
        reached = following
    for level in reached:
        yield level
        if MULTI_LEVEL in level.below:
            yield level.below[MULTI_LEVEL]


def _all_levels(level: L) -> Iterator[L]:
    """Iterate over *level* and all levels below it."""
    yield level
    for each in level.below.values():
        yield from _all_levels(each)


def _steps(level: L, name: str, is_first: bool) -> Iterator[L]:
    """Iterate over the levels below *level* that match topic level *name*, except that of a final `#`."""
    if name != SINGLE_LEVEL:
        if name in level.below:
            yield level.below[name]
        if SINGLE_LEVEL in level.below and not (is_first and name.startswith("$")):
            yield level.below[SINGLE_LEVEL]
        return
    for other, below in level.below.items():
        if other != MULTI_LEVEL and not (is_first and other.startswith("$")):
            yield below
