"""Link matching [LM, search at one broker]: which links need a copy of an event, without finding every subscription.

The mask of the source is a vector of trits. Here it is the set of links that are still MAYBE: what has become YES goes
into the result at once, and a link that is NO is in neither. The search goes depth first, value edges before `*`, and
ends as soon as no link is open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgebroker.event import Attributes
from edgebroker.matching.published.nodes import FIRST_LEVEL, LEAF, NONE
from edgebroker.matching.published.search import Decision, close_links
from edgebroker.topics import SEPARATOR

if TYPE_CHECKING:
    from edgebroker.matching.pst import Pst


def decide(tree: Pst, topic: str, attributes: Attributes, mask: int) -> int:
    """The links of *mask* (one bit per link) over which some subscription matches the event."""
    return decide_counting(tree, topic, attributes, mask).yes


def decide_counting(tree: Pst, topic: str, attributes: Attributes, mask: int) -> Decision:
    """As `decide`, with the number of steps."""
    nodes = tree.nodes
    names = topic.split(SEPARATOR)
    yes = steps = 0
    stack: list[tuple[int, int, int]] = []  # a node, the links still open there, and the end it hangs on or NONE
    root = nodes.stars[NONE]
    if root and topic.startswith("$"):
        # Wildcards in the first level do not match, and the root's annotation speaks of them too.
        steps = 1
        stack.append((nodes.tables[root].get(names[0], NONE), mask, NONE))
    else:
        stack.append((root, mask, NONE))
    while stack:
        node, open_, end = stack.pop()
        open_ &= ~yes
        if not node or not open_:
            continue
        if nodes.ranks[node] >= 0:
            keys = [] if nodes.ranks[node] == LEAF else tree.schemas[end].keys(attributes)
            found, visited = close_links(nodes, node, keys, open_)
            yes |= found
            steps += visited
            continue
        steps += 1
        yes |= open_ & nodes.yeses[node]
        open_ &= nodes.maybes[node]
        if not open_:
            continue
        stack.append((nodes.stars[node], open_, node))
        level = nodes.ranks[node] - FIRST_LEVEL
        if level == len(names):
            stack.append((nodes.tables[node].get(None, NONE), open_, ~node))
            continue
        spans = nodes.spans[node]
        if spans is not None:
            stack.append((spans.some, open_, NONE))
        stack.append((nodes.tables[node].get(names[level], NONE), open_, NONE))
    return Decision(yes, steps)
