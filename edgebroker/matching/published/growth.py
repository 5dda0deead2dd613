"""How the tree grows and shrinks, one path at a time.

For a given order of attributes the shape depends only on the predicates in the tree, not on their history: that is what
lets every insertion and removal touch a single path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from edgebroker.matching.published.annotation import reannotate, reannotate_above
from edgebroker.matching.published.labels import Label, Wide
from edgebroker.matching.published.nodes import LEAF, NONE, Nodes

Step: TypeAlias = tuple[int, Label]
"""A rank and the edge to take there. Ranks that a path leaves out are not tested, hence not even visited."""

Edge: TypeAlias = tuple[int, Label]
"""A node and the label of an edge away from it, whether it leads anywhere yet or not."""

TRUNK: Final[Edge] = (NONE, Wide.STAR)
"""The edge that leads to the root."""


def walk(nodes: Nodes, edge: Edge, path: Sequence[Step]) -> Edge:
    """The last edge of *path*, whose ranks grow, begun at *edge*. Nodes that are missing are made."""
    at, label = edge
    for rank, wanted in path:
        at = _station(nodes, at, label, rank)
        label = wanted
    return at, label


def leaf_at(nodes: Nodes, edge: Edge) -> int:
    """The leaf at the end of the chain that *edge* leads to, made if it is missing; then `enter` must follow."""
    at, label = edge
    return _station(nodes, at, label, LEAF)


def path_to(nodes: Nodes, leaf: int, rank_min: int) -> tuple[Edge, list[Step]]:
    """How *leaf* is reached: the steps at nodes of at least *rank_min*, and the edge they begin at.

    `*` edges are left out of the steps.
    """
    path: list[Step] = []
    node = leaf
    while True:
        at, label = nodes.parents[node], nodes.labels[node]
        if nodes.ranks[at] < rank_min:
            return (at, label), path[::-1]
        if label is not Wide.STAR:
            path.append((nodes.ranks[at], label))
        node = at


def _station(nodes: Nodes, at: int, label: Label, rank: int) -> int:
    """The node of *rank* in the chain that the edge (*at*, *label*) leads to; made, and put in between, if missing."""
    ranks = nodes.ranks
    next_ = nodes.child(at, label)
    while next_ and ranks[next_] < rank:
        at, label = next_, Wide.STAR
        next_ = nodes.stars[at]
    if next_ and ranks[next_] == rank:
        return next_
    node = nodes.new(rank)
    if next_:
        nodes.unlink(next_)
    nodes.link(at, label, node)
    if next_:
        nodes.link(node, Wide.STAR, next_)
    return node


def enter(nodes: Nodes, leaf: int, number: int, link: int) -> None:
    """Make subscription *number*, to be reached over *link*, a member of *leaf*."""
    nodes.members[leaf][number] = link
    bit = 1 << link
    if not nodes.yeses[leaf] & bit:
        nodes.yeses[leaf] |= bit
        reannotate_above(nodes, leaf)


def leave(nodes: Nodes, leaf: int, number: int, keep_trivial: bool) -> None:
    """Take subscription *number* out of *leaf*, and take away the nodes that nobody needs any more.

    keep_trivial: whether content nodes with a `*` edge alone stay [LM, trivial test elimination].
    """
    members = nodes.members[leaf]
    link = members.pop(number)
    if members:
        if link not in members.values():
            nodes.yeses[leaf] &= ~(1 << link)
            reannotate_above(nodes, leaf, lost=1 << link)
        return
    node, lost = leaf, 0
    while node and nodes.is_bare(node) and not (nodes.stars[node] and (keep_trivial or nodes.ranks[node] < 0)):
        parent, label, rest = nodes.parents[node], nodes.labels[node], nodes.stars[node]
        lost = nodes.yeses[node] | nodes.maybes[node]
        nodes.unlink(node)
        if rest:
            nodes.link(parent, label, rest)
        nodes.release(node)
        if label is Wide.STAR:
            lost = 0
        node = parent
        if rest:
            break
    reannotate(nodes, node, lost)
