"""Rows: items by the span that each takes on a line; which of many enclose a span, or lie in it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, Generic, TypeAlias, TypeVar

from edgebroker.filters.regions import Cut, Span

BLOCK_MAX: Final = 64
"""Items in a block, which is split in two beyond that. A block none of whose items reaches far enough is passed over
in one step, so among 10,000 narrow spans a search takes about 200 steps."""

Item = TypeVar("Item")
_Key: TypeAlias = tuple[Cut, Cut, int]


class _Block(Generic[Item]):
    """Neighbouring items in order; `reach` is where the last of their spans ends."""

    __slots__ = ("items", "keys", "reach")

    def __init__(self, keys: list[_Key], items: list[Item]) -> None:
        self.keys = keys
        self.items = items
        self.reach = max(high for _, high, _ in keys)


class Row(Generic[Item]):
    """Items sorted by where their spans begin. Each has a number of its own that orders those with equal spans."""

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        self._blocks: list[_Block[Item]] = []

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def add(self, span: Span, number: int, item: Item) -> None:
        """Put *item* in; its span and number must not be there."""
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
        """Take the item with *span* and *number* out; it must be there."""
        key = (*span, number)
        at = self._block_of(key)
        block = self._blocks[at]
        place = bisect_left(block.keys, key)
        del block.keys[place], block.items[place]
        self._blocks[at : at + 1] = [_Block(block.keys, block.items)] if block.keys else []

    def enclosing(self, span: Span) -> Iterator[Item]:
        """The items whose spans begin no later and end no earlier than *span*."""
        low, high = span
        for block in self._blocks:
            if block.keys[0][0] > low:
                return
            if block.reach >= high:
                for (begin, end, _), item in zip(block.keys, block.items, strict=True):
                    if begin <= low and end >= high:
                        yield item

    def enclosed(self, span: Span) -> Iterator[Item]:
        """The items whose spans begin no earlier and end no later than *span*."""
        low, high = span
        for block in self._blocks[max(0, self._block_of((low, low, 0))) :]:
            if block.keys[0][0] >= high:
                return
            for (begin, end, _), item in zip(block.keys, block.items, strict=True):
                if begin >= low and end <= high:
                    yield item

    def _block_of(self, key: _Key) -> int:
        """The number of the block where *key* is or belongs; -1 if there is no block."""
        after = bisect_right(self._blocks, key, key=lambda block: block.keys[0])
        return max(after - 1, min(0, len(self._blocks) - 1))
