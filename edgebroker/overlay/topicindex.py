"""Values by topic filter, found by a filter that overlaps theirs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from edgebroker.topics import MULTI_LEVEL, SINGLE_LEVEL, TopicFilter

V = TypeVar("V")


class _IndexLevel(Generic[V]):
    """What the topic filters are after some levels, and the values of the one that ends here."""

    __slots__ = ("below", "values")

    def __init__(self) -> None:
        self.below: dict[str, _IndexLevel[V]] = {}
        self.values: dict[V, None] = {}

    def everything(self) -> Iterator[V]:
        yield from self.values
        for level in self.below.values():
            yield from level.everything()


class TopicIndex(Generic[V]):
    """Each value stands under one topic filter or several."""

    def __init__(self) -> None:
        self._root: _IndexLevel[V] = _IndexLevel()

    def add(self, topic_filter: TopicFilter, value: V) -> None:
        """Let *value* stand under *topic_filter*."""
        level = self._root
        for name in topic_filter.longest_form:
            level = level.below.setdefault(name, _IndexLevel())
        level.values[value] = None

    def discard(self, topic_filter: TopicFilter, value: V) -> None:
        """Let it stand there no longer. Raises KeyError: it does not."""
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
        """The values of the filters that share a topic with *topic_filter*, in an order that is always the same."""
        names = topic_filter.longest_form
        reached = [self._root]
        for position, name in enumerate(names):
            if name == MULTI_LEVEL:
                for level in reached:
                    yield from level.everything()
                return
            following: list[_IndexLevel[V]] = []
            for level in reached:
                if MULTI_LEVEL in level.below:
                    yield from level.below[MULTI_LEVEL].values
                following += _steps(level, name, position == 0)
            reached = following
        for level in reached:
            yield from level.values
            if MULTI_LEVEL in level.below:
                yield from level.below[MULTI_LEVEL].values

    def overlaps(self, topic_filter: TopicFilter) -> bool:
        """Whether there is any."""
        return next(self.overlapping(topic_filter), None) is not None


def _steps(level: _IndexLevel[V], name: str, is_first: bool) -> Iterator[_IndexLevel[V]]:
    """The levels below *level* that a topic level meant by *name* can lead to, except for those of a final `#`."""
    if name != SINGLE_LEVEL:
        if name in level.below:
            yield level.below[name]
        if SINGLE_LEVEL in level.below and not (is_first and name.startswith("$")):
            yield level.below[SINGLE_LEVEL]
        return
    for other, below in level.below.items():
        if other != MULTI_LEVEL and not (is_first and other.startswith("$")):
            yield below
