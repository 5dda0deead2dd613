"""Buckets: small sub-trees whose predicates are tested in place, all at once.

A bucket is a table with one row per cell and one bit per leaf: set if the leaf's predicate covers the cell. An event
picks one row of each column; the bits that are set in all of them are the leaves that match, or, where a predicate
covers a cell loosely, those to verify. The bits of `*` stand in every row, as factoring copies them [LM 2.8].
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from edgebroker.matching.cells import BUCKET_LIMIT, SAMPLE_MAX, STAR, Cells, Cover
from edgebroker.matching.reference.leaves import Leaves
from edgebroker.matching.reference.nodes import TreeNode
from edgebroker.predicate import ElementaryTest, Predicate


class Bucket(TreeNode):
    """Up to BUCKET_LIMIT leaves."""

    __slots__ = ("certain", "columns", "fresh", "leaves", "live", "loose", "rows", "slots")

    def __init__(self, leaves: Leaves) -> None:
        super().__init__()
        self.leaves = leaves
        self.slots: list[int] = []  # leaf by position, -1 where there is none
        self.live = 0  # positions in use
        self.loose = 0  # positions whose leaf must be verified
        self.certain = 0  # positions whose leaf matches whatever the event is
        self.columns: tuple[Cells, ...] = ()
        self.rows: list[list[int]] = []  # one list per column
        self.fresh = 0
        """Leaves that came since the columns were cut."""

    def add(self, leaf: int) -> None:
        """Take in *leaf*. There must be room."""
        self.place(leaf)
        self._enter(self.leaves.positions[leaf], self.leaves.predicate(leaf))

    def place(self, leaf: int) -> None:
        """Give *leaf* a place only. It is found when the bucket has been cut anew, which must follow."""
        position = (~self.live & (self.live + 1)).bit_length() - 1  # the lowest that is free
        assert position < BUCKET_LIMIT
        self.slots[position : position + 1] = [leaf]
        self.count += 1
        self.leaves.homes[leaf] = self
        self.leaves.positions[leaf] = position
        self.live |= 1 << position
        self.fresh += 1

    def remove(self, leaf: int) -> None:
        """Give up *leaf*."""
        position = self.leaves.positions[leaf]
        self.slots[position] = -1
        self.count -= 1
        self.leaves.homes[leaf] = None
        gone = ~(1 << position)
        self.live &= gone
        self.loose &= gone
        self.certain &= gone

    def held(self) -> list[int]:
        """The leaves here, by position."""
        return [leaf for leaf in self.slots if leaf >= 0]

    def cut(self, columns: Sequence[Cells]) -> None:
        """Make *columns* the columns. Leaves are put in the order of their links."""
        held = sorted(self.held(), key=self._first_link)
        for cells in columns:
            self.leaves.hold(cells)
        self.discard()
        self.columns = tuple(columns)
        self.rows = [[0] * cells.count for cells in columns]
        self.slots = held
        self.live = (1 << len(held)) - 1
        self.loose = self.certain = self.fresh = 0
        for position, leaf in enumerate(held):
            self.leaves.positions[leaf] = position
            self._enter(position, self.leaves.predicate(leaf))

    def discard(self) -> None:
        """Give back what the columns hold, before the bucket or its columns go."""
        for cells in self.columns:
            self.leaves.let_go(cells)
        self.columns = ()
        self.rows = []

    def sample(self) -> list[int]:
        """At most SAMPLE_MAX leaves, spread evenly over the positions: enough to find quantiles and shares."""
        held = self.held()
        return held[:: max(1, -(-len(held) // SAMPLE_MAX))]

    def annotate(self) -> bool:
        """Find the annotation; say whether it changed."""
        # `gain` has told what came, so that once annotated nothing is here that is not known: enough is all of that.
        enough = (self.yes | self.maybe) or -1
        yes = reach = 0
        for leaf in self._at(self.live):
            reach |= self.leaves.links(leaf)
            if reach == enough:
                break
        for leaf in self._at(self.certain):
            yes |= self.leaves.links(leaf)
        before = self.yes, self.maybe
        self.yes, self.maybe = yes, reach & ~yes
        return before != (self.yes, self.maybe)

    def gain(self, leaf: int) -> bool:
        """Add the links of *leaf*, which has new members, to the annotation; say whether it changed."""
        links = self.leaves.links(leaf)
        before = self.yes, self.maybe
        if self.certain >> self.leaves.positions[leaf] & 1:
            self.yes |= links
        self.maybe = (self.maybe | links) & ~self.yes
        return before != (self.yes, self.maybe)

    def bytes(self) -> int:
        """Bytes taken."""
        rows = sum(sys.getsizeof(row) for column in self.rows for row in column)
        return (
            200 + sys.getsizeof(self.slots) + rows
            + sum(map(sys.getsizeof, self.rows)) + sum(cells.bytes() for cells in self.columns)
        )  # fmt: skip

    def _enter(self, position: int, predicate: Predicate) -> None:
        """Set the bits of *predicate*."""
        bit = 1 << position
        tests = {}
        for test in predicate:
            attribute = self.leaves.names.numbers[test.attribute]
            if not self.is_settled(attribute, test):
                tests[attribute] = test
        if not tests:
            self.certain |= bit
        exact = True
        for cells, rows in zip(self.columns, self.rows, strict=True):
            column_test = tests.pop(cells.attribute, None)
            covered = -1
            if column_test is not None:
                covered, covers_exactly = self.cover(cells, column_test)
                exact = exact and covers_exactly
            for cell, row in enumerate(rows):
                rows[cell] = row | bit if covered >> cell & 1 else row & ~bit
        if tests or not exact:
            self.loose |= bit

    def _first_link(self, leaf: int) -> int:
        """The lowest link of the members of *leaf*; -1 if it has none yet."""
        links = self.leaves.links(leaf)
        return (links & -links).bit_length() - 1

    def cover(self, cells: Cells, test: ElementaryTest) -> Cover:
        return cells.cover(test, self.leaves.strings.values, self.leaves.strings.numbers)

    def is_settled(self, attribute: int, test: ElementaryTest) -> bool:
        """Whether every event that gets here passes *test*, because an edge on the way accepts just the same."""
        node: TreeNode = self
        while node.parent is not None:
            cells = node.parent.cells
            if cells is not None and cells.attribute == attribute and node.edge != STAR:
                covered = self.cover(cells, test)
                if covered.exact and covered.cells == node.edge:
                    return True
            node = node.parent
        return False

    def _at(self, positions: int) -> Iterator[int]:
        """The leaves at *positions*, one bit each."""
        while positions:
            lowest = positions & -positions
            positions ^= lowest
            yield self.slots[lowest.bit_length() - 1]


def edge_of(leaves: Leaves, leaf: int, cells: Cells) -> Cover:
    """What *leaf* covers of *cells*; STAR if it does not test the attribute."""
    name = leaves.names.values[cells.attribute]
    for test in leaves.predicate(leaf):
        if test.attribute == name:
            return cells.cover(test, leaves.strings.values, leaves.strings.numbers)
    return Cover(STAR, True)
