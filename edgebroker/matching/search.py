"""The search for all matching predicates [LM, centralised match]. Plain functions: this is the hot loop."""

from __future__ import annotations

from edgebroker.matching.labels import Key
from edgebroker.matching.nodes import LEAF, Nodes


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
