"""The two searches [LM]: for all matching predicates (centralised match), and for the links alone (link matching).

Both go depth first, value edges before the `*` edge. A matching step is a visit to a node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from edgebroker.event import Value
from edgebroker.matching.published.node import Branch, Leaf, Node, key_of


class Decision(NamedTuple):
    """The outcome of one search for links."""

    yes: int
    """The links that need a copy, one bit each."""
    steps: int
    """The nodes visited."""


def collect(node: Node, values: Sequence[Value], found: list[int]) -> int:
    """Append to *found* the subscriptions below *node* that accept an event; return the steps.

    values: the event's values by rank.
    """
    if isinstance(node, Leaf):
        found += node.members
        return 1
    return 1 + sum(collect(child, values, found) for child in _selected(node, values))


def decide(node: Node, values: Sequence[Value], open_: int) -> Decision:
    """Which of the links *open_* some subscription below *node* wants an event for.

    The mask of the source is a vector of trits. Here it is the set of links that are still MAYBE: what has become YES
    is the result, and a link that is NO is in neither. The search ends as soon as no link is open.
    """
    yes = open_ & node.annotation.yes
    open_ &= node.annotation.maybe
    steps = 1
    if open_ and isinstance(node, Branch):
        for child in _selected(node, values):
            below = decide(child, values, open_)
            yes |= below.yes
            steps += below.steps
            open_ &= ~below.yes
            if not open_:
                break
    return Decision(yes, steps)


def _selected(node: Branch, values: Sequence[Value]) -> Iterator[Node]:
    """The children to search. The `*` branch is left out if all its leaves require what the event has not [LM]."""
    yield from node.taken(values[node.rank])
    star = node.star
    if star is not None and all(key_of(values[rank]) == key for rank, key in star.shared):
        yield star
