"""The place of a subscription in the tree, how each of its tests is settled there, and the cost of reaching it."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from edgebroker.dataclasses import dataclass
from edgebroker.matching.cells import CUT_FIRST, STAR
from edgebroker.matching.labels import attribute_of, label_of
from edgebroker.matching.pst import Pst
from edgebroker.predicate import ElementaryTest, Predicate


class SettlementKind(Enum):
    """How a test is settled for an event that has reached the bucket."""

    PATH = "path"
    """By an edge on the path, which accepts exactly the values of the test."""
    CELLS = "cells"
    """By the cell of the event's value: the test accepts all of each of its cells."""
    LOOSE = "loose"
    """By comparing the value: the test accepts only a part of some cell. The column excludes most other values."""
    UNCUT = "uncut"
    """By comparing the value: the bucket has no column for the attribute."""

    @property
    def is_verified(self) -> bool:
        """Whether the value itself must be compared."""
        return self in (SettlementKind.LOOSE, SettlementKind.UNCUT)


class TestState(NamedTuple):
    """How one test of a leaf is settled in the leaf's bucket."""

    settled: SettlementKind
    column: int
    """The column with its cells, or -1."""
    cells: int
    """The cells that it covers, one bit each."""


@dataclass(frozen=True, slots=True)
class PathStep:
    """One edge of a path."""

    attribute: str
    """The attribute that the fork tests; "" if it only spreads predicates that no test distinguishes."""
    label: str
    reason: str
    """Why the predicate took a `*` edge; "" for any other edge."""
    edges: int
    """The number of edges of the fork."""
    leaves: int
    """The number of leaves behind this edge."""


@dataclass(frozen=True, slots=True)
class PlacedTest:
    """One test of a predicate, and how it is settled."""

    test: ElementaryTest
    settled: SettlementKind


@dataclass(frozen=True, slots=True)
class Placement:
    """The place of one predicate of a subscription."""

    predicate: Predicate
    topic_filter: str
    turns: tuple[PathStep, ...]
    """From the root of the topic filter's content tree to the bucket."""
    tests: tuple[PlacedTest, ...]
    members: int
    """Subscriptions that share the leaf, this one included."""
    leaves: int
    """Leaves in the bucket, this one included."""
    columns: tuple[str, ...]
    """The attributes by whose cells the bucket is searched."""

    @property
    def steps(self) -> int:
        """Forks and buckets on the path, the last bucket included."""
        return len(self.turns) + 1

    @property
    def is_verified(self) -> bool:
        """Whether an event that the columns do not exclude must be compared with the predicate."""
        return any(placed.settled.is_verified for placed in self.tests)

    @property
    def is_certain(self) -> bool:
        """Whether every event that reaches the bucket satisfies the predicate."""
        return all(placed.settled is SettlementKind.PATH for placed in self.tests)

    @property
    def has_few_neighbours(self) -> bool:
        """Whether the bucket is too small to have columns."""
        return not self.columns and self.leaves < CUT_FIRST


def placements(tree: Pst, number: int) -> tuple[Placement, ...]:
    """Return the place of each predicate of subscription *number*.

    Empty for a subscription without content filter, which is on the topic filter itself. Raises KeyError if there is no
    such subscription.
    """
    end = tree.end_of(number)
    return tuple(_placement(tree, end.text, leaf) for leaf in tree.leaves.leaves_of(number))


def state_of_test(bucket: Any, test: ElementaryTest) -> TestState:
    """Return how *test*, of a leaf in *bucket*, is settled there."""
    strings = bucket.leaves.strings
    attribute = bucket.leaves.names.numbers[test.attribute]
    node = bucket
    while node.parent is not None:
        cells = node.parent.cells
        if cells is not None and cells.attribute == attribute and node.edge != STAR:
            covered = cells.cover(test, strings.values, strings.numbers)
            if covered.exact and covered.cells == node.edge:
                return TestState(SettlementKind.PATH, -1, 0)
        node = node.parent
    for column, cells in enumerate(bucket.columns):
        if cells.attribute == attribute:
            covered = cells.cover(test, strings.values, strings.numbers)
            return TestState(SettlementKind.CELLS if covered.exact else SettlementKind.LOOSE, column, covered.cells)
    return TestState(SettlementKind.UNCUT, -1, 0)


def path_to(node: Any) -> list[Any]:
    """Return the nodes from the root of the content tree down to *node*, both included."""
    path = [node]
    while path[-1].parent is not None:
        path.append(path[-1].parent)
    path.reverse()
    return path


def _placement(tree: Pst, topic_filter: str, leaf: int) -> Placement:
    leaves = tree.leaves
    predicate, bucket = leaves.predicate(leaf), leaves.home(leaf)
    return Placement(
        predicate,
        topic_filter,
        tuple(_path_step(leaves, node, predicate) for node in path_to(bucket)[1:]),
        tuple(PlacedTest(test, state_of_test(bucket, test).settled) for test in predicate),
        len(leaves.members_of(leaf)),
        bucket.count,
        tuple(attribute_of(leaves, cells) for cells in bucket.columns),
    )


def _path_step(leaves: Any, node: Any, predicate: Predicate) -> PathStep:
    fork = node.parent
    edges = len(fork.children())
    if fork.cells is None:
        return PathStep("", label_of(leaves, None, STAR), "nothing tells the predicates apart", edges, node.count)
    name = attribute_of(leaves, fork.cells)
    reason = ""
    if node.edge == STAR:
        tested = {leaves.names.numbers[test.attribute] for test in predicate}
        reason = "accepts most values" if fork.cells.attribute in tested else "not tested"
    return PathStep(name, label_of(leaves, fork.cells, node.edge), reason, edges, node.count)
