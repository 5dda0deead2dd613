"""A search tree over content alone, with a fixed order of attributes, as in the examples of the source [LM].

Every trivial test is kept: each path visits every attribute. Attributes may declare their domains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgebroker.event import Attributes, Value
from edgebroker.matching.published.growth import TRUNK, enter, leaf_at, leave, walk
from edgebroker.matching.published.labels import Key, Wide, key_of, label_of
from edgebroker.matching.published.nodes import NONE, Nodes
from edgebroker.matching.published.search import Decision, close_links, collect
from edgebroker.matching.trits import TritVector
from edgebroker.predicate import Predicate


class FixedPst:
    """Subscriptions of one predicate each over the attributes *names*."""

    def __init__(self, names: Sequence[str], domains: Mapping[str, Sequence[Value]] | None = None) -> None:
        """domains: for some attributes, every value that events can have."""
        self.names = tuple(names)
        self._ranks = {name: rank for rank, name in enumerate(self.names)}
        domains = domains or {}
        declared = {self._ranks[name]: tuple(map(key_of, values)) for name, values in domains.items()}
        self.nodes = Nodes(declared)
        self._leaves: dict[int, int] = {}

    def insert(self, number: int, predicate: Predicate, link: int) -> None:
        """Add subscription *number*, to be reached over *link*. Raises KeyError if *names* lacks an attribute."""
        labels = {self._ranks[test.attribute]: label_of(test) for test in predicate}
        path = [(rank, labels.get(rank, Wide.STAR)) for rank in range(len(self.names))]
        self._leaves[number] = leaf_at(self.nodes, walk(self.nodes, TRUNK, path))
        enter(self.nodes, self._leaves[number], number, link)

    def remove(self, number: int) -> None:
        """Take out subscription *number*. Raises KeyError if there is none."""
        leave(self.nodes, self._leaves.pop(number), number, keep_trivial=True)

    def annotation(self, path: Sequence[Value | Wide] = ()) -> TritVector:
        """The annotation of the node that *path*, the labels from the root on, leads to. KeyError if there is none."""
        node = self.nodes.stars[NONE]
        for label in path:
            node = self.nodes.child(node, label if isinstance(label, Wide) else key_of(label))
            if not node:
                raise KeyError(path)
        return TritVector(self.nodes.yeses[node], self.nodes.maybes[node])

    def match(self, attributes: Attributes) -> tuple[list[int], int]:
        """The subscriptions that accept an event, and the matching steps (centralised match)."""
        found: list[int] = []
        steps = collect(self.nodes, self.nodes.stars[NONE], NONE, self._keys(attributes), found)
        return found, steps

    def decide(self, attributes: Attributes, mask: int) -> Decision:
        """The links of *mask* that an event must take, and the matching steps (link matching)."""
        return close_links(self.nodes, self.nodes.stars[NONE], self._keys(attributes), mask)

    def _keys(self, attributes: Attributes) -> list[Key]:
        """The keys of an event's values, by rank."""
        return [key_of(attributes.get(name)) for name in self.names]
