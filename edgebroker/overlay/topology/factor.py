"""The acyclic factor: the tree of positions of which every cluster has a copy [SCOT, Gaf].

It is written as paths: `a-b-c` and `b-d` are the tree in which b is joined to a, c and d.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeVar

from edgebroker import limits
from edgebroker.dataclasses import dataclass
from edgebroker.overlay.topology.draft import TopologyInvalid, TopologyMistake

TREE: Final = ("factor", "tree")
"""Its place in the file."""
POSITION: Final = "[A-Za-z0-9_]{1,16}"

Edge = tuple[str, str]
Holder = TypeVar("Holder", bound=Hashable)


class Factor:
    """A tree of n positions."""

    __slots__ = ("_neighbours", "edges", "positions")

    def __init__(self, positions: Iterable[str], edges: Iterable[Edge]) -> None:
        """Build the tree without checks; `ReadTree` checks paths and reports mistakes."""
        self.positions = tuple(positions)
        """The positions, in display order."""
        self.edges = tuple(edges)
        self._neighbours = adjacency(self.positions, self.edges)

    @classmethod
    def parse(cls, *paths: str) -> Factor:
        """Return the tree that *paths* describe. Raises TopologyInvalid."""
        tree = ReadTree.of(paths)
        if tree.mistakes:
            raise TopologyInvalid(tree.mistakes)
        return cls(tree.positions, tree.edges)

    def __len__(self) -> int:
        return len(self.positions)

    def neighbours(self, position: str) -> tuple[str, ...]:
        """Return the positions joined with *position*."""
        return self._neighbours[position]

    def walk(self, start: str) -> dict[str, str]:
        """Return every position, the nearest to *start* first -> the one before it, and start -> start."""
        return walk(self._neighbours, start)

    def path(self, start: str, end: str) -> tuple[str, ...]:
        """Return the positions from *start* to *end*, both included."""
        return path_back(walk(self._neighbours, end), start)

    @property
    def trunk(self) -> tuple[str, ...]:
        """A longest path."""
        *_, end = walk(self._neighbours, self.positions[0])
        *_, start = walk(self._neighbours, end)
        return self.path(start, end)

    @property
    def diameter(self) -> int:
        """The number of edges of the longest path."""
        return len(self.trunk) - 1

    def pieces(self, positions: Iterable[str]) -> tuple[tuple[str, ...], ...]:
        """Divide *positions* into parts, each connected by edges between its own positions."""
        some = dict.fromkeys(positions)
        return components({one: [other for other in self._neighbours[one] if other in some] for one in some})

    def contracted(self, holders: Mapping[str, Holder]) -> tuple[tuple[Holder, Holder], ...]:
        """Return the edges between different holders, each once: a tree of holders if each holds connected
        positions.
        """
        between = ((holders[one], holders[other]) for one, other in self.edges)
        return tuple({frozenset(pair): pair for pair in between if pair[0] != pair[1]}.values())


@dataclass(frozen=True, slots=True)
class ReadTree:
    """The result of reading paths: positions in the order of first mention, edges, and mistakes."""

    positions: tuple[str, ...]
    edges: tuple[Edge, ...]
    mistakes: tuple[TopologyMistake, ...]

    @classmethod
    def of(cls, paths: Sequence[str]) -> ReadTree:
        """Read any paths. Edges that would close a loop are left out."""
        mistakes: list[TopologyMistake] = []
        neighbours: dict[str, list[str]] = {}
        edges: list[Edge] = []
        for path in paths:
            names = path.split("-")
            if not all(re.fullmatch(POSITION, name) for name in names):
                mistakes.append(
                    TopologyMistake(TREE, f"{path!r} is no path", 'write positions with "-" between, like "a-b-c"')
                )
                continue
            for name in names:
                neighbours.setdefault(name, [])
            if len(neighbours) > limits.POSITIONS_MAX:
                few = f"at most {limits.POSITIONS_MAX} are allowed"
                return cls(tuple(neighbours), (), (TopologyMistake(TREE, f"has {len(neighbours)} positions", few),))
            for one, other in pairwise(names):
                if one == other:
                    mistakes.append(TopologyMistake(TREE, f"{one}-{other} joins {one} with itself", "leave it out"))
                elif other in neighbours[one]:
                    mistakes.append(TopologyMistake(TREE, f"{one}-{other} stands there twice", "leave one out"))
                elif one in (back := walk(neighbours, other)):
                    loop = "-".join([*path_back(back, one), one])
                    mistakes.append(TopologyMistake(TREE, f"{one}-{other} closes the loop {loop}", "leave out an edge"))
                else:
                    edges.append((one, other))
                    neighbours[one].append(other)
                    neighbours[other].append(one)
        positions = tuple(neighbours)
        if not positions and not mistakes:
            mistakes.append(TopologyMistake(TREE, "has no position", 'write at least one, like "a"'))
        elif not mistakes:
            reachable = walk(neighbours, positions[0])
            if unreachable := [one for one in positions if one not in reachable]:
                parts = f"nothing joins {positions[0]} with {', '.join(unreachable)}"
                mistakes.append(TopologyMistake(TREE, parts, f'add an edge, like "{positions[0]}-{unreachable[0]}"'))
        return cls(positions, tuple(edges), tuple(mistakes))


Adjacency = Mapping[str, Sequence[str]]
"""Vertex -> its neighbours."""


def adjacency(vertices: Iterable[str], edges: Iterable[Edge]) -> dict[str, tuple[str, ...]]:
    """Return the neighbours of every vertex, in the order of the edges."""
    neighbours: dict[str, list[str]] = {vertex: [] for vertex in vertices}
    for one, other in edges:
        neighbours[one].append(other)
        neighbours[other].append(one)
    return {vertex: tuple(others) for vertex, others in neighbours.items()}


def components(neighbours: Adjacency) -> tuple[tuple[str, ...], ...]:
    """Divide the vertices into connected components, each in the order of a walk from its first vertex."""
    left = dict.fromkeys(neighbours)
    found = []
    while left:
        component = tuple(walk(neighbours, next(iter(left))))
        found.append(component)
        for one in component:
            del left[one]
    return tuple(found)


def walk(neighbours: Adjacency, start: str) -> dict[str, str]:
    """Return every vertex that is reachable from *start*, the nearest first -> the one before it, and start ->
    start.
    """
    before = {start: start}
    waiting = deque([start])
    while waiting:
        one = waiting.popleft()
        for other in neighbours[one]:
            if other not in before:
                before[other] = one
                waiting.append(other)
    return before


def path_back(before: Mapping[str, str], end: str) -> tuple[str, ...]:
    """Return the path from *end* to the start of the walk *before*, both included."""
    path = [end]
    while before[path[-1]] != path[-1]:
        path.append(before[path[-1]])
    return tuple(path)
