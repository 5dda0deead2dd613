"""The topology planner: finds a factor for sites of given sizes that all of them can contract, fairly and with
short paths.

As many positions as the largest site has gateways are enough: more would only be more iLinks. Of the trees with so
many positions that is taken which adds least to its diameter by what the busiest gateway of any site holds beyond
its share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from edgebroker.names import Address
from edgebroker.overlay.topology.draft import DraftGateway, Site, TopologyDraft, Uplink
from edgebroker.overlay.topology.factor import Factor, around_each, components

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


Part = tuple[str, ...]
Parts = tuple[Part, ...]


def plan(federation: str, sites: Mapping[str, int], uplink: Uplink, port: int) -> TopologyDraft:
    """A draft for *sites*, name -> gateways, at least one each. A gateway's name stands for its host.

    Sites of the same size are contracted alike, and smaller ones join what larger ones hold: so a gateway meets as few
    others as can be. The homes of a site differ from those of the next, so that publishers are spread over regions.
    """
    sizes = sorted(set(sites.values()), reverse=True)
    choices = [(factor, contractions(factor, sizes)) for factor in shapes(sizes[0])]
    factor, contracted = min(choices, key=lambda choice: _cost(*choice))
    gateways: list[DraftGateway] = []
    for cluster, (site, count) in enumerate(sites.items()):
        for place, part in enumerate(contracted[count], 1):
            home = part[cluster % len(part)]
            positions = (home, *(one for one in part if one != home))
            name = f"gw-{site}{'-' * site[-1].isdigit()}{place}"
            gateways.append(DraftGateway(name, len(gateways), site, positions, (Address(name, port),)))
    drafted = tuple(Site(name, cluster, uplink) for cluster, name in enumerate(sites))
    return TopologyDraft(federation, paths_of(factor), drafted, tuple(gateways))


def contractions(factor: Factor, sizes: Sequence[int]) -> dict[int, Parts]:
    """Size -> *factor* in so many parts, for *sizes* from the largest; each made of parts of the one before."""
    parts: Parts = tuple((position,) for position in factor.positions)
    found = {}
    for size in sizes:
        parts = joined(factor, parts, size)
        found[size] = parts
    return found


def joined(factor: Factor, parts: Parts, count: int) -> Parts:
    """*parts* of the tree joined to *count* larger ones, of which the largest is as small as can be.

    Bottom up, a vertex lets go of its heaviest children until what is left below it keeps within a bound: no other way
    has fewer parts (Kundu and Misra, "A linear tree partitioning algorithm", 1977). The least bound with *count* parts
    or fewer is the best; where there are fewer, the heaviest are divided on, which makes none larger.
    """
    weights = {part[0]: len(part) for part in parts}
    part_of = {position: part[0] for part in parts for position in part}
    tree = Factor(weights, factor.contracted(part_of))
    bound = max(*weights.values(), -(-len(factor) // count))
    cut = _cut(tree, weights, bound)
    while len(cut) >= count:
        bound += 1
        cut = _cut(tree, weights, bound)
    while len(cut) < count - 1:
        cut.add(_best_next(tree, weights, cut))
    names = {position: at for at, position in enumerate(factor.positions)}
    members = {part[0]: part for part in parts}
    groups = [[one for name in group for one in members[name]] for group in _groups(tree, cut)]
    return tuple(sorted((tuple(sorted(one, key=names.__getitem__)) for one in groups), key=lambda one: names[one[0]]))


def paths_of(factor: Factor) -> tuple[str, ...]:
    """Paths that make the tree: a longest one, then branches from what has been passed."""
    passed = dict.fromkeys(factor.trunk)
    paths = [factor.trunk]
    for path in paths:
        for start in path:
            for branch in factor.neighbours(start):
                if branch not in passed:
                    way = [start, branch]
                    while further := [one for one in factor.neighbours(way[-1]) if one not in {*way, *passed}]:
                        way.append(further[0])
                    passed |= dict.fromkeys(way)
                    paths.append(tuple(way))
    return tuple("-".join(path) for path in paths)


def _cost(factor: Factor, contracted: Mapping[int, Parts]) -> tuple[int, int, int]:
    excess = [max(map(len, parts)) - -(-len(factor) // count) for count, parts in contracted.items()]
    degree = max(len(factor.neighbours(one)) for one in factor.positions)
    return factor.diameter + max(excess), sum(excess), degree


def _cut(tree: Factor, weights: Mapping[str, int], bound: int) -> set[str]:
    """The vertices that are cut off from the one before them so that no part weighs more than *bound*."""
    before = _before(tree)
    load = dict(weights)
    below: dict[str, list[str]] = {one: [] for one in before}
    cut = set()
    for one in reversed(before):
        for child in sorted(below[one], key=load.__getitem__):
            load[one] += load[child]
        for child in sorted(below[one], key=load.__getitem__, reverse=True):
            if load[one] > bound:
                cut.add(child)
                load[one] -= load[child]
        below[before[one]].append(one)
    return cut


def _best_next(tree: Factor, weights: Mapping[str, int], cut: set[str]) -> str:
    """The vertex to cut off so that of the heaviest part that can be divided the heavier half is lightest."""

    def weight(group: Part) -> int:
        return sum(weights[one] for one in group)

    heaviest = max((group for group in _groups(tree, cut) if len(group) > 1), key=weight)
    inside = [one for one, parent in _before(tree).items() if one in heaviest and parent in heaviest and one != parent]

    def heavier_half(one: str) -> int:
        return max(weight(group) for group in _groups(tree, cut | {one}) if {*group} <= {*heaviest})

    return min(inside, key=heavier_half)


def _groups(tree: Factor, cut: set[str]) -> Parts:
    """The parts of the tree without the edges above the vertices of *cut*."""
    edges = [(one, parent) for one, parent in _before(tree).items() if one != parent and one not in cut]
    return components(around_each(tree.positions, edges))


def _before(tree: Factor) -> dict[str, str]:
    return tree.walk(tree.positions[0])
