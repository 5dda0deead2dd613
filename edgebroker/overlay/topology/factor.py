"""The acyclic factor: the tree of positions of which every cluster holds a copy [SCOT, Gaf].

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
from edgebroker.overlay.topology.errors import TopologyInvalid, TopologyMistake

TREE: Final = ("factor", "tree")
"""Where a file has it."""
POSITION: Final = "[A-Za-z0-9_]{1,16}"

Edge = tuple[str, str]
Holder = TypeVar("Holder", bound=Hashable)


class Factor:
    """A tree of n positions."""

    __slots__ = ("_around", "edges", "positions")

    def __init__(self, positions: Iterable[str], edges: Iterable[Edge]) -> None:
        """The tree must be one: see `ReadTree`, which finds what is wrong with others."""
        self.positions = tuple(positions)
        """In the order in which people read them."""
        self.edges = tuple(edges)
        self._around = around_each(self.positions, self.edges)

    @classmethod
    def parse(cls, *paths: str) -> Factor:
        """The tree that *paths* make. Raises TopologyInvalid."""
        tree = ReadTree.of(paths)
        if tree.mistakes:
            raise TopologyInvalid(tree.mistakes)
        return cls(tree.positions, tree.edges)

    def __len__(self) -> int:
        return len(self.positions)

    def neighbours(self, position: str) -> tuple[str, ...]:
        return self._around[position]

    def walk(self, start: str) -> dict[str, str]:
        """Every position, the nearest to *start* first -> the one before it, and start -> start."""
        return walk(self._around, start)

    def path(self, start: str, end: str) -> tuple[str, ...]:
        """The positions from *start* to *end*, both included."""
        return way_back(walk(self._around, end), start)

    @property
    def trunk(self) -> tuple[str, ...]:
        """A longest path."""
        *_, end = walk(self._around, self.positions[0])
        *_, start = walk(self._around, end)
        return self.path(start, end)

    @property
    def diameter(self) -> int:
        """Edges of the longest path."""
        return len(self.trunk) - 1

    def pieces(self, positions: Iterable[str]) -> tuple[tuple[str, ...], ...]:
        """*positions* in parts, each of which is connected by edges between its own positions."""
        some = dict.fromkeys(positions)
        return components({one: [other for other in self._around[one] if other in some] for one in some})

    def contracted(self, holders: Mapping[str, Holder]) -> tuple[tuple[Holder, Holder], ...]:
        """The edges between different holders, each once: a tree of holders if each holds connected positions."""
        between = ((holders[one], holders[other]) for one, other in self.edges)
        return tuple({frozenset(pair): pair for pair in between if pair[0] != pair[1]}.values())


@dataclass(frozen=True, slots=True)
class ReadTree:
    """What paths say: positions in the order of their first mention, edges, and why they are no tree."""

    positions: tuple[str, ...]
    edges: tuple[Edge, ...]
    mistakes: tuple[TopologyMistake, ...]

    @classmethod
    def of(cls, paths: Sequence[str]) -> ReadTree:
        """Any paths. Edges that would make a loop are left out."""
        mistakes: list[TopologyMistake] = []
        around: dict[str, list[str]] = {}
        edges: list[Edge] = []
        for path in paths:
            names = path.split("-")
            if not all(re.fullmatch(POSITION, name) for name in names):
                mistakes.append(
                    TopologyMistake(TREE, f"{path!r} is no path", 'write positions with "-" between, like "a-b-c"')
                )
                continue
            for name in names:
                around.setdefault(name, [])
            if len(around) > limits.POSITIONS_MAX:
                few = f"at most {limits.POSITIONS_MAX} are allowed"
                return cls(tuple(around), (), (TopologyMistake(TREE, f"has {len(around)} positions", few),))
            for one, other in pairwise(names):
                if one == other:
                    mistakes.append(TopologyMistake(TREE, f"{one}-{other} joins {one} with itself", "leave it out"))
                elif other in around[one]:
                    mistakes.append(TopologyMistake(TREE, f"{one}-{other} stands there twice", "leave one out"))
                elif one in (back := walk(around, other)):
                    loop = "-".join([*way_back(back, one), one])
                    mistakes.append(TopologyMistake(TREE, f"{one}-{other} closes the loop {loop}", "leave out an edge"))
                else:
                    edges.append((one, other))
                    around[one].append(other)
                    around[other].append(one)
        positions = tuple(around)
        if not positions and not mistakes:
            mistakes.append(TopologyMistake(TREE, "has no position", 'write at least one, like "a"'))
        elif not mistakes:
            reached = walk(around, positions[0])
            if unreached := [one for one in positions if one not in reached]:
                parts = f"nothing joins {positions[0]} with {', '.join(unreached)}"
                mistakes.append(TopologyMistake(TREE, parts, f'add an edge, like "{positions[0]}-{unreached[0]}"'))
        return cls(positions, tuple(edges), tuple(mistakes))


Around = Mapping[str, Sequence[str]]
"""Vertex -> its neighbours."""


def around_each(vertices: Iterable[str], edges: Iterable[Edge]) -> dict[str, tuple[str, ...]]:
    """The neighbours of every vertex, in the order of the edges."""
    around: dict[str, list[str]] = {vertex: [] for vertex in vertices}
    for one, other in edges:
        around[one].append(other)
        around[other].append(one)
    return {vertex: tuple(others) for vertex, others in around.items()}


def components(around: Around) -> tuple[tuple[str, ...], ...]:
    """The vertices in parts that nothing joins, each in the order of a walk from its first."""
    left = dict.fromkeys(around)
    found = []
    while left:
        component = tuple(walk(around, next(iter(left))))
        found.append(component)
        for one in component:
            del left[one]
    return tuple(found)


def walk(around: Around, start: str) -> dict[str, str]:
    """Every vertex that can be reached from *start*, the nearest first -> the one before it, and start -> start."""
    before = {start: start}
    waiting = deque([start])
    while waiting:
        one = waiting.popleft()
        for other in around[one]:
            if other not in before:
                before[other] = one
                waiting.append(other)
    return before


def way_back(before: Mapping[str, str], end: str) -> tuple[str, ...]:
    """From *end* to the start of the walk *before*, both included."""
    way = [end]
    while before[way[-1]] != way[-1]:
        way.append(before[way[-1]])
    return tuple(way)
