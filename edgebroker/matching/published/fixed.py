"""A search tree over content alone with a fixed order of attributes, and its factoring by index attributes [LM].

A subscription that leaves an index attribute untested is inserted into the trees of all its values. Values that no
subscription names share one tree, which has only these copies with `*`: its value is OTHER.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import product
from typing import NamedTuple, TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.matching.outcomes import TritVector
from edgebroker.matching.published.node import STAR, Branch, Key, Label, Node, Path, key_of, label_of
from edgebroker.matching.published.tree import SearchDecision, SearchTree
from edgebroker.predicate import Attributes, ElementaryTest, Predicate, Value


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
