"""The searches of a content tree: all matching leaves, the links alone, or both in one walk [LM 2.2, 2.6]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from edgebroker.matching.outcomes import MatchResult
from edgebroker.matching.reference.buckets import Bucket
from edgebroker.matching.reference.events import INSIDE, Event
from edgebroker.matching.reference.forks import Fork
from edgebroker.matching.reference.leaves import Leaves
from edgebroker.matching.reference.nodes import TreeNode
from edgebroker.predicate import Attributes


class SearchableTree(Protocol):
    """What can be searched."""

    @property
    def root(self) -> TreeNode:
        """The topmost node."""


def match(leaves: Leaves, trees: Sequence[SearchableTree], attributes: Attributes) -> list[int]:
    """The members, each once, of all leaves of *trees* that accept an event with *attributes*."""
    event = Event(leaves, attributes)
    found: list[int] = []
    several: dict[int, None] = {}
    for tree in trees:
        for leaf in _leaves(tree.root, event):
            if leaves.is_several(leaf):
                several.update(dict.fromkeys(leaves.members_of(leaf)))
            else:
                found += leaves.members_of(leaf)
    return found + list(several)


def decide(leaves: Leaves, trees: Sequence[SearchableTree], attributes: Attributes, mask: int) -> int:
    """The links of *mask* (one bit each) over which some leaf of *trees* accepts an event with *attributes*."""
    event = Event(leaves, attributes)
    yes = 0
    for tree in trees:
        yes |= _close(tree.root, event, mask & ~yes)
    return yes


def route(
    leaves: Leaves, trees: Sequence[SearchableTree], attributes: Attributes, mask: int, local: int
) -> MatchResult:
    """`match` for the members over the link *local*, and `decide` for the links of *mask*, in one walk."""
    event = Event(leaves, attributes)
    found: dict[int, None] = {}
    here = 1 << local
    yes = 0
    nodes = [(tree.root, False) for tree in reversed(trees)]
    while nodes:
        node, doubtful = nodes.pop()
        leaves.steps += 1
        reach = node.yes | node.maybe
        open_ = mask & ~yes & reach
        if not doubtful:
            yes |= open_ & node.yes
            open_ &= node.maybe
        if not (open_ | reach & here):
            continue
        if isinstance(node, Fork):
            nodes += reversed(_next(node, event, doubtful))
            continue
        assert isinstance(node, Bucket)
        for leaf, verified in _candidates(node, event, doubtful):
            links = leaves.links(leaf)
            if links & (mask & ~yes | here) and (verified or event.passes(leaves.predicate(leaf))):
                yes |= links & mask
                if links & here:
                    found.update((number, None) for number, link in leaves.members_of(leaf).items() if link == local)
    return MatchResult(list(found), yes)


def _leaves(root: TreeNode, event: Event) -> Iterator[int]:
    """The leaves below *root* that accept the event."""
    nodes = [(root, False)]
    while nodes:
        node, doubtful = nodes.pop()
        if isinstance(node, Fork):
            node.leaves.steps += 1
            nodes += reversed(_next(node, event, doubtful))
            continue
        assert isinstance(node, Bucket)
        node.leaves.steps += 1
        for leaf, verified in _candidates(node, event, doubtful):
            if verified or event.passes(node.leaves.predicate(leaf)):
                yield leaf


def _close(node: TreeNode, event: Event, open_: int, doubtful: bool = False) -> int:
    """The links of *open_* that turn out YES at or below *node*."""
    assert isinstance(node, (Fork, Bucket))
    node.leaves.steps += 1
    yes = 0
    open_ &= node.yes | node.maybe
    if not doubtful:
        yes = open_ & node.yes
        open_ &= node.maybe
    if not open_:
        return yes
    if isinstance(node, Fork):
        for child, doubt in _next(node, event, doubtful):
            yes |= _close(child, event, open_ & ~yes, doubt)
            if not open_ & ~yes:
                break
        return yes
    for leaf, verified in _candidates(node, event, doubtful):
        links = node.leaves.links(leaf) & open_ & ~yes
        if links and (verified or event.passes(node.leaves.predicate(leaf))):
            yes |= links
            if not open_ & ~yes:
                break
    return yes


def _next(fork: Fork, event: Event, doubtful: bool) -> list[tuple[TreeNode, bool]]:
    """The children of *fork* that an event reaches, value edges before `*`, and whether what they say is doubtful.

    It is below value edges that were followed because the value lies between two floats: nothing there is settled.
    """
    edges: list[tuple[TreeNode, bool]] = []
    if fork.cells is not None:
        cell = event.cell(fork.cells)
        if cell == INSIDE:
            edges = [(node, True) for node in fork.edges.values()]
        else:
            edges = [(node, doubtful) for node in fork.kids[cell]]
    return edges + [(node, doubtful) for node in fork.stars]


def _candidates(bucket: Bucket, event: Event, doubtful: bool) -> Iterator[tuple[int, bool]]:
    """The leaves of *bucket* that the columns leave over, by position, and whether they need no verifying."""
    left = bucket.live
    loose = -1 if doubtful else bucket.loose
    for cells, rows in zip(bucket.columns, bucket.rows, strict=True):
        cell = event.cell(cells)
        if cell == INSIDE:
            loose = -1
            continue
        left &= rows[cell]
        if not left:
            return
    slots = bucket.slots
    while left:
        lowest = left & -left
        left ^= lowest
        yield slots[lowest.bit_length() - 1], not loose & lowest
