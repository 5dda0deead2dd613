"""The topic part of the tree, in plain Python: which topic filters match a topic name (MQTT 5.0 section 4.7)."""

from __future__ import annotations

import sys
from typing import Any, Final

from edgebroker.topics import MULTI_LEVEL, SEPARATOR, SINGLE_LEVEL, TopicFilter

ROOT: Final = 0
"""The node that all paths begin at. It is nobody's child, so as a child this number means none."""
NONE: Final = 0
"""No end: ends are numbered from 1."""


class TopicTree:
    """Topic filters by their levels. Where the path of a filter ends, it has an *end*: a number to hang things on.

    Equal filters have the same end, which lives as long as it is used: `add` counts up, `discard` counts down. Numbers
    of ends that are gone are given again. A node is a number too; `+` leads to a node like any level, while a last `#`
    is an end that hangs on the node before it.
    """

    __slots__ = (
        "_free_ends",
        "_free_nodes",
        "_levels",
        "_owns",
        "_parents",
        "_places",
        "_pluses",
        "_tables",
        "_tails",
        "_uses",
        "steps",
    )

    def __init__(self) -> None:
        self.steps = 0
        """The nodes that `ends` has visited so far."""
        self._parents = [ROOT]
        self._levels = [""]  # the level that leads from the parent here
        self._tables: list[dict[str, int] | None] = [None]  # level -> child, `+` apart; None: no child
        self._pluses = [ROOT]  # the child by `+`
        self._owns = [NONE]  # the end of the filter whose last level leads here
        self._tails = [NONE]  # the end of the filter that goes on with `#`
        self._free_nodes: list[int] = []
        self._places = [ROOT]  # of an end: the node it hangs on
        self._uses = [0]  # of an end
        self._free_ends: list[int] = []

    def __len__(self) -> int:
        """The number of different filters."""
        return len(self._uses) - 1 - len(self._free_ends)

    @property
    def nodes(self) -> int:
        """The number of nodes, the root among them."""
        return len(self._parents) - len(self._free_nodes)

    def add(self, topic_filter: TopicFilter) -> int:
        """The end of *topic_filter*, which has one use more from now on."""
        node = ROOT
        for level in topic_filter.levels:
            if level != MULTI_LEVEL:
                node = self._child(node, level) or self._new_child(node, level)
        ends = self._tails if topic_filter.levels[-1] == MULTI_LEVEL else self._owns
        if not ends[node]:
            ends[node] = self._new_end(node)
        self._uses[ends[node]] += 1
        return ends[node]

    def find(self, topic_filter: TopicFilter) -> int:
        """The end of *topic_filter*, or -1 if it is not in the tree."""
        node = ROOT
        for level in topic_filter.levels:
            if level == MULTI_LEVEL:
                return self._tails[node] or -1
            node = self._child(node, level)
            if not node:
                return -1
        return self._owns[node] or -1

    def discard(self, end: int) -> None:
        """Take one use from *end*; the last use takes its path away. Raises KeyError if there is no such end."""
        self._check(end)
        self._uses[end] -= 1
        if self._uses[end]:
            return
        node = self._places[end]
        ends = self._tails if self._tails[node] == end else self._owns
        ends[node] = NONE
        self._free_ends.append(end)
        while node and not self._has_need(node):
            node = self._drop(node)

    def ends(self, topic: str) -> list[int]:
        """The ends of all filters that match the topic name *topic*, those with the shorter paths first.

        At equal length those that stay close to the topic come first, counted from its beginning.
        """
        found: list[int] = []
        nodes = [ROOT]
        wild = not topic.startswith("$")  # `+` and `#` as first level do not match topics of the broker itself
        for level in topic.split(SEPARATOR):
            below: list[int] = []
            for node in nodes:
                if wild and self._tails[node]:
                    found.append(self._tails[node])
                table = self._tables[node]
                child = table.get(level) if table else None
                if child:
                    below.append(child)
                if wild and self._pluses[node]:
                    below.append(self._pluses[node])
            self.steps += len(nodes)
            nodes = below
            wild = True
        self.steps += len(nodes)
        for node in nodes:
            found.extend(end for end in (self._tails[node], self._owns[node]) if end)  # `a/#` matches `a`
        return found

    def filter_of(self, end: int) -> str:
        """The text of the filter with this end. Raises KeyError if there is no such end."""
        self._check(end)
        node = self._places[end]
        levels = [MULTI_LEVEL] if self._tails[node] == end else []
        while node:
            levels.append(self._levels[node])
            node = self._parents[node]
        return SEPARATOR.join(reversed(levels))

    def children(self, node: int = ROOT) -> list[tuple[str, int, int]]:
        """What leads away from *node*: levels in order, then `+`, then `#`. For drawing the tree.

        Each is (level, node it leads to or -1, end of the filter whose last level it is or -1). Raises KeyError if
        there is no such node.
        """
        if node and not (0 < node < len(self._parents) and self._has_need(node)):
            raise KeyError(node)
        found = [(level, child) for level, child in sorted((self._tables[node] or {}).items())]
        if self._pluses[node]:
            found.append((SINGLE_LEVEL, self._pluses[node]))
        edges = [(level, child, self._owns[child] or -1) for level, child in found]
        if self._tails[node]:
            edges.append((MULTI_LEVEL, -1, self._tails[node]))
        return edges

    def bytes(self) -> int:
        """The memory of the tree in bytes. Takes time in proportion to its nodes."""
        columns: tuple[list[Any], ...] = (
            *(self._parents, self._levels, self._tables, self._pluses, self._owns, self._tails, self._free_nodes),
            *(self._places, self._uses, self._free_ends),
        )
        numbers = sys.getsizeof(1 << 29) * (self.nodes + len(self))
        texts = sum(sys.getsizeof(level) for level in self._levels if level)
        tables = sum(sys.getsizeof(table) for table in self._tables if table is not None)
        return sys.getsizeof(self) + sum(map(sys.getsizeof, columns)) + numbers + texts + tables

    def _has_need(self, node: int) -> bool:
        return bool(self._owns[node] or self._tails[node] or self._pluses[node] or self._tables[node])

    def _child(self, node: int, level: str) -> int:
        if level == SINGLE_LEVEL:
            return self._pluses[node]
        table = self._tables[node]
        return table.get(level, ROOT) if table else ROOT

    def _new_child(self, parent: int, level: str) -> int:
        if self._free_nodes:
            node = self._free_nodes.pop()
            self._parents[node] = parent
            self._levels[node] = level
        else:
            node = len(self._parents)
            self._parents.append(parent)
            self._levels.append(level)
            self._tables.append(None)
            self._pluses.append(ROOT)
            self._owns.append(NONE)
            self._tails.append(NONE)
        if level == SINGLE_LEVEL:
            self._pluses[parent] = node
        else:
            table = self._tables[parent]
            if table is None:
                table = self._tables[parent] = {}
            table[level] = node
        return node

    def _drop(self, node: int) -> int:
        """Take the bare *node* away. Returns its parent."""
        parent, level = self._parents[node], self._levels[node]
        table = self._tables[parent]
        if level == SINGLE_LEVEL:
            self._pluses[parent] = ROOT
        elif table is not None:
            del table[level]
            if not table:
                self._tables[parent] = None
        self._levels[node] = ""
        self._free_nodes.append(node)
        return parent

    def _new_end(self, node: int) -> int:
        if self._free_ends:
            end = self._free_ends.pop()
            self._places[end] = node
            return end
        self._places.append(node)
        self._uses.append(0)
        return len(self._uses) - 1

    def _check(self, end: int) -> None:
        if not 0 < end < len(self._uses) or not self._uses[end]:
            raise KeyError(end)
