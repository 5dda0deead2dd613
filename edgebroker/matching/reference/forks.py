"""Forks: where the tree branches by the value of one attribute."""

from __future__ import annotations

import sys

from edgebroker.matching.cells import STAR, Cells
from edgebroker.matching.reference.buckets import Bucket, edge_of
from edgebroker.matching.reference.leaves import Leaves
from edgebroker.matching.reference.nodes import TreeNode


class Fork(TreeNode):
    """A test of one attribute, with an edge for each set of cells that predicates below accept, and a `*` edge.

    Without `cells` it tests nothing and has `*` edges only: leaves that nothing tells apart, in several buckets.
    """

    __slots__ = ("edges", "kids", "leaves", "span_max", "stars")

    def __init__(self, leaves: Leaves, cells: Cells | None, span_max: int) -> None:
        """span_max: predicates that accept more cells than this go to the `*` edge."""
        super().__init__()
        self.leaves = leaves
        self.cells = cells
        if cells is not None:
            leaves.hold(cells)
        self.span_max = span_max
        self.edges: dict[int, TreeNode] = {}
        self.stars: list[TreeNode] = []
        self.kids: list[list[TreeNode]] = [[] for _ in range(cells.count if cells else 0)]
        """By cell: the nodes to which its values lead."""

    def edge_of(self, leaf: int) -> int:
        """The edge on which *leaf* belongs."""
        if self.cells is None:
            return STAR
        covered = edge_of(self.leaves, leaf, self.cells).cells
        return covered if covered.bit_count() <= self.span_max else STAR

    def child(self, edge: int) -> TreeNode | None:
        """The node to which *edge* leads; the last one if several do."""
        if edge == STAR:
            return self.stars[-1] if self.stars else None
        return self.edges.get(edge)

    def children(self) -> list[TreeNode]:
        """All nodes to which edges lead, `*` last."""
        return [*self.edges.values(), *self.stars]

    def attach(self, edge: int, node: TreeNode) -> None:
        """Let *edge* lead to *node*, whose leaves count from now on for this fork alone, not for those above."""
        node.parent = self
        node.edge = edge
        self.count += node.count
        if edge == STAR:
            self.stars.append(node)
            return
        self.edges[edge] = node
        for cell, kids in enumerate(self.kids):
            if edge >> cell & 1:
                kids.append(node)

    def detach(self, node: TreeNode) -> None:
        """Take away the edge to *node*."""
        node.parent = None
        self.count -= node.count
        if node.edge == STAR:
            self.stars.remove(node)
            return
        del self.edges[node.edge]
        for cell, kids in enumerate(self.kids):
            if node.edge >> cell & 1:
                kids.remove(node)

    def swap(self, old: TreeNode, new: TreeNode) -> None:
        """Let the edge to *old* lead to *new*. Counts stay as they are."""
        new.parent, new.edge = self, old.edge
        old.parent = None
        if old.edge == STAR:
            self.stars[self.stars.index(old)] = new
            return
        self.edges[old.edge] = new
        for cell, kids in enumerate(self.kids):
            if old.edge >> cell & 1:
                kids[kids.index(old)] = new

    def discard(self) -> None:
        """Give back what the fork and all below hold, and let go of that, so that nothing is held in a circle."""
        if self.cells is not None:
            self.leaves.let_go(self.cells)
        for node in self.children():
            node.parent = None
            node.discard()
        self.cells = None
        self.edges, self.stars, self.kids = {}, [], []

    def annotate(self) -> bool:
        """Find the annotation from those of the children; say whether it changed.

        Every value of the attribute, or its absence, lies in one cell. What all cells agree on stays; a cell without an
        edge is the implicit NO of trap T1.
        """
        yes_always = -1
        reach = 0
        for kids in self.kids:
            yes = 0
            for node in kids:
                yes |= node.yes
                reach |= node.yes | node.maybe
            yes_always &= yes
        yes = yes_always if self.kids else 0
        for node in self.stars:
            yes |= node.yes
            reach |= node.yes | node.maybe
        before = self.yes, self.maybe
        self.yes, self.maybe = yes, reach & ~yes
        return before != (self.yes, self.maybe)

    def bytes(self) -> int:
        """Bytes taken, without the nodes below."""
        lists = sum(map(sys.getsizeof, self.kids)) + sys.getsizeof(self.edges) + sys.getsizeof(self.stars)
        return 200 + lists + (self.cells.bytes() if self.cells else 0)


def plant(root: TreeNode, leaf: int) -> Bucket:
    """The bucket below *root* where *leaf* belongs, made if there is none."""
    node = root
    while isinstance(node, Fork):
        edge = node.edge_of(leaf)
        child = node.child(edge)
        if child is None:
            child = Bucket(node.leaves)
            node.attach(edge, child)
        node = child
    assert isinstance(node, Bucket)
    return node


def root_of(node: TreeNode) -> TreeNode:
    """The root of the tree in which *node* is."""
    while node.parent is not None:
        node = node.parent
    return node


def count_in(node: TreeNode, leaves: int) -> None:
    """Count *leaves* more (or fewer) at all forks above *node*."""
    fork = node.parent
    while fork is not None:
        fork.count += leaves
        fork = fork.parent


def gain(bucket: Bucket, leaf: int) -> None:
    """Bring the annotations of the path to *leaf* in *bucket* up to date, after members have joined it."""
    if bucket.gain(leaf) and bucket.parent is not None:
        annotate_up(bucket.parent)


def annotate_up(node: TreeNode | None) -> None:
    """Annotate *node* anew, and the path above it as far as something changes."""
    while node is not None and node.annotate():
        node = node.parent
