"""The two searches [LM]: for all matching predicates (centralised match), and for the links alone (link matching)."""

from __future__ import annotations

from typing import NamedTuple

from edgebroker.matching.published.labels import Key
from edgebroker.matching.published.nodes import LEAF, NONE, Nodes


class Decision(NamedTuple):
    """The outcome of one search."""

    yes: int
    """The links that need a copy, one bit each."""
    steps: int
    """The nodes visited."""


def collect(nodes: Nodes, root: int, skipped: int, keys: list[Key], found: list[int]) -> int:
    """Append to *found* the members of every leaf below *root* whose path accepts the event; return the nodes visited.

    skipped: a leaf to pass over, or NONE.  keys: the key of the event's value for every rank.  A number is appended
    once for each of its predicates that accept.
    """
    ranks = nodes.ranks
    stars = nodes.stars
    tables = nodes.tables
    spans = nodes.spans
    members = nodes.members
    visited = 0
    stack = [root]
    while stack:
        node = stack.pop()
        while node:
            visited += 1
            rank = ranks[node]
            if rank == LEAF:
                if node != skipped:
                    found += members[node]
                break
            key = keys[rank]
            table = tables[node]
            child = table.get(key)
            if child is not None:
                stack.append(child)
            wide = spans[node]
            if wide is not None:
                wide.find(key, stack)
            node = stars[node]
    return visited


def close_links(nodes: Nodes, root: int, keys: list[Key], open_: int) -> Decision:
    """Decide the links *open_* in the content tree at *root*.  keys: the key of the event's value for every rank."""
    ranks = nodes.ranks
    stars = nodes.stars
    tables = nodes.tables
    spans = nodes.spans
    yeses = nodes.yeses
    maybes = nodes.maybes
    yes = steps = 0
    stack = [(root, open_)] if root else []
    children: list[int] = []
    while stack:
        node, open_ = stack.pop()
        open_ &= ~yes
        if not open_:
            continue
        steps += 1
        yes |= open_ & yeses[node]
        open_ &= maybes[node]
        if not open_:
            continue
        key = keys[ranks[node]]
        if stars[node]:
            stack.append((stars[node], open_))
        wide = spans[node]
        if wide is not None:
            wide.find(key, children)
            for child in children:
                stack.append((child, open_))
            children.clear()
        table = tables[node]
        child = table.get(key, NONE)
        if child:
            stack.append((child, open_))
    return Decision(yes, steps)
