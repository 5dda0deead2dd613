"""A portrait of the tree for display: the topic tree, and below each topic filter the forks and buckets of its content
tree.

A *sketch* describes one node; its children are computed on demand, so that a large tree can be viewed from the top.
`lines` returns the sketches as indented text, `drawing` draws them.
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
"""The default number of lines of a portrait."""
FAMILY_MIN: Final = 8
FAMILY_SHARE: Final = 4
"""If not everything fits, a node shows at most 1 / FAMILY_SHARE of the remaining lines as its children, or
FAMILY_MIN.
"""
TRITS_SHOWN_MAX: Final = 64
"""Links whose trits are shown."""
CONTENT: Final = "(content)"
INDENT: Final = "  "
LABEL_MAX: Final = 60
"""Characters of edge and indent beyond which the columns on the right are not aligned."""


class SketchKind(Enum):
    """The kind of node that a sketch describes."""

    LEVEL = "level"
    """Levels of topic filters."""
    FORK = "fork"
    BUCKET = "bucket"


@dataclass(frozen=True, slots=True)
class Sketch:
    """The description of one node."""

    kind: SketchKind
    label: str
    """The text of the edge to this node; CONTENT at the root of a content tree."""
    words: str
    """The text for the node; "" at levels where no topic filter ends."""
    leaves: int
    """Leaves here and below; of levels: subscriptions that end here."""
    bytes: int
    """The memory of the node; 0 for levels, whose bytes are counted together."""
    trits: TritVector | None
    """The annotation; None at levels where no topic filter ends."""
    node: Any
    """Of a level its number in the topic tree, -1 for `#`; otherwise the fork or bucket."""
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
        """The size of the tree."""
        return self._tree.census()

    def roots(self) -> list[Sketch]:
        """Return the sketches of the first topic levels."""
        return [self._level(*edge) for edge in self._tree.topics.children()]

    def children(self, sketch: Sketch) -> list[Sketch]:
        """Return the children of *sketch*, edges with values before `*`; of levels the content tree first."""
        if sketch.kind is SketchKind.LEVEL:
            content = sketch.end.content if sketch.end else None
            found = [] if content is None else [self._node(content.root)]
            return found + [self._level(*edge) for edge in self._edges(sketch.node)]
        if sketch.kind is SketchKind.FORK:
            return [self._node(node) for node in sketch.node.children()]
        return []

    def walk(self) -> Iterator[tuple[int, Sketch]]:
        """Iterate over all sketches with their depths, a node before its children."""
        stack = [(0, sketch) for sketch in reversed(self.roots())]
        while stack:
            depth, sketch = stack.pop()
            yield depth, sketch
            stack += [(depth + 1, child) for child in reversed(self.children(sketch))]

    def trits(self, sketch: Sketch) -> str:
        """Return the trits of *sketch* as letters; "" if it has none."""
        return "" if sketch.trits is None else format_trits(sketch.trits, min(self.links, TRITS_SHOWN_MAX))

    def lines(self, lines_max: int = LINES_MAX) -> list[str]:
        """Return the tree as indented text, followed by its size.

        lines_max: limit for the nodes. If there are more, those near the root are shown, with the number of edges not
        shown.
        """
        everything = list(islice(self.walk(), lines_max + 1))
        rows = [(depth, sketch, 0) for depth, sketch in everything]
        if len(everything) > lines_max:
            rows = self._overview(lines_max)
        return [*self._aligned(rows), *summary(self.census)]

    def _overview(self, lines_max: int) -> list[tuple[int, Sketch, int]]:
        """Return depth, sketch and number of edges not shown, of the nodes nearest to the root, a node before its
        children.
        """
        left = lines_max
        shown_below: dict[int, list[_OverviewNode]] = {}
        top = _OverviewNode(None, 0)
        queue = deque([top])
        while queue and left > 0:
            item = queue.popleft()
            family = self.roots() if item.sketch is None else self.children(item.sketch)
            kept = family[: min(left, max(FAMILY_MIN, left // FAMILY_SHARE))]
            left -= len(kept)
            item.hidden = len(family) - len(kept)
            below = [_OverviewNode(child, 0) for child in kept]
            shown_below[id(item)] = below
            queue += below
        for item in queue:
            assert item.sketch is not None
            item.hidden = len(self.children(item.sketch))
        rows = []
        stack = [(0, item) for item in reversed(shown_below[id(top)])]
        while stack:
            depth, item = stack.pop()
            assert item.sketch is not None
            rows.append((depth, item.sketch, item.hidden))
            stack += [(depth + 1, below) for below in reversed(shown_below.get(id(item), []))]
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
        """Return the sketch of a level, merged with those below it while there is only one and no topic filter ends."""
        text = level
        while end < 0:
            edges = self._edges(node)
            if len(edges) != 1:
                break
            level, node, end = edges[0]
            text += SEPARATOR + level
        found = self._tree.ends[end] if end >= 0 else None
        count = found.subscriptions if found else 0
        return Sketch(
            SketchKind.LEVEL, shown(text) or '""', _end_words(found), count, 0, _end_trits(found), node, found
        )

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
    """Return the size of a tree in two lines."""
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
