"""Interests in order: which of many cover a given one, or are covered by it, without asking all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from edgebroker.filters.boxes import Box
from edgebroker.filters.regions import Region, point_of
from edgebroker.predicate import Predicate
from edgebroker.topics import MULTI_LEVEL, SINGLE_LEVEL, TopicFilter


@dataclass(frozen=True, slots=True)
class Interest:
    """Events with a topic that *topic_filter* matches and attributes that *predicate* accepts."""

    topic_filter: TopicFilter
    predicate: Predicate


_Shape: TypeAlias = tuple[frozenset[str], tuple[str, ...]]
"""The attributes that are not left open, and in order those of them that have one value only."""
_Key: TypeAlias = tuple[Region, ...]
"""The single values."""


class Entry:
    """An interest with all that is needed to compare it. `order`: when it came, counted from 1.

    `holders`: subscriptions that have it. `above`: the announced entry that covers it, None if it is announced itself;
    `hidden`: the entries whose `above` this is.
    """

    __slots__ = ("above", "box", "hidden", "holders", "interest", "key", "levels", "order", "shape")

    def __init__(self, interest: Interest, box: Box, order: int) -> None:
        self.interest = interest
        self.box = box
        self.order = order
        self.levels = interest.topic_filter.longest_form
        regions = box.regions
        singles = tuple(
            attribute
            for attribute in sorted(regions)
            if len(regions[attribute]) == 1 and point_of(regions[attribute][0]) is not None
        )
        self.shape: _Shape = (frozenset(regions), singles)
        self.key: _Key = tuple(regions[attribute] for attribute in singles)
        self.holders = 0
        self.above: Entry | None = None
        self.hidden: dict[Entry, None] = {}


class _Shelf:
    """The entries of one topic filter, by shape and by single values."""

    def __init__(self) -> None:
        self._entries: dict[_Shape, dict[_Key, dict[Entry, None]]] = {}
        self._testing: dict[str, dict[_Shape, None]] = {}
        self._beginning: dict[str, dict[_Shape, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, entry: Entry) -> None:
        attributes = entry.shape[0]
        if entry.shape not in self._entries:
            self._entries[entry.shape] = {}
            for attribute in attributes:
                self._testing.setdefault(attribute, {})[entry.shape] = None
            self._beginning.setdefault(min(attributes, default=""), {})[entry.shape] = None
        self._entries[entry.shape].setdefault(entry.key, {})[entry] = None

    def discard(self, entry: Entry) -> None:
        by_key = self._entries[entry.shape]
        del by_key[entry.key][entry]
        if by_key[entry.key]:
            return
        del by_key[entry.key]
        if by_key:
            return
        del self._entries[entry.shape]
        attributes = entry.shape[0]
        places = [(self._beginning, min(attributes, default="")), *((self._testing, name) for name in attributes)]
        for index, name in places:
            del index[name][entry.shape]
            if not index[name]:
                del index[name]

    def covering(self, entry: Entry) -> Iterator[Entry]:
        """Entries whose box covers that of *entry*: they test some of its attributes, and no others."""
        attributes, singles = entry.shape
        for first in ("", *sorted(attributes)):
            for shape in self._beginning.get(first, ()):
                if shape[0] <= attributes and set(shape[1]) <= set(singles):
                    key = tuple(entry.box.regions[attribute] for attribute in shape[1])
                    for other in self._entries[shape].get(key, ()):
                        if other.box.covers(entry.box):
                            yield other

    def covered(self, entry: Entry) -> Iterator[Entry]:
        """Entries whose box that of *entry* covers: they test all of its attributes, and perhaps others."""
        attributes, singles = entry.shape
        shapes = min((self._testing.get(attribute, {}) for attribute in attributes), key=len, default=self._entries)
        for shape in shapes:
            if not attributes <= shape[0] or not set(singles) <= set(shape[1]):
                continue
            by_key = self._entries[shape]
            if shape[1] == singles:
                alike = [by_key.get(entry.key, {})]
            else:
                places = [shape[1].index(attribute) for attribute in singles]
                alike = [
                    entries for key, entries in by_key.items() if tuple(key[place] for place in places) == entry.key
                ]
            for entries in alike:
                yield from (other for other in entries if entry.box.covers(other.box))


@dataclass(slots=True)
class _Level:
    """One level of the topic filters: what follows it, and the shelf of the filter that ends here."""

    below: dict[str, _Level] = field(default_factory=dict)
    shelf: _Shelf = field(default_factory=_Shelf)


class Shelves:
    """Entries by their topic filters, level by level, and within a topic filter by the attributes they test."""

    def __init__(self) -> None:
        self._root = _Level()

    def add(self, entry: Entry) -> None:
        """Put *entry* in; it must not be there."""
        level = self._root
        for name in entry.levels:
            level = level.below.setdefault(name, _Level())
        level.shelf.add(entry)

    def discard(self, entry: Entry) -> None:
        """Take *entry* out; it must be there."""
        path = [self._root]
        for name in entry.levels:
            path.append(path[-1].below[name])
        path[-1].shelf.discard(entry)
        for above, name in zip(reversed(path[:-1]), reversed(entry.levels), strict=True):
            if above.below[name].below or above.below[name].shelf:
                break
            del above.below[name]

    def covering(self, entry: Entry) -> Entry | None:
        """An entry that covers *entry*, which is not among them; None if there is none."""
        for shelf in self._shelves_above(entry.levels):
            for other in shelf.covering(entry):
                return other
        return None

    def covered(self, entry: Entry) -> list[Entry]:
        """All entries that *entry* covers, which is not among them."""
        return [other for shelf in self._shelves_below(entry.levels) for other in shelf.covered(entry)]

    def _shelves_above(self, levels: tuple[str, ...]) -> Iterator[_Shelf]:
        """The shelves of the topic filters that cover the one with these *levels*."""
        reached = [self._root]
        for position, name in enumerate(levels):
            for level in reached:
                if MULTI_LEVEL in level.below:
                    yield level.below[MULTI_LEVEL].shelf
            if name == MULTI_LEVEL:
                return
            names = {name} if position == 0 and name.startswith("$") else {name: None, SINGLE_LEVEL: None}
            reached = [level.below[each] for level in reached for each in names if each in level.below]
        for level in reached:
            yield level.shelf
            if MULTI_LEVEL in level.below:
                yield level.below[MULTI_LEVEL].shelf

    def _shelves_below(self, levels: tuple[str, ...]) -> Iterator[_Shelf]:
        """The shelves of the topic filters that the one with these *levels* covers."""
        reached = [self._root]
        for position, name in enumerate(levels):
            if name == MULTI_LEVEL:
                while reached:
                    level = reached.pop()
                    yield level.shelf
                    reached.extend(level.below.values())
                return
            if name == SINGLE_LEVEL:
                reached = [
                    below
                    for level in reached
                    for each, below in level.below.items()
                    if each != MULTI_LEVEL and not (position == 0 and each.startswith("$"))
                ]
            else:
                reached = [level.below[name] for level in reached if name in level.below]
        yield from (level.shelf for level in reached)
