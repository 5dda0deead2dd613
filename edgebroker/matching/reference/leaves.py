"""Leaves: a leaf holds one predicate and the subscriptions that have it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from edgebroker.matching.cells import Cells, strings_of
from edgebroker.matching.interned import InternTable
from edgebroker.matching.reference.nodes import TreeNode
from edgebroker.predicate import Predicate


class Leaves:
    """All leaves of an engine by number, and what they share: attribute names and strings."""

    def __init__(self) -> None:
        self.names: InternTable[str] = InternTable()
        self.strings: InternTable[str] = InternTable()
        self.steps = 0
        """Matching steps so far: forks and buckets visited."""
        self.pattern_work = 0
        """What patterns took so far, as `ElementaryTest.pattern_work` counts it."""
        self.too_long = 0
        """Texts that were too long for the patterns of a test, once for each test."""
        self.predicates: list[Predicate | None] = []
        self.members: list[dict[int, int]] = []  # subscription number -> link
        self.homes: list[TreeNode | None] = []
        self.positions: list[int] = []
        self._several: set[int] = set()  # leaves with a member that has other leaves too
        self._of_number: dict[int, tuple[int, ...]] = {}
        self._listed: dict[tuple[int, Predicate], int] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self.predicates) - len(self._free)

    def create(self, predicate: Predicate) -> int:
        """A leaf for *predicate*, in no bucket and without members."""
        for test in predicate:
            self.names.take(test.attribute)
            for text in strings_of(test):
                self.strings.take(text)
        if self._free:
            leaf = self._free.pop()
            self.predicates[leaf] = predicate
            return leaf
        self.predicates.append(predicate)
        self.members.append({})
        self.homes.append(None)
        self.positions.append(-1)
        return len(self.predicates) - 1

    def destroy(self, leaf: int) -> None:
        """Give back *leaf*, which is in no bucket and has no members."""
        for test in self.predicate(leaf):
            self.names.drop(self.names.numbers[test.attribute])
            for text in strings_of(test):
                self.strings.drop(self.strings.numbers[text])
        self.predicates[leaf] = None
        self._free.append(leaf)

    def predicate(self, leaf: int) -> Predicate:
        """The predicate of *leaf*."""
        predicate = self.predicates[leaf]
        assert predicate is not None
        return predicate

    def attributes(self, leaf: int) -> Sequence[int]:
        """The numbers of the attributes that *leaf* tests."""
        return [self.names.numbers[test.attribute] for test in self.predicate(leaf)]

    def same(self, end: int, leaf: int) -> int:
        """The leaf listed for *end* with the predicate of *leaf*, or -1."""
        return self._listed.get((end, self.predicate(leaf)), -1)

    def enlist(self, end: int, leaf: int) -> None:
        """List *leaf* as the one for *end* with its predicate."""
        self._listed[end, self.predicate(leaf)] = leaf

    def delist(self, end: int, leaf: int) -> None:
        """Take it off the list."""
        del self._listed[end, self.predicate(leaf)]

    def hold(self, cells: Cells) -> None:
        """Keep the strings of *cells*: were their numbers given to others, those would inherit their cells."""
        for string in cells.strings:
            text = self.strings.values[string]
            assert text is not None
            self.strings.take(text)

    def let_go(self, cells: Cells) -> None:
        """Keep them no longer."""
        for string in cells.strings:
            self.strings.drop(string)

    def join(self, leaf: int, number: int, link: int, several: bool) -> None:
        """Make subscription *number* a member of *leaf*.  several: it is or will be one of other leaves too."""
        self.members[leaf][number] = link
        self._of_number[number] = (*self._of_number.get(number, ()), leaf)
        if several:
            self._several.add(leaf)

    def quit(self, number: int) -> tuple[int, ...]:
        """End the memberships of *number*; return the leaves it was a member of."""
        leaves = self._of_number.pop(number, ())
        for leaf in leaves:
            del self.members[leaf][number]
            if not self.members[leaf]:
                self._several.discard(leaf)
        return leaves

    def leaves_of(self, number: int) -> tuple[int, ...]:
        """The leaves that *number* is a member of."""
        return self._of_number.get(number, ())

    def members_of(self, leaf: int) -> dict[int, int]:
        """The members of *leaf*: subscription number -> link. Not to be changed."""
        return self.members[leaf]

    def home(self, leaf: int) -> TreeNode:
        """The bucket that holds *leaf*."""
        home = self.homes[leaf]
        assert home is not None
        return home

    def is_several(self, leaf: int) -> bool:
        """Whether some member of *leaf* may be a member of other leaves."""
        return leaf in self._several

    def links(self, leaf: int) -> int:
        """The links of the members, one bit each."""
        links = 0
        for link in self.members[leaf].values():
            links |= 1 << link
        return links

    def bytes(self) -> int:
        """Bytes taken, without the predicates themselves."""
        lists = (self.predicates, self.members, self.homes, self.positions, self._of_number, self._listed)
        return (
            sum(map(sys.getsizeof, lists))
            + sum(map(sys.getsizeof, self.members))
            + sum(map(sys.getsizeof, self._of_number.values()))
            + self.names.bytes()
            + self.strings.bytes()
        )
