"""Interests in order: which of many cover a given one, or are covered by it, without asking all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import NamedTuple, TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.filters.boxes import Box
from edgebroker.filters.regions import Region, Span, point_of
from edgebroker.filters.rows import Row
from edgebroker.interest import Interest
from edgebroker.topics import MULTI_LEVEL, SINGLE_LEVEL


class _Shape(NamedTuple):
    """Which attributes are not left open; in order those of them that have one value only; the first of the others."""

    attributes: frozenset[str]
    singles: tuple[str, ...]
    ranging: str


_Key: TypeAlias = tuple[Region, ...]
"""The single values."""


class Entry:
    """An interest that is announced or hidden. `order`: when it came, counted from 1.

    `holders`: subscriptions that have it. `outline`: what it is compared by while it is announced. While it is hidden,
    that is None, and `above` is the announced entry that covers it; `hidden`: the entries whose `above` this is.
    """

    __slots__ = ("above", "hidden", "holders", "interest", "order", "outline")

    def __init__(self, interest: Interest, order: int) -> None:
        self.interest = interest
        self.order = order
        self.holders = 0
        self.outline: Outline | None = None
        self.above: Entry | None = None
        self.hidden: dict[Entry, None] = {}


class Outline:
    """What an entry is compared by. It takes several times the memory of the entry."""

    __slots__ = ("box", "entry", "key", "levels", "shape")

    def __init__(self, entry: Entry, box: Box) -> None:
        self.entry = entry
        self.box = box
        self.levels = entry.interest.topic_filter.longest_form
        regions = box.regions
        singles = tuple(attribute for attribute in sorted(regions) if _is_single(regions[attribute]))
        self.shape = _Shape(frozenset(regions), singles, min(regions.keys() - set(singles), default=""))
        self.key: _Key = tuple(regions[attribute] for attribute in singles)

    @classmethod
    def of(cls, entry: Entry) -> Outline | None:
        """The outline of *entry*; None if its predicate accepts no event."""
        box = Box.of(entry.interest.predicate)
        return None if box is None else cls(entry, box)

    def span(self, attribute: str) -> Span:
        """From the least to the greatest value that *attribute* may have."""
        region = self.box.region(attribute)
        return region[0][0], region[-1][1]


def _is_single(region: Region) -> bool:
    return len(region) == 1 and point_of(region[0]) is not None


class _Shelf:
    """The entries of one topic filter, by shape, by single values, and then by the span of one attribute."""

    def __init__(self) -> None:
        self._entries: dict[_Shape, dict[_Key, Row[Outline]]] = {}
        self._shapes: dict[_Shape, _Shape] = {}
        self._testing: dict[str, dict[_Shape, None]] = {}
        self._beginning: dict[str, dict[_Shape, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, outline: Outline) -> None:
        attributes = outline.shape.attributes
        if outline.shape in self._entries:
            outline.shape = self._shapes[outline.shape]  # one object for all
        else:
            self._shapes[outline.shape] = outline.shape
            self._entries[outline.shape] = {}
            for attribute in attributes:
                self._testing.setdefault(attribute, {})[outline.shape] = None
            self._beginning.setdefault(min(attributes, default=""), {})[outline.shape] = None
        by_key = self._entries[outline.shape]
        if outline.key not in by_key:
            by_key[outline.key] = Row()
        by_key[outline.key].add(outline.span(outline.shape.ranging), outline.entry.order, outline)

    def discard(self, outline: Outline) -> None:
        by_key = self._entries[outline.shape]
        by_key[outline.key].discard(outline.span(outline.shape.ranging), outline.entry.order)
        if by_key[outline.key]:
            return
        del by_key[outline.key]
        if by_key:
            return
        del self._entries[outline.shape], self._shapes[outline.shape]
        attributes = outline.shape.attributes
        places = [(self._beginning, min(attributes, default="")), *((self._testing, name) for name in attributes)]
        for index, name in places:
            del index[name][outline.shape]
            if not index[name]:
                del index[name]

    def covering(self, outline: Outline) -> Iterator[Outline]:
        """Entries whose box covers that of *outline*: they test some of its attributes, and no others."""
        attributes = outline.shape.attributes
        for first in ("", *sorted(attributes)):
            for shape in self._beginning.get(first, ()):
                if shape.attributes <= attributes:
                    key = tuple(outline.box.regions[attribute] for attribute in shape.singles)
                    row = self._entries[shape].get(key)
                    others = row.enclosing(outline.span(shape.ranging)) if row else ()
                    yield from (other for other in others if other.box.covers(outline.box))

    def covered(self, outline: Outline) -> Iterator[Outline]:
        """Entries whose box that of *outline* covers: they test all of its attributes, and perhaps others."""
        attributes, singles, _ = outline.shape
        shapes = min((self._testing.get(attribute, {}) for attribute in attributes), key=len, default=self._entries)
        for shape in shapes:
            if not attributes <= shape.attributes or not set(singles) <= set(shape.singles):
                continue
            by_key = self._entries[shape]
            if shape.singles == singles:
                rows = [by_key[outline.key]] if outline.key in by_key else []
            else:
                places = [shape.singles.index(attribute) for attribute in singles]
                rows = [row for key, row in by_key.items() if tuple(key[place] for place in places) == outline.key]
            for row in rows:
                yield from (
                    other for other in row.enclosed(outline.span(shape.ranging)) if outline.box.covers(other.box)
                )


@dataclass(slots=True)
class _Level:
    """One level of the topic filters: what follows it, and the shelf of the filter that ends here."""

    below: dict[str, _Level] = field(default_factory=dict)
    shelf: _Shelf = field(default_factory=_Shelf)


class Shelves:
    """Entries by their topic filters, level by level, and within a topic filter by the attributes they test."""

    def __init__(self) -> None:
        self._root = _Level()

    def add(self, outline: Outline) -> None:
        """Put *outline* in; it must not be there."""
        level = self._root
        for name in outline.levels:
            level = level.below.setdefault(name, _Level())
        level.shelf.add(outline)

    def discard(self, outline: Outline) -> None:
        """Take *outline* out; it must be there."""
        path = [self._root]
        for name in outline.levels:
            path.append(path[-1].below[name])
        path[-1].shelf.discard(outline)
        for above, name in zip(reversed(path[:-1]), reversed(outline.levels), strict=True):
            if above.below[name].below or above.below[name].shelf:
                break
            del above.below[name]

    def covering(self, outline: Outline) -> Outline | None:
        """An entry that covers *outline*, which is not among them; None if there is none."""
        for shelf in self._shelves_above(outline.levels):
            for other in shelf.covering(outline):
                return other
        return None

    def covered(self, outline: Outline) -> list[Outline]:
        """All entries that *outline* covers, which is not among them."""
        return [other for shelf in self._shelves_below(outline.levels) for other in shelf.covered(outline)]

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
