"""A parallel search tree: insertion, removal, annotation, and the two searches, for all matching predicates and for
links alone [LM].

Both searches are depth-first, value edges before the `*` edge. A matching step is a visit to a node.

For a given order of attributes the shape depends only on the predicates in the tree, not on their history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from edgebroker.matching.outcomes import NOWHERE, TritVector, alternative_combine, parallel_combine
from edgebroker.matching.published.node import LEAF, STAR, Branch, Equality, Label, Leaf, Node, Path, key_of
from edgebroker.predicate import ElementaryTest, Value


class SearchDecision(NamedTuple):
    """The result of one search for links."""

    yes: int
    """The links that need a copy, one bit each."""
    steps: int
    """The number of nodes visited."""


def collect(node: Node, values: Sequence[Value], found: list[int]) -> int:
    """Append to *found* the subscriptions below *node* that accept an event; return the steps.

    values: the event's values by rank.
    """
    if isinstance(node, Leaf):
        found += node.members
        return 1
    return 1 + sum(collect(child, values, found) for child in _selected(node, values))


def decide(node: Node, values: Sequence[Value], open_: int) -> SearchDecision:
    """Return those of the links *open_* over which a subscription below *node* wants an event.

    The mask of the paper is a vector of trits. Here it is the set of links that are still MAYBE: a YES is part of the
    result, and a NO is in neither. The search ends as soon as no link is open.
    """
    yes = open_ & node.annotation.yes
    open_ &= node.annotation.maybe
    steps = 1
    if open_ and isinstance(node, Branch):
        for child in _selected(node, values):
            below = decide(child, values, open_)
            yes |= below.yes
            steps += below.steps
            open_ &= ~below.yes
            if not open_:
                break
    return SearchDecision(yes, steps)


def _selected(node: Branch, values: Sequence[Value]) -> Iterator[Node]:
    """Iterate over the children to search. The `*` branch is skipped if all its leaves require values the event has not
    [LM].
    """
    yield from node.taken(values[node.rank])
    star = node.star
    if star is not None and all(key_of(values[rank]) == key for rank, key in star.shared):
        yield star


class SearchTree:
    """Subscriptions by the paths of their predicates."""

    __slots__ = ("domains", "guarded", "root", "trivial")

    def __init__(self, domains: Mapping[int, Sequence[Value]], *, trivial: bool, guarded: bool) -> None:
        """domains: rank -> all values of its attribute, where that is declared.

        trivial: whether branches with only a `*` edge are kept [LM, trivial test elimination]. guarded: whether
        branches store the tests that their leaves share [LM, delayed branching].
        """
        self.domains = domains
        self.trivial = trivial
        self.guarded = guarded
        self.root: Node | None = None

    def insert(self, path: Path, number: int, links: int, *, annotate: bool = True) -> None:
        """Add subscription *number*, to be reached over *links* (one bit each), at the end of *path*.

        annotate: whether to update the annotations on the path; if not, `annotate` must follow.
        """
        self.root = self._insert(self.root, path, number, links, annotate)

    def remove(self, path: Path, number: int) -> None:
        """Remove subscription *number* from the end of *path*. Raises KeyError if it is not there."""
        self.root = self._remove(self.root, path, number)

    def annotate(self) -> None:
        """Recompute all annotations."""
        if self.root is not None:
            self._annotate_all(self.root)

    def match(self, values: Sequence[Value], found: list[int]) -> int:
        """Append to *found* the subscriptions that accept an event with *values* by rank; return the steps."""
        return collect(self.root, values, found) if self.root else 0

    def decide(self, values: Sequence[Value], mask: int) -> SearchDecision:
        """Return the links of *mask* that an event with *values* by rank must take."""
        return decide(self.root, values, mask) if self.root else SearchDecision(0, 0)

    def _insert(self, node: Node | None, path: Path, number: int, links: int, annotate: bool) -> Node:
        """Return the sub-tree at *node* with one subscription more."""
        rank = path[0][0] if path else LEAF
        if node is None or node.rank > rank:
            rest, node = node, Branch(rank) if path else Leaf()
            if isinstance(node, Branch):
                node.star = rest
        if isinstance(node, Leaf):
            node.members[number] = links
        elif node.rank < rank:
            node.star = self._insert(node.star, path, number, links, annotate)
        else:
            label = path[0][1]
            node.set_child(label, self._insert(node.child(label), path[1:], number, links, annotate))
        if annotate:
            self._annotate(node)
        return node

    def _remove(self, node: Node | None, path: Path, number: int) -> Node | None:
        """Return the sub-tree at *node* with one subscription less and without superfluous nodes."""
        if node is None:
            raise KeyError(number)
        if isinstance(node, Leaf):
            del node.members[number]
            if not node.members:
                return None
        else:
            on_path = bool(path) and path[0][0] == node.rank
            label = path[0][1] if on_path else STAR
            node.set_child(label, self._remove(node.child(label), path[1:] if on_path else path, number))
            if not node.values and not node.tests and not (node.star and self.trivial):
                return node.star
        self._annotate(node)
        return node

    def _annotate_all(self, node: Node) -> None:
        if isinstance(node, Branch):
            for _, child in node.edges():
                self._annotate_all(child)
        self._annotate(node)

    def _annotate(self, node: Node) -> None:
        """Annotate *node* from its children."""
        if isinstance(node, Leaf):
            yes = 0
            for links in node.members.values():
                yes |= links
            node.annotation = TritVector(yes, 0)
            return
        over_values = self._over_values(node)
        node.annotation = parallel_combine(over_values, node.star.annotation) if node.star else over_values
        if self.guarded:
            node.shared = frozenset.intersection(
                *(child.shared | _equality(node.rank, label) for label, child in node.edges())
            )

    def _over_values(self, node: Branch) -> TritVector:
        """Return A over the values that the attribute can have, each being P over the edges that accept it.

        An attribute without declared domain can have values that no edge accepts, for which every link is NO: the
        implicit alternative N...N. It leaves no YES, so A is MAYBE for every link that some edge reaches.
        """
        domain = self.domains.get(node.rank)
        if domain is None:
            reach = 0
            for label, child in node.edges():
                if label is not STAR:
                    reach |= child.annotation.reach
            return TritVector(0, reach)
        over_all: TritVector | None = None
        for value in domain:
            here = NOWHERE
            for child in node.taken(value):
                here = parallel_combine(here, child.annotation)
            over_all = here if over_all is None else alternative_combine(over_all, here)
        return over_all or NOWHERE


def _equality(rank: int, label: Label) -> frozenset[Equality]:
    """Return the test that an edge requires of every leaf below, if it is an equality test."""
    if label is STAR or isinstance(label, ElementaryTest):
        return frozenset()
    return frozenset([(rank, label)])
