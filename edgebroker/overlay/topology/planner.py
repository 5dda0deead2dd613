"""The topology planner: finds a factor for sites of given sizes that all of them can contract, with even shares and
short paths.

The factor has as many positions as the largest site has gateways; more would only add iLinks. Of all candidate trees it
takes the one with the least sum of diameter and excess, where the excess is the number of positions that the busiest
gateway of any site holds beyond its share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from edgebroker.names import Address
from edgebroker.overlay.topology.draft import DraftGateway, Site, TopologyDraft, Uplink
from edgebroker.overlay.topology.factor import Factor, adjacency, components

DEGREE_MAX: Final = 4
"""Edges of a position: its gateway sends an event over each, and its death leaves as many parts of a cluster."""
ALL_UP_TO: Final = 8
"""Positions up to which every tree is tried: there are 23 trees of 8 positions, and 823,065 of 20."""

Parents = tuple[int, ...]
"""A rooted tree: the parent of each vertex after the first, which is 0; every vertex comes after its parent."""


def shapes(count: int) -> Iterator[Factor]:
    """Iterate over trees of *count* positions, no two isomorphic, with at most DEGREE_MAX neighbours at each
    position.
    """
    trees = _all(count) if count <= ALL_UP_TO else _compact(count)
    return (_factor(tree) for tree in trees if max(_degrees(tree)) <= DEGREE_MAX)


def _all(count: int) -> list[Parents]:
    """Return every tree, grown leaf by leaf from those with one vertex less."""
    if count == 1:
        return [()]
    grown = ((*tree, parent) for tree in _all(count - 1) for parent in range(count - 1))
    return [*{_canonical(tree): tree for tree in grown}.values()]


def _compact(count: int) -> list[Parents]:
    """Return trees filled level by level around one vertex or two, with 2, 3 or more edges at each: the first is the
    path.
    """
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
    """Return the same text for isomorphic trees: the least nested brackets, from any root."""
    neighbours = _adjacency(parents)

    def nested(vertex: int, before: int) -> str:
        return f"({''.join(sorted(nested(other, vertex) for other in neighbours[vertex] if other != before))})"

    return min(nested(root, -1) for root in range(len(neighbours)))


def _adjacency(parents: Parents) -> list[list[int]]:
    neighbours: list[list[int]] = [[] for _ in range(len(parents) + 1)]
    for vertex, parent in enumerate(parents, 1):
        neighbours[vertex].append(parent)
        neighbours[parent].append(vertex)
    return neighbours


def _degrees(parents: Parents) -> Sequence[int]:
    return [len(others) for others in _adjacency(parents)]


def _factor(parents: Parents) -> Factor:
    """Return the tree with positions p1, p2 and so on along a longest path, then on the others by distance from its
    start.
    """
    edges = [(str(parent), str(vertex)) for vertex, parent in enumerate(parents, 1)]
    plain = Factor(map(str, range(len(parents) + 1)), edges)
    order = dict.fromkeys((*plain.trunk, *plain.walk(plain.trunk[0])))
    names = {one: f"p{number}" for number, one in enumerate(order, 1)}
    return Factor(names.values(), [(names[one], names[other]) for one, other in edges])


Part = tuple[str, ...]
Parts = tuple[Part, ...]


def plan(federation: str, sites: Mapping[str, int], uplink: Uplink, port: int) -> TopologyDraft:
    """Return a draft for *sites*, name -> number of gateways, at least one each. A gateway's name is used as its host
    name.

    Sites of the same size are contracted alike, and smaller ones merge the parts of larger ones, so that a gateway has
    as few peers as possible. The home positions rotate from site to site, so that publishers are spread over regions.
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
    """Return size -> *factor* in so many parts, for *sizes* from the largest; each is made of parts of the one
    before.
    """
    parts: Parts = tuple((position,) for position in factor.positions)
    found = {}
    for size in sizes:
        parts = joined(factor, parts, size)
        found[size] = parts
    return found


def joined(factor: Factor, parts: Parts, count: int) -> Parts:
    """Merge *parts* of the tree into *count* larger ones, of which the largest is as small as possible.

    Bottom up, a vertex cuts off its heaviest children until the rest below it keeps within a bound: no other method has
    fewer parts (Kundu and Misra, "A linear tree partitioning algorithm", 1977). The least bound with *count* parts or
    fewer is the best; if there are fewer, the heaviest are divided further, which makes none larger.
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
    """Return paths that describe the tree: a longest one, then branches from positions of earlier paths."""
    seen = dict.fromkeys(factor.trunk)
    paths = [factor.trunk]
    for path in paths:
        for start in path:
            for branch in factor.neighbours(start):
                if branch not in seen:
                    steps = [start, branch]
                    while further := [one for one in factor.neighbours(steps[-1]) if one not in {*steps, *seen}]:
                        steps.append(further[0])
                    seen |= dict.fromkeys(steps)
                    paths.append(tuple(steps))
    return tuple("-".join(path) for path in paths)


def _cost(factor: Factor, contracted: Mapping[int, Parts]) -> tuple[int, int, int]:
    excess = [max(map(len, parts)) - -(-len(factor) // count) for count, parts in contracted.items()]
    degree = max(len(factor.neighbours(one)) for one in factor.positions)
    return factor.diameter + max(excess), sum(excess), degree


def _cut(tree: Factor, weights: Mapping[str, int], bound: int) -> set[str]:
    """Return the vertices to cut off from their parents so that no part weighs more than *bound*."""
    parents = _parents(tree)
    load = dict(weights)
    below: dict[str, list[str]] = {one: [] for one in parents}
    cut = set()
    for one in reversed(parents):
        for child in sorted(below[one], key=load.__getitem__):
            load[one] += load[child]
        for child in sorted(below[one], key=load.__getitem__, reverse=True):
            if load[one] > bound:
                cut.add(child)
                load[one] -= load[child]
        below[parents[one]].append(one)
    return cut


def _best_next(tree: Factor, weights: Mapping[str, int], cut: set[str]) -> str:
    """Return the vertex to cut off so that the heavier half of the heaviest divisible part is as light as possible."""

    def weight(group: Part) -> int:
        return sum(weights[one] for one in group)

    heaviest = max((group for group in _groups(tree, cut) if len(group) > 1), key=weight)
    inside = [one for one, parent in _parents(tree).items() if one in heaviest and parent in heaviest and one != parent]

    def heavier_half(one: str) -> int:
        return max(weight(group) for group in _groups(tree, cut | {one}) if {*group} <= {*heaviest})

    return min(inside, key=heavier_half)


def _groups(tree: Factor, cut: set[str]) -> Parts:
    """Return the parts of the tree without the edges above the vertices of *cut*."""
    edges = [(one, parent) for one, parent in _parents(tree).items() if one != parent and one not in cut]
    return components(adjacency(tree.positions, edges))


def _parents(tree: Factor) -> dict[str, str]:
    return tree.walk(tree.positions[0])
