"""The parallel search tree as published, for the experiments and for the worked examples of the paper [LM].

It is plain Python written for readability, with only the concepts of the paper: subscriptions of one conjunction each
over a fixed list of attributes, and links. The optimisations of the paper are options, off by default.

A branch tests one attribute, identified by its *rank*, its place in the order of attributes. It has value edges and a
`*` edge. Ranks grow on the way down, and a leaf has the greatest. For a given order of attributes the shape depends
only on the predicates in the tree, not on their history.

Two searches, for all matching predicates and for links alone, are depth-first, value edges before the `*` edge. A
matching step is a visit to a node.

Index attributes factor the tree: a subscription that leaves one untested is inserted into the trees of all its values.
Values that no subscription names share one tree, which has only these copies with `*`: its value is OTHER.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import product
from typing import Final, NamedTuple, TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.matching.outcomes import NOWHERE, TritVector, alternative_combine, parallel_combine
from edgebroker.predicate import Attributes, Composite, ElementaryTest, Predicate, Value

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


class OtherValue(Enum):
    """The value that stands for all values that no subscription names."""

    OTHER = "other"


IndexKey: TypeAlias = tuple[Key | OtherValue, ...]
"""One value per index attribute: identifies a tree."""


class FactorTable:
    """Chooses the trees of a subscription, and the one in which an event is searched."""

    def __init__(self, index_attributes: int) -> None:
        self._counts: list[Counter[Key]] = [Counter() for _ in range(index_attributes)]
        """For each index attribute: value -> the number of subscriptions that name it."""

    def name(self, labels: Sequence[Key]) -> list[tuple[int, Key]]:
        """Count the values that *labels* (key or STAR) name; return those that are new, by index attribute."""
        new = [(at, key) for at, key in _keys(labels) if not self._counts[at][key]]
        for at, key in _keys(labels):
            self._counts[at][key] += 1
        return new

    def forget(self, labels: Sequence[Key]) -> list[tuple[int, Key]]:
        """Undo `name`; return the values that no subscription names any more."""
        unused = []
        for at, key in _keys(labels):
            self._counts[at][key] -= 1
            if not self._counts[at][key]:
                del self._counts[at][key]
                unused.append((at, key))
        return unused

    def trees_of(self, labels: Sequence[Key]) -> Iterator[IndexKey]:
        """Iterate over the trees of a subscription with *labels* (key or STAR) for its index attributes."""
        everywhere = [(*counts, OtherValue.OTHER) for counts in self._counts]
        return product(*(everywhere[at] if key is STAR else (key,) for at, key in enumerate(labels)))

    def tree_for(self, values: Sequence[Value]) -> IndexKey:
        """Return the tree for events with *values* of the index attributes."""
        keys = zip(map(key_of, values), self._counts, strict=True)
        return tuple(key if key in counts else OtherValue.OTHER for key, counts in keys)


def _keys(labels: Sequence[Key]) -> list[tuple[int, Key]]:
    """Return the values that are named, by index attribute."""
    return [(at, key) for at, key in enumerate(labels) if key is not STAR]


@dataclass(frozen=True, slots=True)
class Optimisations:
    """The optimisations of the paper [LM, optimisations]. The caller chooses the order of attributes."""

    index_attributes: int = 0
    """Factoring: this many first attributes choose a tree and are not tested in it."""
    trivial_test_elimination: bool = False
    """There is no node for an attribute that no predicate below tests."""
    delayed_branching: bool = False
    """A `*` edge is not followed if the event fails an equality test that every predicate below it makes."""


PLAIN = Optimisations()


class FixedSubscription(NamedTuple):
    """One conjunction, and the links to its subscribers."""

    number: int
    predicate: Predicate
    links: int
    """One bit per link; several for a tree that serves several brokers, each of which has links of its own."""


class FixedPst:
    """Subscriptions over the attributes *names*, tested in this order."""

    def __init__(
        self,
        names: Sequence[str],
        domains: Mapping[str, Sequence[Value]] | None = None,
        optimisations: Optimisations = PLAIN,
    ) -> None:
        """domains: for some attributes, all values that events can have. Results for other values are undefined."""
        self.names = tuple(names)
        self._optimisations = optimisations
        self._domains = {self.names.index(name): tuple(values) for name, values in (domains or {}).items()}
        self._factoring = FactorTable(optimisations.index_attributes)
        self._trees: dict[IndexKey, SearchTree] = {}
        self._subscriptions: dict[int, FixedSubscription] = {}

    def __len__(self) -> int:
        return len(self._subscriptions)

    def insert(self, number: int, predicate: Predicate, links: int) -> None:
        """Add subscription *number*, to be reached over *links* (one bit each), and update the annotations of its path.

        Raises ValueError if *number* is in use, if an attribute is not in *names*, or if an index attribute is tested
        for anything but one value.
        """
        self._insert(FixedSubscription(number, predicate, links), annotate=True)

    def insert_all(self, subscriptions: Iterable[FixedSubscription]) -> None:
        """Add many subscriptions and annotate once, at the end. Raises the errors of `insert`."""
        for subscription in subscriptions:
            self._insert(subscription, annotate=False)
        self.annotate()

    def remove(self, number: int) -> None:
        """Remove subscription *number*. Raises KeyError if there is none."""
        index, path = self._path(self._subscriptions.pop(number).predicate)
        for key in self._factoring.trees_of(index):
            self._trees[key].remove(path, number)
            if self._trees[key].root is None:
                del self._trees[key]
        for at, unused in self._factoring.forget(index):
            # The trees of this value contain only copies that the tree of OTHER has too.
            for key in [key for key in self._trees if key[at] == unused]:
                del self._trees[key]

    def annotate(self) -> None:
        """Recompute all annotations."""
        for tree in self._trees.values():
            tree.annotate()

    def match(self, attributes: Attributes) -> tuple[list[int], int]:
        """Return the subscriptions that accept an event, and the matching steps (centralised match)."""
        values = [attributes.get(name) for name in self.names]
        tree = self._tree_for(values)
        if tree is None:
            return [], 1
        found: list[int] = []
        steps = tree.match(values, found)
        return found, steps

    def decide(self, attributes: Attributes, mask: int) -> SearchDecision:
        """Return the links of *mask* that an event must take, and the matching steps (link matching).

        An event that no subscription of any index value can match takes one step.
        """
        values = [attributes.get(name) for name in self.names]
        tree = self._tree_for(values)
        return SearchDecision(0, 1) if tree is None else tree.decide(values, mask)

    def annotation(self, path: Sequence[Label] = ()) -> TritVector:
        """Return the annotation of the node at the end of *path*, the labels from the root on, in a tree without
        factoring.

        Raises KeyError if there is no such node.
        """
        node: Node | None = self._trees[()].root
        for label in path:
            node = node.child(label) if isinstance(node, Branch) else None
        if node is None:
            raise KeyError(path)
        return node.annotation

    def roots(self) -> dict[IndexKey, Node]:
        """Return the root of every tree; without factoring there is one, with the key `()`."""
        return {key: tree.root for key, tree in self._trees.items() if tree.root is not None}

    def count_nodes(self) -> int:
        """Return the number of nodes in all trees."""
        count = 0
        stack = list(self.roots().values())
        while stack:
            node = stack.pop()
            count += 1
            if isinstance(node, Branch):
                stack.extend(child for _, child in node.edges())
        return count

    def _insert(self, subscription: FixedSubscription, *, annotate: bool) -> None:
        number, predicate, links = subscription
        if number in self._subscriptions:
            raise ValueError(f"subscription {number} is in the tree already")
        index, path = self._path(predicate)
        for at, value in self._factoring.name(index):
            self._add_value(at, value, annotate=annotate)
        self._subscriptions[number] = subscription
        for key in self._factoring.trees_of(index):
            self._tree(key).insert(path, number, links, annotate=annotate)

    def _add_value(self, at: int, value: Key, *, annotate: bool) -> None:
        """Create the trees of a new *value* of index attribute *at*, with copies of the subscriptions that do not test
        it.
        """
        for number, predicate, links in self._subscriptions.values():
            index, path = self._path(predicate)
            if index[at] is STAR:
                for key in self._factoring.trees_of((*index[:at], value, *index[at + 1 :])):
                    self._tree(key).insert(path, number, links, annotate=annotate)

    def _path(self, predicate: Predicate) -> tuple[tuple[Key, ...], Path]:
        """Return the index labels of *predicate*, and its path in the trees that they choose."""
        labels = {self.names.index(test.attribute): label_of(test) for test in predicate}
        first = self._optimisations.index_attributes
        index: list[Key] = []
        for rank in range(first):
            label = labels.get(rank, STAR)
            if isinstance(label, ElementaryTest):
                raise ValueError(f"index attribute {self.names[rank]} is tested for more than one value")
            index.append(label)
        if self._optimisations.trivial_test_elimination:
            return tuple(index), [(rank, labels[rank]) for rank in sorted(labels) if rank >= first]
        return tuple(index), [(rank, labels.get(rank, STAR)) for rank in range(first, len(self.names))]

    def _tree(self, key: IndexKey) -> SearchTree:
        """Return the tree of *key*, created if it is missing."""
        if key not in self._trees:
            self._trees[key] = SearchTree(
                self._domains,
                trivial=not self._optimisations.trivial_test_elimination,
                guarded=self._optimisations.delayed_branching,
            )
        return self._trees[key]

    def _tree_for(self, values: Sequence[Value]) -> SearchTree | None:
        return self._trees.get(self._factoring.tree_for(values[: self._optimisations.index_attributes]))


def fewest_stars_first(names: Sequence[str], predicates: Iterable[Predicate]) -> tuple[str, ...]:
    """Return *names* ordered by the number of *predicates* that test them, the one tested most first.

    Names tested equally often keep their order [LM, attribute order].
    """
    uses = dict.fromkeys(names, 0)
    for predicate in predicates:
        for test in predicate:
            uses[test.attribute] += 1
    return tuple(sorted(names, key=lambda name: -uses[name]))
