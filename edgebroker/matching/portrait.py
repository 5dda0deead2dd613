"""The tree as it is, for people: the topic tree, and below each topic filter the forks and buckets of its content tree.

A *sketch* is one node with what is said of it; its children are found when they are asked for, so that a large tree can
be looked at from above. `lines` writes the sketches as indented text, `drawing` draws them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from itertools import islice
from typing import Any, Final

from edgebroker.dataclasses import dataclass
from edgebroker.matching.ends import End
from edgebroker.matching.labels import attribute_of, label_of, shown
from edgebroker.matching.outcomes import TreeSize, TritVector, format_trits, parallel_combine
from edgebroker.matching.pst import Pst
from edgebroker.topics import SEPARATOR

LINES_MAX: Final = 200
"""Lines of a portrait unless the caller says otherwise."""
FAMILY_MIN: Final = 8
FAMILY_SHARE: Final = 4
"""Where not everything fits, a node shows at most one of so many lines that are left as its children, or FAMILY_MIN."""
TRITS_SHOWN_MAX: Final = 64
"""Links of which the trits are shown."""
CONTENT: Final = "(content)"
INDENT: Final = "  "
LABEL_MAX: Final = 60
"""Characters of edge and indent beyond which the columns on the right give way."""


class SketchKind(Enum):
    """What a sketch shows."""

    LEVEL = "level"
    """Levels of topic filters."""
    FORK = "fork"
    BUCKET = "bucket"


@dataclass(frozen=True, slots=True)
class Sketch:
    """One node."""

    kind: SketchKind
    label: str
    """The words of the edge that leads here; CONTENT at the root of a content tree."""
    words: str
    """What is here; "" at levels where no topic filter ends."""
    leaves: int
    """Leaves here and below; of levels: subscriptions that end here."""
    bytes: int
    """What the node takes; 0 for levels, whose bytes are counted together."""
    trits: TritVector | None
    """What is known of each link here; None at levels where no topic filter ends."""
    node: Any
    """Of a level its number in the topic tree, -1 for `#`; else the fork or bucket."""
    end: End | None
    """Of a level: the topic filter that ends here."""


class Portrait:
    """The sketches of *tree*, with the trits of its first *links* links."""

    def __init__(self, tree: Pst, links: int = 0) -> None:
        self.links = links
        self._tree = tree
        self._leaves = tree.leaves

    @property
    def census(self) -> TreeSize:
        """How large the tree is."""
        return self._tree.census()

    def roots(self) -> list[Sketch]:
        """What leads away from the root of the topic tree."""
        return [self._level(*edge) for edge in self._tree.topics.children()]

    def children(self, sketch: Sketch) -> list[Sketch]:
        """What leads away from *sketch*, edges with values before `*`; of levels the content tree first."""
        if sketch.kind is SketchKind.LEVEL:
            content = sketch.end.content if sketch.end else None
            found = [] if content is None else [self._node(content.root)]
            return found + [self._level(*edge) for edge in self._edges(sketch.node)]
        if sketch.kind is SketchKind.FORK:
            return [self._node(node) for node in sketch.node.children()]
        return []

    def walk(self) -> Iterator[tuple[int, Sketch]]:
        """All sketches and their depths, a node before its children."""
        stack = [(0, sketch) for sketch in reversed(self.roots())]
        while stack:
            depth, sketch = stack.pop()
            yield depth, sketch
            stack += [(depth + 1, child) for child in reversed(self.children(sketch))]

    def trits(self, sketch: Sketch) -> str:
        """The trits of *sketch* as letters; "" where there are none."""
        return "" if sketch.trits is None else format_trits(sketch.trits, min(self.links, TRITS_SHOWN_MAX))

    def lines(self, lines_max: int = LINES_MAX) -> list[str]:
        """The tree as indented text, and its size.

        lines_max: for the nodes. If there are more, those near the root are shown, and how many edges are not.
        """
        everything = list(islice(self.walk(), lines_max + 1))
        rows = [(depth, sketch, 0) for depth, sketch in everything]
        if len(everything) > lines_max:
            rows = self._overview(lines_max)
        return [*self._aligned(rows), *summary(self.census)]

    def _overview(self, lines_max: int) -> list[tuple[int, Sketch, int]]:
        """Depth, sketch and number of edges not shown, of the nodes nearest to the root, a node before its children."""
        left = lines_max
        shown_below: dict[int, list[_OverviewNode]] = {}
        top = _OverviewNode(None, 0)
        waiting = deque([top])
        while waiting and left > 0:
            place = waiting.popleft()
            family = self.roots() if place.sketch is None else self.children(place.sketch)
            kept = family[: min(left, max(FAMILY_MIN, left // FAMILY_SHARE))]
            left -= len(kept)
            place.hidden = len(family) - len(kept)
            below = [_OverviewNode(child, 0) for child in kept]
            shown_below[id(place)] = below
            waiting += below
        for place in waiting:
            assert place.sketch is not None
            place.hidden = len(self.children(place.sketch))
        rows = []
        stack = [(0, place) for place in reversed(shown_below[id(top)])]
        while stack:
            depth, place = stack.pop()
            assert place.sketch is not None
            rows.append((depth, place.sketch, place.hidden))
            stack += [(depth + 1, below) for below in reversed(shown_below.get(id(place), []))]
        return rows

    def _aligned(self, rows: list[tuple[int, Sketch, int]]) -> Iterator[str]:
        heads = [INDENT * depth + sketch.label for depth, sketch, _ in rows]
        wide = max((len(head) for head in heads if len(head) <= LABEL_MAX), default=0)
        for head, (_, sketch, hidden) in zip(heads, rows, strict=True):
            words = [sketch.words] if sketch.words else []
            if hidden:
                words.append(f"{_counted(hidden, 'edge')} not shown")
            trits = f"{self.trits(sketch):<{min(self.links, TRITS_SHOWN_MAX)}}  " if self.links else ""
            yield f"{head:<{wide}}  {trits}{', '.join(words)}".rstrip()

    def _level(self, level: str, node: int, end: int) -> Sketch:
        """The level, together with those below it as long as there is one only and no topic filter ends."""
        text = level
        while end < 0:
            edges = self._edges(node)
            if len(edges) != 1:
                break
            level, node, end = edges[0]
            text += SEPARATOR + level
        hung = self._tree.ends[end] if end >= 0 else None
        count = hung.subscriptions if hung else 0
        return Sketch(SketchKind.LEVEL, shown(text) or '""', _end_words(hung), count, 0, _end_trits(hung), node, hung)

    def _edges(self, node: int) -> list[tuple[str, int, int]]:
        edges: list[tuple[str, int, int]] = self._tree.topics.children(node) if node >= 0 else []
        return edges

    def _node(self, node: Any) -> Sketch:
        label = CONTENT if node.parent is None else label_of(self._leaves, node.parent.cells, node.edge)
        size, count = node.bytes(), node.count
        if isinstance(node, self._tree.kernel.Fork):
            tested = "without test" if node.cells is None else f"on {attribute_of(self._leaves, node.cells)}"
            words = f"fork {tested}: {_counted(count, 'leaf', 'leaves')}, {size:,} bytes"
            return Sketch(SketchKind.FORK, label, words, count, size, node.annotation, node, None)
        columns = [attribute_of(self._leaves, cells) for cells in node.columns]
        by = f"columns {', '.join(columns)}" if columns else "no columns"
        words = f"bucket: {_counted(count, 'leaf', 'leaves')}, {by}, {size:,} bytes"
        return Sketch(SketchKind.BUCKET, label, words, count, size, node.annotation, node, None)


@dataclass(slots=True)
class _OverviewNode:
    """A node of an overview; the root of the topic tree has no sketch."""

    sketch: Sketch | None
    hidden: int


def summary(census: TreeSize) -> list[str]:
    """The size of a tree in two lines."""
    each = f", {census.bytes / census.subscriptions:,.0f} for each subscription" if census.subscriptions else ""
    return [
        f"{_counted(census.subscriptions, 'subscription')} with {_counted(census.leaves, 'leaf', 'leaves')} "
        f"in {_counted(census.buckets, 'bucket')}",
        f"{_counted(census.nodes, 'node')} (levels, forks and buckets), {census.bytes:,} bytes{each}",
    ]


def _end_words(end: End | None) -> str:
    if end is None:
        return ""
    parts = [f"{len(end.plain):,} without filter"] if end.plain else []
    if end.content is not None:
        parts.append(_counted(len(end.content), "predicate"))
    return f"{_counted(end.subscriptions, 'subscription')}: {', '.join(parts) or 'none can match'}"


def _end_trits(end: End | None) -> TritVector | None:
    if end is None:
        return None
    plain = TritVector(end.plain_links, 0)
    return plain if end.content is None else parallel_combine(plain, end.content.root.annotation)


def _counted(count: int, noun: str, plural: str = "") -> str:
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
