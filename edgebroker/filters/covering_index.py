"""The covering index: finds the announced interests that cover a given interest, and those that it covers, without
comparing it with all of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import field
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from edgebroker.dataclasses import dataclass
from edgebroker.filters.boxes import Box
from edgebroker.filters.elementary import Cut, Span
from edgebroker.filters.regions import Region, point_of
from edgebroker.interest import Interest
from edgebroker.topics import MULTI_LEVEL, SINGLE_LEVEL

BLOCK_MAX: Final = 64
"""Items in a block; a larger one is split. A block whose items all end too early is skipped in one step, so among
10,000 narrow spans a search takes about 200 steps.
"""

Item = TypeVar("Item")
_SpanKey: TypeAlias = tuple[Cut, Cut, int]


class _Block(Generic[Item]):
    """Adjacent items in order; `reach` is the greatest end of their spans."""

    __slots__ = ("items", "keys", "reach")

    def __init__(self, keys: list[_SpanKey], items: list[Item]) -> None:
        self.keys = keys
        self.items = items
        self.reach = max(high for _, high, _ in keys)


class SpanIndex(Generic[Item]):
    """Items sorted by the beginnings of their spans. Each has a number that orders those with equal spans."""

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        self._blocks: list[_Block[Item]] = []

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def add(self, span: Span, number: int, item: Item) -> None:
        """Add *item*; its span and number must not be in the index."""
        key = (*span, number)
        at = self._block_of(key)
        if at < 0:
            self._blocks.append(_Block([key], [item]))
            return
        block = self._blocks[at]
        place = bisect_left(block.keys, key)
        keys, items = block.keys, block.items
        keys.insert(place, key)
        items.insert(place, item)
        half = len(keys) // 2
        if len(keys) > BLOCK_MAX:
            self._blocks[at : at + 1] = [_Block(keys[:half], items[:half]), _Block(keys[half:], items[half:])]
        else:
            block.reach = max(block.reach, span[1])

    def discard(self, span: Span, number: int) -> None:
        """Remove the item with *span* and *number*; it must be in the index."""
        key = (*span, number)
        at = self._block_of(key)
        block = self._blocks[at]
        place = bisect_left(block.keys, key)
        del block.keys[place], block.items[place]
        self._blocks[at : at + 1] = [_Block(block.keys, block.items)] if block.keys else []

    def enclosing(self, span: Span) -> Iterator[Item]:
        """Iterate over the items whose spans begin no later and end no earlier than *span*."""
        low, high = span
        for block in self._blocks:
            if block.keys[0][0] > low:
                return
            if block.reach >= high:
                for (begin, end, _), item in zip(block.keys, block.items, strict=True):
                    if begin <= low and end >= high:
                        yield item

    def enclosed(self, span: Span) -> Iterator[Item]:
        """Iterate over the items whose spans begin no earlier and end no later than *span*."""
        low, high = span
        for block in self._blocks[max(0, self._block_of((low, low, 0))) :]:
            if block.keys[0][0] >= high:
                return
            for (begin, end, _), item in zip(block.keys, block.items, strict=True):
                if begin >= low and end <= high:
                    yield item

    def _block_of(self, key: _SpanKey) -> int:
        """Return the number of the block to which *key* belongs; -1 if there is no block."""
        after = bisect_right(self._blocks, key, key=lambda block: block.keys[0])
        return max(after - 1, min(0, len(self._blocks) - 1))


class _AttributeShape(NamedTuple):
    """The attributes that are tested; in order those of them with a single value; the first of the others."""

    attributes: frozenset[str]
    singles: tuple[str, ...]
    ranging: str


_Key: TypeAlias = tuple[Region, ...]
"""The single values, in the order of `_AttributeShape.singles`."""


class CoveringEntry:
    """An announced or hidden interest. `order`: its number by age, from 1.

    `holders`: the number of subscriptions that have it. `outline`: its outline while it is announced. While it is
    hidden, that is None, and `covered_by` is the announced entry that covers it; `hidden`: the entries whose
    `covered_by` this is. `shadowed_by`: another announced entry that covers this announced one, as far as that is
    known; `shadowed`: the entries whose `shadowed_by` this is.
    """

    __slots__ = ("covered_by", "hidden", "holders", "interest", "order", "outline", "shadowed", "shadowed_by")

    def __init__(self, interest: Interest, order: int) -> None:
        self.interest = interest
        self.order = order
        self.holders = 0
        self.outline: EntryOutline | None = None
        self.covered_by: CoveringEntry | None = None
        self.hidden: dict[CoveringEntry, None] = {}
        self.shadowed: dict[CoveringEntry, None] = {}
        self.shadowed_by: CoveringEntry | None = None


class EntryOutline:
    """The parts of an entry that are compared. It takes several times the memory of the entry."""

    __slots__ = ("box", "entry", "key", "levels", "shape")

    def __init__(self, entry: CoveringEntry, box: Box) -> None:
        self.entry = entry
        self.box = box
        self.levels = entry.interest.topic_filter.longest_form
        regions = box.regions
        singles = tuple(attribute for attribute in sorted(regions) if _is_single(regions[attribute]))
        self.shape = _AttributeShape(frozenset(regions), singles, min(regions.keys() - set(singles), default=""))
        self.key: _Key = tuple(regions[attribute] for attribute in singles)

    @classmethod
    def of(cls, entry: CoveringEntry) -> EntryOutline | None:
        """Return the outline of *entry*; None if its predicate accepts no event."""
        box = Box.of(entry.interest.predicate)
        return None if box is None else cls(entry, box)

    def span(self, attribute: str) -> Span:
        """Return the span from the least to the greatest value that *attribute* may have."""
        region = self.box.region(attribute)
        return region[0][0], region[-1][1]


def _is_single(region: Region) -> bool:
    return len(region) == 1 and point_of(region[0]) is not None


class _FilterEntries:
    """The entries of one topic filter, by shape, by single values, and then by the span of one attribute."""

    def __init__(self) -> None:
        self._entries: dict[_AttributeShape, dict[_Key, SpanIndex[EntryOutline]]] = {}
        self._shapes: dict[_AttributeShape, _AttributeShape] = {}
        self._testing: dict[str, dict[_AttributeShape, None]] = {}
        self._beginning: dict[str, dict[_AttributeShape, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, outline: EntryOutline) -> None:
        attributes = outline.shape.attributes
        if outline.shape in self._entries:
            outline.shape = self._shapes[outline.shape]  # all outlines share one object
        else:
            self._shapes[outline.shape] = outline.shape
            self._entries[outline.shape] = {}
            for attribute in attributes:
                self._testing.setdefault(attribute, {})[outline.shape] = None
            self._beginning.setdefault(min(attributes, default=""), {})[outline.shape] = None
        by_key = self._entries[outline.shape]
        if outline.key not in by_key:
            by_key[outline.key] = SpanIndex()
        by_key[outline.key].add(outline.span(outline.shape.ranging), outline.entry.order, outline)

    def discard(self, outline: EntryOutline) -> None:
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

    def covering(self, outline: EntryOutline) -> Iterator[EntryOutline]:
        """Iterate over entries whose box covers that of *outline*: they test some of its attributes, and no others."""
        attributes = outline.shape.attributes
        for first in ("", *sorted(attributes)):
            for shape in self._beginning.get(first, ()):
                if shape.attributes <= attributes:
                    key = tuple(outline.box.regions[attribute] for attribute in shape.singles)
                    spans = self._entries[shape].get(key)
                    others = spans.enclosing(outline.span(shape.ranging)) if spans else ()
                    yield from (other for other in others if other.box.covers(outline.box))

    def covered(self, outline: EntryOutline) -> Iterator[EntryOutline]:
        """Iterate over entries whose box that of *outline* covers: they test all of its attributes, and perhaps
        others.
        """
        attributes, singles, _ = outline.shape
        shapes = min((self._testing.get(attribute, {}) for attribute in attributes), key=len, default=self._entries)
        for shape in shapes:
            if not attributes <= shape.attributes or not set(singles) <= set(shape.singles):
                continue
            by_key = self._entries[shape]
            if shape.singles == singles:
                indexes = [by_key[outline.key]] if outline.key in by_key else []
            else:
                places = [shape.singles.index(attribute) for attribute in singles]
                indexes = [
                    spans for key, spans in by_key.items() if tuple(key[place] for place in places) == outline.key
                ]
            for spans in indexes:
                yield from (
                    other for other in spans.enclosed(outline.span(shape.ranging)) if outline.box.covers(other.box)
                )


@dataclass(slots=True)
class _FilterLevel:
    """One level of the topic filters: the next levels, and the entries of the filter that ends here."""

    below: dict[str, _FilterLevel] = field(default_factory=dict)
    entries: _FilterEntries = field(default_factory=_FilterEntries)


class CoveringIndex:
    """Entries by their topic filters, level by level, and within a topic filter by the attributes they test."""

    def __init__(self) -> None:
        self._root = _FilterLevel()

    def add(self, outline: EntryOutline) -> None:
        """Add *outline*; it must not be in the index."""
        level = self._root
        for name in outline.levels:
            level = level.below.setdefault(name, _FilterLevel())
        level.entries.add(outline)

    def discard(self, outline: EntryOutline) -> None:
        """Remove *outline*; it must be in the index."""
        path = [self._root]
        for name in outline.levels:
            path.append(path[-1].below[name])
        path[-1].entries.discard(outline)
        for above, name in zip(reversed(path[:-1]), reversed(outline.levels), strict=True):
            if above.below[name].below or above.below[name].entries:
                break
            del above.below[name]

    def covering(self, outline: EntryOutline) -> EntryOutline | None:
        """Return an entry that covers *outline*, which is not in the index; None if there is none."""
        for entries in self._entries_above(outline.levels):
            for other in entries.covering(outline):
                return other
        return None

    def covered(self, outline: EntryOutline) -> list[EntryOutline]:
        """Return all entries that *outline* covers, which is not in the index."""
        return [other for entries in self._entries_below(outline.levels) for other in entries.covered(outline)]

    def _entries_above(self, levels: tuple[str, ...]) -> Iterator[_FilterEntries]:
        """Iterate over the entries of the topic filters that cover the one with these *levels*."""
        reached = [self._root]
        for position, name in enumerate(levels):
            for level in reached:
                if MULTI_LEVEL in level.below:
                    yield level.below[MULTI_LEVEL].entries
            if name == MULTI_LEVEL:
                return
            names = {name} if position == 0 and name.startswith("$") else {name: None, SINGLE_LEVEL: None}
            reached = [level.below[each] for level in reached for each in names if each in level.below]
        for level in reached:
            yield level.entries
            if MULTI_LEVEL in level.below:
                yield level.below[MULTI_LEVEL].entries

    def _entries_below(self, levels: tuple[str, ...]) -> Iterator[_FilterEntries]:
        """Iterate over the entries of the topic filters that the one with these *levels* covers."""
        reached = [self._root]
        for position, name in enumerate(levels):
            if name == MULTI_LEVEL:
                while reached:
                    level = reached.pop()
                    yield level.entries
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
        yield from (level.entries for level in reached)
