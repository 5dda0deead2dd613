"""Another order of attributes for a content tree: those tested most, hence with the fewest `*`, nearest the root."""

from __future__ import annotations

from edgebroker.matching.published.growth import Edge, Step, enter, leaf_at, path_to, walk
from edgebroker.matching.published.nodes import LEAF, Nodes
from edgebroker.matching.schema import Schema


def replant(nodes: Nodes, end: Edge, schema: Schema) -> dict[int, int]:
    """Grow the content tree at *end* anew in the better order. Old leaf -> new leaf; empty if the order is good."""
    ranks = schema.reorder()
    if ranks is None:
        return {}
    root = nodes.child(*end)
    plain = nodes.chain_end(root)
    below = [node for node in nodes.below(root) if node != plain]
    plants = [(leaf, path_to(nodes, leaf, 0)[1], nodes.members[leaf]) for leaf in below if nodes.ranks[leaf] == LEAF]
    nodes.unlink(root)
    if plain:
        nodes.unlink(plain)
        nodes.link(*end, plain)
    for node in below:
        nodes.release(node)
    moved: dict[int, int] = {}
    for leaf, steps, members in plants:
        path: list[Step] = sorted(((ranks[rank], label) for rank, label in steps), key=lambda step: step[0])
        moved[leaf] = leaf_at(nodes, walk(nodes, end, path))
        for number, link in members.items():
            enter(nodes, moved[leaf], number, link)
    return moved
