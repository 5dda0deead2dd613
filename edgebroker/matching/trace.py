"""The search of one event in the tree, step by step: the edges it takes and rejects, the predicates compared, the
matches.

The kernels return only results. Here their searches are repeated, node by node in the same order, on either kernel's
tree; the tests check that results and number of steps are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from edgebroker.dataclasses import dataclass
from edgebroker.matching.cells import STAR
from edgebroker.matching.ends import End, Resolution
from edgebroker.matching.labels import attribute_of, label_of
from edgebroker.matching.placement import TestState, path_to, state_of_test
from edgebroker.matching.pst import Pst
from edgebroker.matching.reference.events import INSIDE, Event
from edgebroker.predicate import Attributes, ElementaryTest, Predicate, Value


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge of a fork that the search visits."""

    label: str
    taken: bool


@dataclass(frozen=True, slots=True)
class PredicateComparison:
    """A predicate that the columns did not exclude and that was compared with the event."""

    numbers: tuple[int, ...]
    """The subscriptions with this predicate."""
    failed: ElementaryTest | None
    """The first of its tests that fails; None if the predicate matches."""


@dataclass(frozen=True, slots=True)
class SearchStep:
    """One fork or bucket that the search for all matches visits."""

    number: int
    """In the order of the search, from 1."""
    depth: int
    topic_filter: str
    label: str
    """Of the edge to this node; "" at the root of a content tree."""
    leaves: int
    """The number of leaves here and below."""
    attribute: str = ""
    """Of a fork: the attribute it tests; "" if none."""
    value: Value = None
    """Of a fork: the event's value of the attribute."""
    edges: tuple[Edge, ...] = ()
    """Of a fork, in the order of the search."""
    columns: tuple[str, ...] = ()
    """Of a bucket: the attributes by whose cells it was searched."""
    left: int = 0
    """Of a bucket: the number of leaves that the columns did not exclude."""
    decided: tuple[int, ...] = ()
    """Of a bucket: the subscriptions that match without a comparison."""
    compared: tuple[PredicateComparison, ...] = ()
    """Of a bucket: the predicates compared."""

    @property
    def is_fork(self) -> bool:
        """Whether this is a fork, not a bucket."""
        return bool(self.edges)

    @property
    def in_vain(self) -> tuple[PredicateComparison, ...]:
        """The comparisons that failed."""
        return tuple(one for one in self.compared if one.failed is not None)


@dataclass(frozen=True, slots=True)
class PredicateFate:
    """The result of the search for one predicate of one subscription."""

    predicate: Predicate
    step: int
    """The step that decided it."""
    edge: str = ""
    """The edge on its path that was not taken."""
    column: str = ""
    """The attribute by whose cells it was excluded."""
    failed: ElementaryTest | None = None
    """The test that failed in the comparison."""

    @property
    def matches(self) -> bool:
        """Whether the predicate accepted the event."""
        return not self.edge and not self.column and self.failed is None


class _Visit(NamedTuple):
    """The visit of a node."""

    step: int
    is_doubtful: bool
    """Whether the path settles nothing, because the event's value lies between two floats, inside a cell."""


class _Candidate(NamedTuple):
    """A leaf that the columns of its bucket did not exclude."""

    leaf: int
    is_verified: bool


class SearchTrace:
    """The search of *tree* for all subscriptions that match an event."""

    def __init__(self, tree: Pst, topic: str, attributes: Attributes) -> None:
        """attributes: at least those that `tree.resolve(topic)` wants, as far as the event has them."""
        self.tree = tree
        self.attributes = attributes
        self.resolution: Resolution = tree.resolve(topic)
        self.steps: list[SearchStep] = []
        self.numbers: dict[int, None] = dict.fromkeys(self.resolution.plain)
        """The subscriptions that match, in the order of the search."""
        self._event = Event(tree.leaves, attributes)
        self._visits: dict[int, _Visit] = {}  # by id of the node
        for end in self.resolution.ends:
            if end.content is not None:
                self._search(end)

    @property
    def ends(self) -> tuple[End, ...]:
        """The topic filters that match."""
        return self.resolution.ends

    def fates(self, number: int) -> tuple[PredicateFate, ...]:
        """Return the result for each predicate of subscription *number*, on one of the topic filters that match.

        Empty for a subscription without content filter. Raises KeyError if the topic filter of *number* does not match.
        """
        if self.tree.end_of(number) not in self.ends:
            raise KeyError(number)
        return tuple(self._fate(leaf) for leaf in self.tree.leaves.leaves_of(number))

    def next_of(self, fork: Any) -> list[Any]:
        """Return the children of *fork* that the event reaches, in the order of the search."""
        return [child for child in fork.children() if self.takes(fork, child)]

    def takes(self, fork: Any, child: Any) -> bool:
        """Return whether the event takes the edge from *fork* to *child*."""
        if child.edge == STAR or fork.cells is None:
            return True
        cell = self._event.cell(fork.cells)
        return cell == INSIDE or bool(child.edge >> cell & 1)

    def is_doubtful(self, node: Any) -> bool:
        """Return whether the path to *node*, which the search visits, settles nothing."""
        return self._visits[id(node)].is_doubtful

    def candidates(self, bucket: Any) -> Iterator[_Candidate]:
        """Iterate over the leaves that the columns of *bucket* do not exclude, by position."""
        cells = [self._event.cell(column) for column in bucket.columns]
        settled = INSIDE not in cells and not self.is_doubtful(bucket)
        for leaf in bucket.held():
            states = [state_of_test(bucket, test) for test in self.tree.leaves.predicate(leaf)]
            if all(_is_possible(one, cells) for one in states):
                yield _Candidate(leaf, not settled or any(one.settled.is_verified for one in states))

    def failed(self, predicate: Predicate) -> ElementaryTest | None:
        """Return the first test of *predicate* that the event fails; None if it passes all."""
        return next((test for test in predicate if not test.accepts(self.attributes.get(test.attribute))), None)

    def is_found(self, candidate: _Candidate) -> bool:
        """Return whether a candidate accepts the event."""
        return not candidate.is_verified or self.failed(self.tree.leaves.predicate(candidate.leaf)) is None

    def _search(self, end: End) -> None:
        assert end.content is not None
        nodes = [(end.content.root, 0, False)]
        while nodes:
            node, depth, doubtful = nodes.pop()
            self._visits[id(node)] = _Visit(len(self.steps) + 1, doubtful)
            if isinstance(node, self.tree.kernel.Fork):
                self.steps.append(self._fork_step(end, node, depth))
                inside = node.cells is not None and self._event.cell(node.cells) == INSIDE
                for child in reversed(self.next_of(node)):
                    nodes.append((child, depth + 1, doubtful or (inside and child.edge != STAR)))
            else:
                self.steps.append(self._bucket_step(end, node, depth))

    def _fork_step(self, end: End, fork: Any, depth: int) -> SearchStep:
        leaves = self.tree.leaves
        name = "" if fork.cells is None else leaves.names.values[fork.cells.attribute]
        return SearchStep(
            len(self.steps) + 1,
            depth,
            end.text,
            label_to(leaves, fork),
            fork.count,
            "" if fork.cells is None else attribute_of(leaves, fork.cells),
            self.attributes.get(name),
            tuple(Edge(label_to(leaves, child), self.takes(fork, child)) for child in fork.children()),
        )

    def _bucket_step(self, end: End, bucket: Any, depth: int) -> SearchStep:
        leaves = self.tree.leaves
        candidates = list(self.candidates(bucket))
        decided: list[int] = []
        compared = []
        for one in candidates:
            numbers = tuple(leaves.members_of(one.leaf))
            failed = self.failed(leaves.predicate(one.leaf)) if one.is_verified else None
            if one.is_verified:
                compared.append(PredicateComparison(numbers, failed))
            else:
                decided += numbers
            if failed is None:
                self.numbers.update(dict.fromkeys(numbers))
        return SearchStep(
            len(self.steps) + 1,
            depth,
            end.text,
            label_to(leaves, bucket),
            bucket.count,
            columns=tuple(attribute_of(leaves, cells) for cells in bucket.columns),
            left=len(candidates),
            decided=tuple(decided),
            compared=tuple(compared),
        )

    def _fate(self, leaf: int) -> PredicateFate:
        leaves = self.tree.leaves
        predicate, bucket = leaves.predicate(leaf), leaves.home(leaf)
        for node in path_to(bucket)[1:]:
            if not self.takes(node.parent, node):
                return PredicateFate(predicate, self._visits[id(node.parent)].step, edge=label_to(leaves, node))
        step = self._visits[id(bucket)].step
        cells = [self._event.cell(column) for column in bucket.columns]
        for test in predicate:
            if not _is_possible(state_of_test(bucket, test), cells):
                return PredicateFate(predicate, step, column=test.attribute)
        return PredicateFate(predicate, step, failed=self.failed(predicate))


def label_to(leaves: Any, node: Any) -> str:
    """Return the text of the edge to *node*; "" at the root of a content tree."""
    return "" if node.parent is None else label_of(leaves, node.parent.cells, node.edge)


def _is_possible(state: TestState, cells: list[int]) -> bool:
    """Return whether a test in *state* is compatible with the *cells* of the event's values, by column."""
    return state.column < 0 or cells[state.column] == INSIDE or bool(state.cells >> cells[state.column] & 1)
