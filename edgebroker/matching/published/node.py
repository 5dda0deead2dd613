"""The nodes of a tree and the labels of its edges.

A branch tests one attribute, identified by its *rank*, its place in the order of attributes. It has value edges and a
`*` edge. Ranks grow on the way down, and a leaf has the greatest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from edgebroker.matching.outcomes import NOWHERE
from edgebroker.predicate import Composite, ElementaryTest, Value

Key: TypeAlias = int | float | str | tuple[bool] | Composite | None
"""A value for lookup among edges: equal values have equal keys. A boolean is a tuple of one, because `True == 1`."""

STAR: Final = None
"""The label of the edge to the predicates that do not test the attribute."""

Label: TypeAlias = Key | ElementaryTest
"""A key: the edge for exactly this value. A test: an edge for every value that it accepts. None is STAR."""

Path: TypeAlias = Sequence[tuple[int, Label]]
"""Ranks, growing, and the edge to take at each. Ranks that are missing need no node."""

Equality: TypeAlias = tuple[int, Key]
"""The test of the attribute of a rank for one value."""

LEAF: Final = 1 << 30
"""The rank of a leaf."""


def key_of(value: Value) -> Key:
    """Return the key of *value*. That of NULL matches no value edge: none is labelled None."""
    return (value,) if isinstance(value, bool) else value


def label_of(test: ElementaryTest) -> Label:
    """Return the label of the edge for *test*."""
    if len(test.intervals) == 1 and not test.patterns and test.intervals[0].is_point:
        return key_of(test.intervals[0].low)
    return test


class Leaf:
    """The subscriptions of one predicate, and the links over which they are reached."""

    __slots__ = ("annotation", "members")

    rank: Final = LEAF
    shared: Final[frozenset[Equality]] = frozenset()

    def __init__(self) -> None:
        self.members: dict[int, int] = {}
        """Subscription -> links, one bit each."""
        self.annotation = NOWHERE


class Branch:
    """A test of one attribute."""

    __slots__ = ("annotation", "rank", "shared", "star", "tests", "values")

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.values: dict[Key, Node] = {}
        self.tests: dict[ElementaryTest, Node] = {}
        self.star: Node | None = None
        self.annotation = NOWHERE
        self.shared: frozenset[Equality] = frozenset()
        """The equality tests that all leaves below require, from this rank on; empty without delayed branching."""

    def taken(self, value: Value) -> list[Node]:
        """Return the children of the value edges that *value* takes."""
        child = self.values.get(key_of(value))
        found = [] if child is None else [child]
        if self.tests:
            found += [child for test, child in self.tests.items() if test.accepts(value)]
        return found

    def child(self, label: Label) -> Node | None:
        """Return the child at the end of the edge *label*, None if there is none."""
        if label is STAR:
            return self.star
        return self.tests.get(label) if isinstance(label, ElementaryTest) else self.values.get(label)

    def set_child(self, label: Label, child: Node | None) -> None:
        """Set the child of the edge *label*; None removes the edge."""
        if label is STAR:
            self.star = child
        elif isinstance(label, ElementaryTest):
            if child is None:
                del self.tests[label]
            else:
                self.tests[label] = child
        elif child is None:
            del self.values[label]
        else:
            self.values[label] = child

    def edges(self) -> Iterator[tuple[Label, Node]]:
        """Iterate over all edges with their children."""
        yield from self.values.items()
        yield from self.tests.items()
        if self.star is not None:
            yield STAR, self.star


Node: TypeAlias = Leaf | Branch
