"""The nodes of the tree, held in parallel lists: a node is a number, and number 0 (NONE, the ground) is no node.

A node tests one attribute, named by its *rank*. From it lead value edges, by key (`tables`) and by wider tests
(`spans`), and the `*` edge (`stars`). Ranks only grow on the way down: topic levels have the negative ranks, content
attributes the others, and a leaf has the greatest. What follows from a node along `*` edges is its *chain*.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Final

from edgebroker.limits import TOPIC_LEVELS_MAX
from edgebroker.matching.published.labels import Key, Label, Wide
from edgebroker.matching.published.spans import Spans
from edgebroker.predicate import ElementaryTest

NONE: Final = 0
"""No node. As a parent it is the ground, whose `*` edge leads to the root."""
LEAF: Final = 1 << 30
"""The rank of a leaf."""
FIRST_LEVEL: Final = -(TOPIC_LEVELS_MAX + 1)
"""The rank of the first topic level. One more than the levels: a filter of 128 levels tests that there is no 129th."""

_NO_TABLE: Final[dict[Key, int]] = {}
_NO_MEMBERS: Final[dict[int, int]] = {}


class Nodes:
    """The lists, the free numbers among them, and the edges."""

    __slots__ = (
        "domains",
        "fans",
        "free",
        "labels",
        "maybes",
        "members",
        "parents",
        "ranks",
        "spans",
        "stars",
        "tables",
        "yeses",
    )

    def __init__(self, domains: Mapping[int, tuple[Key, ...]] | None = None) -> None:
        """domains: rank -> every value its attribute can have, where that is declared."""
        self.domains = dict(domains or {})
        self.ranks: list[int] = [FIRST_LEVEL - 1]
        self.stars: list[int] = [NONE]
        self.tables: list[dict[Key, int]] = [_NO_TABLE]  # value key -> child
        self.spans: list[Spans | None] = [None]
        self.parents: list[int] = [NONE]
        self.labels: list[Label] = [Wide.STAR]  # of the edge that leads here
        self.members: list[dict[int, int]] = [_NO_MEMBERS]  # of a leaf: subscription number -> link
        self.yeses: list[int] = [0]  # the annotation, one bit per link
        self.maybes: list[int] = [0]
        self.fans: list[int] = [0]  # the links some value edge can reach
        self.free: list[int] = []

    def __len__(self) -> int:
        return len(self.ranks) - 1 - len(self.free)

    def new(self, rank: int) -> int:
        """A node without edges that tests *rank*, or a leaf without members."""
        table: dict[Key, int] = _NO_TABLE if rank == LEAF else {}
        members: dict[int, int] = {} if rank == LEAF else _NO_MEMBERS
        if self.free:
            node = self.free.pop()
            self.ranks[node] = rank
            self.tables[node] = table
            self.members[node] = members
            return node
        self.ranks.append(rank)
        self.stars.append(NONE)
        self.tables.append(table)
        self.spans.append(None)
        self.parents.append(NONE)
        self.labels.append(Wide.STAR)
        self.members.append(members)
        self.yeses.append(0)
        self.maybes.append(0)
        self.fans.append(0)
        return len(self.ranks) - 1

    def release(self, node: int) -> None:
        """Give back *node*, to which no edge leads any more."""
        self.stars[node] = self.parents[node] = NONE
        self.tables[node] = _NO_TABLE
        self.spans[node] = None
        self.labels[node] = Wide.STAR
        self.members[node] = _NO_MEMBERS
        self.yeses[node] = self.maybes[node] = self.fans[node] = 0
        self.free.append(node)

    def child(self, node: int, label: Label) -> int:
        """The child at the end of the edge *label*, or NONE."""
        if label is Wide.STAR:
            return self.stars[node]
        if isinstance(label, (Wide, ElementaryTest)):
            spans = self.spans[node]
            if spans is None:
                return NONE
            return spans.some if isinstance(label, Wide) else spans.edges.get(label, NONE)
        return self.tables[node].get(label, NONE)

    def link(self, node: int, label: Label, child: int) -> None:
        """Let the edge *label*, which leads nowhere, lead to *child*."""
        self.parents[child] = node
        self.labels[child] = label
        if label is Wide.STAR:
            self.stars[node] = child
        elif isinstance(label, (Wide, ElementaryTest)):
            spans = self.spans[node]
            if spans is None:
                spans = self.spans[node] = Spans()
            if isinstance(label, Wide):
                spans.some = child
            else:
                spans.add(label, child)
        else:
            self.tables[node][label] = child

    def unlink(self, child: int) -> None:
        """Take away the edge that leads to *child*."""
        node = self.parents[child]
        label = self.labels[child]
        if label is Wide.STAR:
            self.stars[node] = NONE
        elif isinstance(label, (Wide, ElementaryTest)):
            spans = self.spans[node]
            assert spans is not None
            if isinstance(label, Wide):
                spans.some = NONE
            else:
                spans.discard(label)
            if not spans:
                self.spans[node] = None
        else:
            del self.tables[node][label]

    def value_children(self, node: int) -> Iterator[int]:
        """The children at the ends of the value edges."""
        yield from self.tables[node].values()
        spans = self.spans[node]
        if spans is not None:
            yield from spans.children()

    def find(self, node: int, key: Key, found: list[int]) -> None:
        """Append to *found* the children whose value edges accept the value with *key*."""
        child = self.tables[node].get(key, NONE)
        if child:
            found.append(child)
        spans = self.spans[node]
        if spans is not None:
            spans.find(key, found)

    def is_bare(self, node: int) -> bool:
        """Whether no value edge leads away from *node*."""
        return not self.tables[node] and self.spans[node] is None

    def below(self, root: int) -> Iterator[int]:
        """Every node at and below *root*."""
        stack = [root]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(self.value_children(node))
            if self.stars[node]:
                stack.append(self.stars[node])

    def chain_end(self, node: int) -> int:
        """The leaf at the end of the chain of *node*, or NONE."""
        while node and self.ranks[node] != LEAF:
            node = self.stars[node]
        return node

    def bytes_estimate(self) -> int:
        """About how many bytes the tree takes, without the values and tests on its edges."""
        slots = 10 * 8 * len(self.ranks)
        tables = sum(sys.getsizeof(table) for table in self.tables if table is not _NO_TABLE)
        members = sum(sys.getsizeof(members) for members in self.members if members is not _NO_MEMBERS)
        spans = sum(spans.bytes_estimate() for spans in self.spans if spans is not None)
        return slots + tables + members + spans
