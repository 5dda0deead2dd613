"""A good topology for sites of given sizes: a factor that all of them can contract, fairly and with short ways.

As many positions as the largest site has gateways are enough: more would only be more iLinks. Of the trees with so many
positions that is taken which adds least to its diameter by what the busiest gateway of any site holds beyond its share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgebroker.overlay.address import Address
from edgebroker.overlay.draft import Draft, DraftGateway, Site
from edgebroker.overlay.factor import Factor, around_each, components
from edgebroker.overlay.shapes import shapes
from edgebroker.overlay.uplink import Uplink

Part = tuple[str, ...]
Parts = tuple[Part, ...]


def plan(federation: str, sites: Mapping[str, int], uplink: Uplink, port: int) -> Draft:
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
    return Draft(federation, paths_of(factor), drafted, tuple(gateways))


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
