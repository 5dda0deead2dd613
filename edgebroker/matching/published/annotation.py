"""Annotations: per node, which links every event (YES), no event (NO) or some events (MAYBE) that reach it will take.

A node's annotation is P(`*` child, A over the elementary cells of its attribute), where the annotation of a cell is P
over the edges that contain it, and NO for a cell without edges [LM, annotation]. The cells are known when the
attribute's domain is declared. An open domain always has NULL, and values that no edge but NOT NULL accepts: composite
ones. As A keeps only the YES of all alternatives, every other cell can be left out of it, and what remains takes no
walk over the cells:

    YES    = YES of `*`  or  (YES of IS NULL  and  YES of NOT NULL)
    not NO = not NO of any edge

The last line is kept per node (`Nodes.fans`), so that one more value edge costs the same at a node with ten thousand.
"""

from __future__ import annotations

from edgebroker.matching.published.labels import Key, Wide
from edgebroker.matching.published.nodes import NONE, Nodes
from edgebroker.matching.trits import NOWHERE, TritVector, alternative_combine, parallel_combine


def reannotate(nodes: Nodes, node: int, lost: int = 0) -> None:
    """Bring the annotations from *node*, whose edges have changed, up to the root up to date.

    lost: links that a value edge of *node* could reach and can no more. Stops where nothing changes.
    """
    if not node:
        return
    if lost & nodes.fans[node]:
        _recount(nodes, node, lost)
    before = annotation_of(nodes, node)
    after = _combined(nodes, node)
    if after != before:
        nodes.yeses[node], nodes.maybes[node] = after
        reannotate_above(nodes, node, before.reach & ~after.reach)


def reannotate_above(nodes: Nodes, node: int, lost: int = 0) -> None:
    """Bring the annotations above *node* up to date, whose own has changed: it lost the links *lost* altogether."""
    parent = nodes.parents[node]
    while parent:
        if nodes.labels[node] is Wide.STAR:
            lost = 0
        else:
            nodes.fans[parent] |= nodes.yeses[node] | nodes.maybes[node]
            if lost:
                _recount(nodes, parent, lost)
        before = annotation_of(nodes, parent)
        after = _combined(nodes, parent)
        if after == before:
            return
        nodes.yeses[parent], nodes.maybes[parent] = after
        lost = before.reach & ~after.reach
        node, parent = parent, nodes.parents[parent]


def annotation_of(nodes: Nodes, node: int) -> TritVector:
    """The annotation that *node* carries; NO for NONE."""
    return TritVector(nodes.yeses[node], nodes.maybes[node])


def _combined(nodes: Nodes, node: int) -> TritVector:
    """The annotation of *node*, no leaf, from those of its children and its fan."""
    star = nodes.stars[node]
    domain = nodes.domains.get(nodes.ranks[node]) if nodes.domains else None
    if domain is not None:
        children = {child: annotation_of(nodes, child) for child in nodes.value_children(node)}
        return parallel_combine(_over_domain(nodes, node, domain, children), annotation_of(nodes, star))
    yes = nodes.yeses[star]
    spans = nodes.spans[node]
    if spans is not None:
        yes |= nodes.yeses[spans.some] & nodes.yeses[nodes.tables[node].get(None, NONE)]
    return TritVector(yes, (nodes.fans[node] | nodes.yeses[star] | nodes.maybes[star]) & ~yes)


def _over_domain(nodes: Nodes, node: int, domain: tuple[Key, ...], children: dict[int, TritVector]) -> TritVector:
    """A over the values of a declared *domain*, each being P over the edges that accept it."""
    over_all: TritVector | None = None
    for key in domain:
        accepting: list[int] = []
        nodes.find(node, key, accepting)
        here = NOWHERE
        for child in accepting:
            here = parallel_combine(here, children[child])
        over_all = here if over_all is None else alternative_combine(over_all, here)
    return over_all or NOWHERE


def _recount(nodes: Nodes, node: int, lost: int) -> None:
    """Find out which of the *lost* links another value edge of *node* reaches; ends as soon as all are found."""
    fan = nodes.fans[node]
    kept = fan & ~lost
    for child in nodes.value_children(node):
        if kept == fan:
            break
        kept |= (nodes.yeses[child] | nodes.maybes[child]) & fan
    nodes.fans[node] = kept
