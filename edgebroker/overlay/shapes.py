"""Trees that a factor may be: all of them while they are few, and the compact ones of any size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from edgebroker.overlay.factor import Factor

DEGREE_MAX: Final = 4
"""Edges of a position: its gateway sends an event over each, and its death leaves as many parts of a cluster."""
ALL_UP_TO: Final = 8
"""Positions of which every tree is tried: 23 trees of 8; there are 823,065 of 20."""

Parents = tuple[int, ...]
"""A rooted tree: the vertex before each vertex but the first, which is 0; each comes after its parent."""


def shapes(count: int) -> Iterator[Factor]:
    """Trees of *count* positions, no two alike, in which none has more than DEGREE_MAX neighbours."""
    trees = _all(count) if count <= ALL_UP_TO else _compact(count)
    return (_factor(tree) for tree in trees if max(_degrees(tree)) <= DEGREE_MAX)


def _all(count: int) -> list[Parents]:
    """Every tree, grown leaf by leaf from those with one vertex less."""
    if count == 1:
        return [()]
    grown = ((*tree, parent) for tree in _all(count - 1) for parent in range(count - 1))
    return [*{_canonical(tree): tree for tree in grown}.values()]


def _compact(count: int) -> list[Parents]:
    """Trees filled level by level around one vertex or two, with 2, 3 or more edges at each: the first is the path."""
    trees = []
    for degree in range(2, DEGREE_MAX + 1):
        for centre in (1, 2):
            parents: list[int] = [0] * (centre - 1)
            room = dict.fromkeys(range(centre), degree - (centre - 1))
            for vertex in range(centre, count):
                parent = next(one for one, left in room.items() if left)
                parents.append(parent)
                room[parent] -= 1
                room[vertex] = degree - 1
            trees.append(tuple(parents))
    return [*{_canonical(tree): tree for tree in trees}.values()]


def _canonical(parents: Parents) -> str:
    """The same for trees that are alike: the least text of nested brackets, from any root."""
    around = _around(parents)

    def nested(vertex: int, before: int) -> str:
        return f"({''.join(sorted(nested(other, vertex) for other in around[vertex] if other != before))})"

    return min(nested(root, -1) for root in range(len(around)))


def _around(parents: Parents) -> list[list[int]]:
    around: list[list[int]] = [[] for _ in range(len(parents) + 1)]
    for vertex, parent in enumerate(parents, 1):
        around[vertex].append(parent)
        around[parent].append(vertex)
    return around


def _degrees(parents: Parents) -> Sequence[int]:
    return [len(others) for others in _around(parents)]


def _factor(parents: Parents) -> Factor:
    """The tree with p1, p2 and so on along a longest path, and then on the others, by their distance from its start."""
    edges = [(str(parent), str(vertex)) for vertex, parent in enumerate(parents, 1)]
    plain = Factor(map(str, range(len(parents) + 1)), edges)
    order = dict.fromkeys((*plain.trunk, *plain.walk(plain.trunk[0])))
    names = {one: f"p{number}" for number, one in enumerate(order, 1)}
    return Factor(names.values(), [(names[one], names[other]) for one, other in edges])
