"""The edges of one node that accept more than one value: NOT NULL, IN, ranges and patterns."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from edgebroker.matching.published.cells import Cells
from edgebroker.matching.published.labels import Key, single_keys
from edgebroker.predicate import ElementaryTest, Interval, Kind, Pattern


class Spans:
    """Every wide edge of one node, ready to be asked with the key of a value."""

    __slots__ = ("edges", "numbers", "patterns", "several", "some", "strings")

    def __init__(self) -> None:
        self.some = 0  # the child of NOT NULL; 0 is none
        self.edges: dict[ElementaryTest, int] = {}
        self.several: dict[Key, list[int]] = {}  # single values of tests that accept more than this one
        self.numbers = Cells()
        self.strings = Cells()
        self.patterns: dict[int, tuple[Pattern, ...]] = {}  # child -> what its strings must be like as well

    def __bool__(self) -> bool:
        return bool(self.some or self.edges)

    def children(self) -> Iterator[int]:
        """Every child once."""
        if self.some:
            yield self.some
        yield from self.edges.values()

    def add(self, test: ElementaryTest, child: int) -> None:
        """Let the values that *test* accepts lead to *child*."""
        self.edges[test] = child
        if test.patterns:
            self.patterns[child] = test.patterns
        for key in single_keys(test):
            self.several.setdefault(key, []).append(child)
        cells = self.strings if test.kind is Kind.STRING else self.numbers
        for interval in _ranges(test):
            cells.add(interval, child)

    def discard(self, test: ElementaryTest) -> None:
        """Undo `add` of *test*."""
        child = self.edges.pop(test)
        self.patterns.pop(child, None)
        for key in single_keys(test):
            children = self.several[key]
            children.remove(child)
            if not children:
                del self.several[key]
        cells = self.strings if test.kind is Kind.STRING else self.numbers
        for interval in _ranges(test):
            cells.discard(interval, child)

    def find(self, key: Key, found: list[int]) -> None:
        """Append to *found* the children that a value with *key* leads to."""
        if key is None:
            return
        if self.some:
            found.append(self.some)
        if self.several:
            found += self.several.get(key, ())
        if isinstance(key, str):
            if self.strings:
                if self.patterns:
                    self._find_like(key, found)
                else:
                    self.strings.find(key, found)
        elif isinstance(key, (int, float)) and self.numbers:
            self.numbers.find(key, found)

    def bytes_estimate(self) -> int:
        """About how many bytes the edges take, without their values and tests."""
        tables = sys.getsizeof(self.edges) + sys.getsizeof(self.several) + sys.getsizeof(self.patterns)
        lists = sum(sys.getsizeof(children) for children in self.several.values())
        return sys.getsizeof(self) + tables + lists + self.numbers.bytes_estimate() + self.strings.bytes_estimate()

    def _find_like(self, text: str, found: list[int]) -> None:
        candidates: list[int] = []
        self.strings.find(text, candidates)
        for child in candidates:
            if all(pattern.accepts(text) for pattern in self.patterns.get(child, ())):
                found.append(child)


def _ranges(test: ElementaryTest) -> tuple[Interval, ...]:
    """The intervals that are no single value; a boolean has only two values, which `single_keys` names."""
    if test.kind is Kind.BOOLEAN:
        return ()
    return tuple(interval for interval in test.intervals if not interval.is_point)
