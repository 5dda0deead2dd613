"""What one event does in the tree: the edges it takes and leaves, the predicates compared in vain, and who is found.

The searches of the kernels say what they find, not how. Here they are walked again, node by node in the same order,
with what either kernel shows of its tree; finding the same in the same number of steps is a law of the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from edgebroker.dataclasses import dataclass
from edgebroker.matching.ends import End, Resolution
from edgebroker.matching.growth import STAR
from edgebroker.matching.labels import attribute_of, label_of
from edgebroker.matching.placement import TestState, path_to, standing
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
    """A predicate that the columns left over and that was compared with the event."""

    numbers: tuple[int, ...]
    """The subscriptions that have it."""
    failed: ElementaryTest | None
    """The first of its tests that the event fails; None if it matches."""


@dataclass(frozen=True, slots=True)
class SearchStep:
    """One fork or bucket that the search for all matches visits."""

    number: int
    """In the order of the search, from 1."""
    depth: int
    topic_filter: str
    label: str
    """Of the edge that led here; "" at the root of a content tree."""
    leaves: int
    """How many lie here and below."""
    attribute: str = ""
    """Of a fork: what it tests; "" if nothing."""
    value: Value = None
    """Of a fork: what the event has there."""
    edges: tuple[Edge, ...] = ()
    """Of a fork, in the order of the search."""
    columns: tuple[str, ...] = ()
    """Of a bucket: the attributes by whose cells it was searched."""
    left: int = 0
    """Of a bucket: how many leaves the columns left over."""
    decided: tuple[int, ...] = ()
    """Of a bucket: the subscriptions that match without a look at their predicates."""
    compared: tuple[PredicateComparison, ...] = ()
    """Of a bucket: the predicates looked at."""

    @property
    def is_fork(self) -> bool:
        """Whether this is a fork, not a bucket."""
        return bool(self.edges)

    @property
    def in_vain(self) -> tuple[PredicateComparison, ...]:
        """The comparisons that found nothing."""
        return tuple(one for one in self.compared if one.failed is not None)


@dataclass(frozen=True, slots=True)
class PredicateFate:
    """How the search dealt with one predicate of one subscription."""

    predicate: Predicate
    step: int
    """The step at which it was decided."""
    edge: str = ""
    """The edge towards it that was not taken."""
    column: str = ""
    """The attribute by whose cells it was left out."""
    failed: ElementaryTest | None = None
    """The test that failed when it was compared."""

    @property
    def matches(self) -> bool:
        """Whether the event was accepted."""
        return not self.edge and not self.column and self.failed is None


class _Visit(NamedTuple):
    """What is known of a node that the search visits."""

    step: int
    is_doubtful: bool
    """Whether nothing is settled by the way here: the event's value lies between two floats, inside a cell."""


class _Candidate(NamedTuple):
    """A leaf that the columns of its bucket left over."""

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
        """The subscriptions that match, in the order in which they are found."""
        self._event = Event(tree.leaves, attributes)
        self._seen: dict[int, _Visit] = {}  # by id of the node
        for end in self.resolution.ends:
            if end.content is not None:
                self._search(end)

    @property
    def ends(self) -> tuple[End, ...]:
        """The topic filters that match."""
        return self.resolution.ends

    def fates(self, number: int) -> tuple[PredicateFate, ...]:
        """What became of each predicate of subscription *number*, on one of the topic filters that match.

        None for a subscription without content filter. Raises KeyError if the topic filter of *number* does not match.
        """
        if self.tree.end_of(number) not in self.ends:
            raise KeyError(number)
        return tuple(self._fate(leaf) for leaf in self.tree.leaves.leaves_of(number))

    def next_of(self, fork: Any) -> list[Any]:
        """The children of *fork* that the event reaches, in the order of the search."""
        return [child for child in fork.children() if self.takes(fork, child)]

    def takes(self, fork: Any, child: Any) -> bool:
        """Whether the event goes from *fork* on to *child*."""
        if child.edge == STAR or fork.cells is None:
            return True
        cell = self._event.cell(fork.cells)
        return cell == INSIDE or bool(child.edge >> cell & 1)

    def is_doubtful(self, node: Any) -> bool:
        """Whether the way to *node*, which the search visits, settles nothing."""
        return self._seen[id(node)].is_doubtful

    def sieve(self, bucket: Any) -> Iterator[_Candidate]:
        """The leaves that the columns of *bucket* leave over, by position."""
        cells = [self._event.cell(column) for column in bucket.columns]
        settled = INSIDE not in cells and not self.is_doubtful(bucket)
        for leaf in bucket.held():
            stands = [standing(bucket, test) for test in self.tree.leaves.predicate(leaf)]
            if all(_is_left(one, cells) for one in stands):
                yield _Candidate(leaf, not settled or any(one.settled.is_verified for one in stands))

    def failed(self, predicate: Predicate) -> ElementaryTest | None:
        """The first test of *predicate* that the event fails; None if it passes all."""
        return next((test for test in predicate if not test.accepts(self.attributes.get(test.attribute))), None)

    def is_found(self, sieved: _Candidate) -> bool:
        """Whether a leaf that is left over accepts the event."""
        return not sieved.is_verified or self.failed(self.tree.leaves.predicate(sieved.leaf)) is None

    def _search(self, end: End) -> None:
        assert end.content is not None
        nodes = [(end.content.root, 0, False)]
        while nodes:
            node, depth, doubtful = nodes.pop()
            self._seen[id(node)] = _Visit(len(self.steps) + 1, doubtful)
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
        sieved = list(self.sieve(bucket))
        decided: list[int] = []
        compared = []
        for one in sieved:
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
            left=len(sieved),
            decided=tuple(decided),
            compared=tuple(compared),
        )

    def _fate(self, leaf: int) -> PredicateFate:
        leaves = self.tree.leaves
        predicate, bucket = leaves.predicate(leaf), leaves.home(leaf)
        for node in path_to(bucket)[1:]:
            if not self.takes(node.parent, node):
                return PredicateFate(predicate, self._seen[id(node.parent)].step, edge=label_to(leaves, node))
        step = self._seen[id(bucket)].step
        cells = [self._event.cell(column) for column in bucket.columns]
        for test in predicate:
            if not _is_left(standing(bucket, test), cells):
                return PredicateFate(predicate, step, column=test.attribute)
        return PredicateFate(predicate, step, failed=self.failed(predicate))


def label_to(leaves: Any, node: Any) -> str:
    """The words of the edge that leads to *node*; "" at the root of a content tree."""
    return "" if node.parent is None else label_of(leaves, node.parent.cells, node.edge)


def _is_left(stands: TestState, cells: list[int]) -> bool:
    """Whether a test that *stands* so is compatible with the *cells* of the event's values, by column."""
    return stands.column < 0 or cells[stands.column] == INSIDE or bool(stands.cells >> cells[stands.column] & 1)
