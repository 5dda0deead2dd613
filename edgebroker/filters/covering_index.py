"""The covering index: finds the announced interests that cover a given interest, and those that it covers, without
comparing it with all of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from edgebroker.filters.boxes import Box, domain_of
from edgebroker.filters.elementary import Cut, Span
from edgebroker.filters.regions import Region, includes, point_of
from edgebroker.interest import Interest
from edgebroker.topicindex import overlapping_levels
from edgebroker.topics import MULTI_LEVEL, SINGLE_LEVEL, TopicFilter

BLOCK_MAX: Final = 64
"""Items in a block; a larger one is split. A block whose items all end too early is skipped in one step, so among
10,000 narrow spans a search takes about 200 steps.
"""

SHAPES_MAX: Final = 256
"""Shapes of predicates that are shared; there are as many as combinations of attributes that filters test."""

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

    def __iter__(self) -> Iterator[Item]:
        for block in self._blocks:
            yield from block.items

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

    names: tuple[str, ...]
    """The attributes in order."""
    attributes: frozenset[str]
    singles: tuple[str, ...]
    ranging: str

    @property
    def first(self) -> str:
        """The first attribute."""
        return self.names[0] if self.names else ""


@lru_cache(maxsize=SHAPES_MAX)
def _shape_of(names: tuple[str, ...], singles: tuple[str, ...]) -> _AttributeShape:
    """Return the shape of predicates that test *names*, in order, and *singles* for a single value."""
    ranging = next((name for name in names if name not in singles), "")
    return _AttributeShape(names, frozenset(names), singles, ranging)


_Key: TypeAlias = tuple[Region, ...]
"""The single values, in the order of `_AttributeShape.singles`."""


class CoveringEntry:
    """An interest that is announced on some links and perhaps hidden on others. Links are bits.

    `order`: its number by age, from 1. `links`: the links on which subscriptions have it. `outline`: its outline while
    it is announced on any link. `announced`: these links. `above`: the announced entries below which it is hidden, each
    with the links. `below`: the entries that are hidden below it, with the links. `shadowed_by`: another announced
    entry that covers this announced one, as far as that is known; `shadowed`: the entries whose `shadowed_by` this is.

    Ten thousand are common, so nothing exists before it is needed.
    """

    __slots__ = (
        "_counts",
        "above",
        "announced",
        "below",
        "interest",
        "links",
        "order",
        "outline",
        "shadowed",
        "shadowed_by",
    )

    def __init__(self, interest: Interest, order: int) -> None:
        self.interest = interest
        self.order = order
        self.links = 0
        self._counts: dict[int, int] | None = None  # links of a subscription -> subscriptions; None: there is only one
        self.announced = 0
        self.outline: EntryOutline | None = None
        self.above: tuple[tuple[CoveringEntry, int], ...] = ()
        self.below: dict[CoveringEntry, int] | None = None
        self.shadowed: dict[CoveringEntry, None] | None = None
        self.shadowed_by: CoveringEntry | None = None

    def hold(self, links: int) -> int:
        """Add a subscription on *links*, at least one. Returns those on which there was none."""
        fresh = links & ~self.links
        if self.links:
            if self._counts is None:
                self._counts = {self.links: 1}
            self._counts[links] = self._counts.get(links, 0) + 1
        self.links |= links
        return fresh

    def release(self, links: int) -> int:
        """Remove a subscription on *links*. Returns those on which none is left."""
        counts, before = self._counts, self.links
        self.links = 0
        if counts is not None:
            counts[links] -= 1
            if not counts[links]:
                del counts[links]
            for each in counts:
                self.links |= each
            if sum(counts.values()) == 1:
                self._counts = None
        return before & ~self.links

    def hide(self, entry: CoveringEntry, links: int) -> None:
        """Hide *entry* below this one on *links*."""
        if self.below is None:
            self.below = {}
        self.below[entry] = hidden = self.below.get(entry, 0) | links
        entry.above = (*(pair for pair in entry.above if pair[0] is not self), (self, hidden))

    def surface(self, links: int) -> None:
        """Hide this entry no longer on *links*."""
        for cover, hidden in self.above:
            if hidden & links:
                cover._free(self, hidden & links)

    def orphan(self, links: int) -> list[tuple[CoveringEntry, int]]:
        """Hide nothing below this entry any longer on *links*. Returns what was hidden, with the links."""
        found = [(entry, hidden & links) for entry, hidden in (self.below or {}).items() if hidden & links]
        for entry, hidden in found:
            self._free(entry, hidden)
        return found

    def shadow_by(self, above: CoveringEntry) -> None:
        """Record that *above* covers this entry, which nothing shadows."""
        self.shadowed_by = above
        if above.shadowed is None:
            above.shadowed = {}
        above.shadowed[self] = None

    def _free(self, entry: CoveringEntry, links: int) -> None:
        """Hide *entry* below this one no longer on *links*."""
        assert self.below is not None
        left = self.below.pop(entry) & ~links
        others = tuple(pair for pair in entry.above if pair[0] is not self)
        if left:
            self.below[entry] = left
            others = (*others, (self, left))
        elif not self.below:
            self.below = None
        entry.above = others


class EntryOutline:
    """The parts of an entry that are compared. It takes several times the memory of the entry."""

    __slots__ = ("entry", "key", "patterns", "regions", "shape")

    def __init__(self, entry: CoveringEntry, box: Box) -> None:
        self.entry = entry
        names = tuple(sorted(box.regions))
        self.regions = tuple(map(box.regions.__getitem__, names))
        """For each attribute of the shape, in order, the values that it may have."""
        self.patterns = box.patterns or None
        singles = tuple(name for name, region in zip(names, self.regions, strict=True) if _is_single(region))
        self.shape = _shape_of(names, singles)
        self.key: _Key = self.values_of(singles)

    @classmethod
    def of(cls, entry: CoveringEntry) -> EntryOutline | None:
        """Return the outline of *entry*; None if its predicate accepts no event."""
        box = Box.of(entry.interest.predicate)
        return None if box is None else cls(entry, box)

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of the topic filter."""
        return self.entry.interest.topic_filter.longest_form

    def values_of(self, attributes: Sequence[str]) -> tuple[Region, ...]:
        """Return the values that each of *attributes* may have; the shape has all of them."""
        names = self.shape.names
        return tuple([self.regions[names.index(attribute)] for attribute in attributes])

    def span(self, attribute: str) -> Span:
        """Return the span from the least to the greatest value that *attribute* may have."""
        region = self._region(attribute)
        return region[0][0], region[-1][1]

    def covers(self, other: EntryOutline) -> bool:
        """Return whether every event that *other* accepts is accepted: as `Box.covers`, in a fifth of the time."""
        for attribute, region in zip(self.shape.names, self.regions, strict=True):
            if not includes(region, other._region(attribute)):
                return False
        return self.patterns is None or self._box().covers(other._box())

    def _region(self, attribute: str) -> Region:
        names = self.shape.names
        return self.regions[names.index(attribute)] if attribute in names else domain_of(attribute)

    def _box(self) -> Box:
        regions = dict(zip(self.shape.names, self.regions, strict=True))
        return Box(self.entry.interest.predicate, regions, self.patterns or {})


def _is_single(region: Region) -> bool:
    return len(region) == 1 and point_of(region[0]) is not None


class _FilterEntries:
    """The outlines of one topic filter, by shape, by single values, and then by the span of one attribute.

    Where there is only one, it stands for the whole index.
    """

    __slots__ = ("_beginning", "_entries", "_testing")

    def __init__(self) -> None:
        self._entries: dict[_AttributeShape, dict[_Key, EntryOutline | SpanIndex[EntryOutline]]] = {}
        self._testing: dict[str, dict[_AttributeShape, None]] = {}
        self._beginning: dict[str, dict[_AttributeShape, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._entries)

    def __iter__(self) -> Iterator[EntryOutline]:
        for by_key in self._entries.values():
            for held in by_key.values():
                yield from (held,) if isinstance(held, EntryOutline) else held

    def add(self, outline: EntryOutline) -> None:
        shape = outline.shape
        if shape not in self._entries:
            self._entries[shape] = {}
            for attribute in shape.names:
                self._testing.setdefault(attribute, {})[shape] = None
            self._beginning.setdefault(shape.first, {})[shape] = None
        by_key = self._entries[shape]
        held = by_key.get(outline.key)
        if held is None:
            by_key[outline.key] = outline
            return
        if isinstance(held, EntryOutline):
            spans: SpanIndex[EntryOutline] = SpanIndex()
            spans.add(held.span(shape.ranging), held.entry.order, held)
            held = by_key[outline.key] = spans
        held.add(outline.span(shape.ranging), outline.entry.order, outline)

    def discard(self, outline: EntryOutline) -> None:
        shape = outline.shape
        by_key = self._entries[shape]
        held = by_key[outline.key]
        if not isinstance(held, EntryOutline):
            held.discard(outline.span(shape.ranging), outline.entry.order)
            if held:
                return
        del by_key[outline.key]
        if by_key:
            return
        del self._entries[shape]
        places = [(self._beginning, shape.first), *((self._testing, name) for name in shape.names)]
        for index, name in places:
            del index[name][shape]
            if not index[name]:
                del index[name]

    def covering(self, outline: EntryOutline) -> Iterator[CoveringEntry]:
        """Iterate over entries that cover *outline*: they test some of its attributes, and no others."""
        attributes = outline.shape.attributes
        for first in ("", *outline.shape.names):
            for shape in self._beginning.get(first, ()):
                if shape.attributes <= attributes:
                    held = self._entries[shape].get(outline.values_of(shape.singles))
                    if held is None:
                        continue
                    span = outline.span(shape.ranging)
                    for other in (held,) if isinstance(held, EntryOutline) else held.enclosing(span):
                        if other.covers(outline):
                            yield other.entry

    def covered(self, outline: EntryOutline) -> Iterator[CoveringEntry]:
        """Iterate over entries that *outline* covers: they test all of its attributes, and perhaps others."""
        _, attributes, singles, _ = outline.shape
        shapes = min((self._testing.get(attribute, {}) for attribute in attributes), key=len, default=self._entries)
        for shape in shapes:
            if not attributes <= shape.attributes or not set(singles) <= set(shape.singles):
                continue
            by_key = self._entries[shape]
            if shape.singles == singles:
                indexes = [by_key[outline.key]] if outline.key in by_key else []
            else:
                places = [shape.singles.index(attribute) for attribute in singles]
                indexes = [held for key, held in by_key.items() if tuple(key[place] for place in places) == outline.key]
            for held in indexes:
                span = outline.span(shape.ranging)
                for other in (held,) if isinstance(held, EntryOutline) else held.enclosed(span):
                    if outline.covers(other):
                        yield other.entry


class _FilterLevel:
    """One level of the topic filters: the next levels, and the outlines of the filter that ends here."""

    __slots__ = ("below", "entries")

    def __init__(self) -> None:
        self.below = _NOTHING_BELOW
        self.entries: EntryOutline | _FilterEntries | None = None

    def child(self, name: str) -> _FilterLevel:
        """Return the level *name* below this one, which is made if there is none."""
        found = self.below.get(name)
        if found is None:
            if self.below is _NOTHING_BELOW:
                self.below = {}
            found = self.below[name] = _FilterLevel()
        return found

    def drop(self, name: str) -> None:
        """Remove the level *name* below this one."""
        del self.below[name]
        if not self.below:
            self.below = _NOTHING_BELOW

    def outlines(self) -> Iterable[EntryOutline]:
        """Return all outlines here."""
        held = self.entries
        return () if held is None else (held,) if isinstance(held, EntryOutline) else held

    def covering(self, outline: EntryOutline) -> Iterator[CoveringEntry]:
        """Iterate over entries that cover *outline*, as far as their predicates decide it."""
        held = self.entries
        if isinstance(held, _FilterEntries):
            yield from held.covering(outline)
        elif held is not None and held.covers(outline):
            yield held.entry

    def covered(self, outline: EntryOutline) -> Iterator[CoveringEntry]:
        """Iterate over entries that *outline* covers, as far as their predicates decide it."""
        held = self.entries
        if isinstance(held, _FilterEntries):
            yield from held.covered(outline)
        elif held is not None and outline.covers(held):
            yield held.entry


_NOTHING_BELOW: Final[dict[str, _FilterLevel]] = {}
"""Shared by all levels at which no longer filter begins, which are most of them; never changed."""


class CoveringIndex:
    """Entries by their topic filters, level by level, and within a topic filter by the attributes they test."""

    def __init__(self) -> None:
        self._root = _FilterLevel()

    def add(self, outline: EntryOutline) -> None:
        """Add *outline*; it must not be in the index."""
        level = self._root
        for name in outline.levels:
            level = level.child(name)
        held = level.entries
        if held is None:
            level.entries = outline
            return
        if isinstance(held, EntryOutline):
            level.entries = _FilterEntries()
            level.entries.add(held)
            held = level.entries
        held.add(outline)

    def discard(self, outline: EntryOutline) -> None:
        """Remove *outline*; it must be in the index."""
        path = [self._root]
        levels = outline.levels
        for name in levels:
            path.append(path[-1].below[name])
        held = path[-1].entries
        if isinstance(held, _FilterEntries):
            held.discard(outline)
        if not isinstance(held, _FilterEntries) or not held:
            path[-1].entries = None
        for above, name in zip(reversed(path[:-1]), reversed(levels), strict=True):
            if above.below[name].below or above.below[name].entries is not None:
                break
            above.drop(name)

    def covering(self, outline: EntryOutline) -> Iterator[CoveringEntry]:
        """Iterate over the entries that cover *outline*; its own is one of them if it is in the index."""
        for level in self._levels_above(outline.levels):
            yield from level.covering(outline)

    def covered(self, outline: EntryOutline) -> list[CoveringEntry]:
        """Return all entries that *outline* covers; its own is one of them if it is in the index."""
        return [entry for level in self._levels_below(outline.levels) for entry in level.covered(outline)]

    def overlapping(self, topic_filter: TopicFilter) -> Iterator[CoveringEntry]:
        """Iterate over the entries whose topic filters share a topic with *topic_filter*, in a fixed order."""
        for level in overlapping_levels(self._root, topic_filter):
            for outline in level.outlines():
                yield outline.entry

    def _levels_above(self, levels: tuple[str, ...]) -> Iterator[_FilterLevel]:
        """Iterate over the levels of the topic filters that cover the one with these *levels*."""
        reached = [self._root]
        for position, name in enumerate(levels):
            for level in reached:
                if MULTI_LEVEL in level.below:
                    yield level.below[MULTI_LEVEL]
            if name == MULTI_LEVEL:
                return
            names = {name} if position == 0 and name.startswith("$") else {name: None, SINGLE_LEVEL: None}
            reached = [level.below[each] for level in reached for each in names if each in level.below]
        for level in reached:
            yield level
            if MULTI_LEVEL in level.below:
                yield level.below[MULTI_LEVEL]

    def _levels_below(self, levels: tuple[str, ...]) -> Iterator[_FilterLevel]:
        """Iterate over the levels of the topic filters that the one with these *levels* covers."""
        reached = [self._root]
        for position, name in enumerate(levels):
            if name == MULTI_LEVEL:
                while reached:
                    level = reached.pop()
                    yield level
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
        yield from reached
