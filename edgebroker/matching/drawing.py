"""Draws a portrait of the tree as SVG: small trees as boxes and edges, large ones as an icicle whose areas show the
leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from html import escape
from itertools import islice
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.matching.portrait import CONTENT, Portrait, Sketch, SketchKind, summary

BOXES_MAX: Final = 80
"""Nodes up to which a tree is drawn as boxes and edges; more do not fit on a screen."""

_FILL: Final = {SketchKind.LEVEL: "#e4edf8", SketchKind.FORK: "#fdebcb", SketchKind.BUCKET: "#dcf1df"}
_LINE: Final = {SketchKind.LEVEL: "#5a7ca5", SketchKind.FORK: "#c4851a", SketchKind.BUCKET: "#4a8a56"}
_TRIT: Final = {"Y": "#2f8f46", "M": "#f2b01e", "N": "#d4d4d4"}
_MEANING: Final = {"Y": "yes: certain here", "M": "maybe: search on", "N": "no: nobody here"}
_STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#222}.small{font-size:10.5px;fill:#555}.title{font-size:15px;"
    "font-weight:600}.name{font-weight:600}.edge{fill:none;stroke:#9a9a9a}"
)

_LETTER: Final = 6.6
"""The average width of a letter at 12 px; accurate enough for short labels."""
_SMALL_LETTER: Final = 5.7
_MARGIN: Final = 16
_HEAD: Final = 62
"""Pixels above the drawing: title, size and legend."""
_ROW: Final = 56
_BOX: Final = 44
_GAP: Final = 28
_TRIT_SIDE: Final = 7
_TRITS_MAX: Final = 32
"""Links whose trits a box shows."""

_COLUMN_MAX: Final = 230
_COLUMN_MIN: Final = 110
_ICICLE_WIDTH: Final = 1_240
"""The width of all columns together in pixels, unless they would be narrower than _COLUMN_MIN."""
_ICICLE_HEIGHT: Final = 860
_SLICE_MIN: Final = 2.0
"""The height in pixels below which slices are merged with their siblings."""
_LABELLED_MIN: Final = 14.0
"""The height in pixels from which a slice has a label."""
_WORDED_MIN: Final = 32.0
"""The height in pixels from which it has a second line."""


def svg(portrait: Portrait, title: str = "Parallel search tree") -> str:
    """Return the drawing as a document."""
    few = sum(1 for _ in islice(portrait.walk(), BOXES_MAX + 1)) <= BOXES_MAX
    return _Boxes(portrait).svg(title) if few else _Icicle(portrait).svg(title)


@dataclass(slots=True)
class _PlacedSketch:
    """A sketch in a drawing. `weight`: leaves, and subscriptions without content filter, here and below."""

    sketch: Sketch
    depth: int
    children: list[_PlacedSketch] = field(default_factory=list)
    row: float = 0.0
    weight: int = 0

    @property
    def title(self) -> str:
        """The tooltip."""
        return f"{self.sketch.label}  {self.sketch.words}".strip()


def _place(portrait: Portrait) -> list[_PlacedSketch]:
    """Return the roots, with all sketches below them placed in rows. Each path's end has a row of its own."""
    everything: list[_PlacedSketch] = []
    above: list[_PlacedSketch] = []
    roots: list[_PlacedSketch] = []
    for depth, sketch in portrait.walk():
        placed = _PlacedSketch(sketch, depth)
        everything.append(placed)
        del above[depth:]
        (above[-1].children if above else roots).append(placed)
        above.append(placed)
    rows = sum(not placed.children for placed in everything)
    for placed in reversed(everything):
        if placed.children:
            placed.row = (placed.children[0].row + placed.children[-1].row) / 2
        else:
            rows -= 1
            placed.row = rows
        plain = len(placed.sketch.end.plain) if placed.sketch.end else 0
        own = placed.sketch.leaves if placed.sketch.kind is SketchKind.BUCKET else plain
        placed.weight = own + sum(child.weight for child in placed.children)
    return roots


def _flat(placed: list[_PlacedSketch]) -> Iterator[_PlacedSketch]:
    for one in placed:
        yield one
        yield from _flat(one.children)


class _Boxes:
    """Draws every node as a box, with edges to its right."""

    def __init__(self, portrait: Portrait) -> None:
        self._portrait = portrait
        self._roots = _place(portrait)
        self._all = list(_flat(self._roots))
        depths = 1 + max((one.depth for one in self._all), default=0)
        self._stubs = [0.0] * depths  # width of the labels of the edges to each depth, in pixels
        self._widths = [0.0] * depths  # width of the boxes at each depth
        for one in self._all:
            self._stubs[one.depth] = max(self._stubs[one.depth], _width(_edge_label(one.sketch)) + 14)
            self._widths[one.depth] = max(self._widths[one.depth], self._box_width(one.sketch))
        self._left = [_MARGIN + _GAP * depth + self._before(depth) for depth in range(depths)]

    def svg(self, title: str) -> str:
        width = self._left[-1] + self._stubs[-1] + self._widths[-1] + _MARGIN
        rows = 1 + max((one.row for one in self._all), default=0)
        parts = [*_head(self._portrait, title, with_trits=self._portrait.links > 0)]
        for one in self._all:
            parts += self._edges(one)
        for one in self._all:
            parts += self._box(one)
        return _document(max(width, 640), _HEAD + rows * _ROW + _MARGIN, parts)

    def _before(self, depth: int) -> float:
        """Return the width of stubs and boxes left of *depth*; no edge leads to the first boxes."""
        self._stubs[0] = 0.0
        return sum(self._stubs[:depth]) + sum(self._widths[:depth])

    def _box_width(self, sketch: Sketch) -> float:
        name, detail = _texts(sketch)
        trits = min(self._portrait.links, _TRITS_MAX) * (_TRIT_SIDE + 2) if sketch.trits is not None else 0
        return 20 + max(_width(name, bold=True), len(detail) * _SMALL_LETTER, trits)

    def _box_left(self, one: _PlacedSketch) -> float:
        return self._left[one.depth] + self._stubs[one.depth]

    def _middle(self, one: _PlacedSketch) -> float:
        return _HEAD + one.row * _ROW + _ROW / 2

    def _edges(self, one: _PlacedSketch) -> Iterator[str]:
        start_x, start_y = self._box_left(one) + self._box_width(one.sketch), self._middle(one)
        for child in one.children:
            stub, left, y = self._left[child.depth], self._box_left(child), self._middle(child)
            bend = stub - _GAP / 2
            yield (
                f'<path class="edge" d="M{start_x:.1f} {start_y:.1f}H{bend - _GAP / 2:.1f}'
                f'C{bend:.1f} {start_y:.1f} {bend:.1f} {y:.1f} {stub:.1f} {y:.1f}H{left:.1f}"/>'
            )
            label = _edge_label(child.sketch)
            if label:
                yield f'<text x="{stub + 4:.1f}" y="{y - 5:.1f}">{escape(label)}</text>'

    def _box(self, one: _PlacedSketch) -> Iterator[str]:
        sketch = one.sketch
        name, detail = _texts(sketch)
        left, top = self._box_left(one), self._middle(one) - _BOX / 2
        yield f"<g><title>{escape(one.title)}</title>"
        yield (
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{self._box_width(sketch):.1f}" height="{_BOX}" rx="6" '
            f'fill="{_FILL[sketch.kind]}" stroke="{_LINE[sketch.kind]}"/>'
        )
        trits = self._portrait.trits(sketch)[:_TRITS_MAX]
        lines = 1 + bool(detail) + bool(trits)
        y = top + (_BOX - 13 * lines) / 2 + 11
        yield f'<text class="name" x="{left + 10:.1f}" y="{y:.1f}">{escape(name)}</text>'
        if detail:
            y += 13
            yield f'<text class="small" x="{left + 10:.1f}" y="{y:.1f}">{escape(detail)}</text>'
        for link, trit in enumerate(trits):
            x = left + 10 + link * (_TRIT_SIDE + 2)
            yield (
                f'<rect x="{x:.1f}" y="{y + 5:.1f}" width="{_TRIT_SIDE}" height="{_TRIT_SIDE}" fill="{_TRIT[trit]}">'
                f"<title>link {link}: {_MEANING[trit]}</title></rect>"
            )
        yield "</g>"


class _Icicle:
    """Draws every node as a slice whose height is its share of the leaves, with its children to the right."""

    def __init__(self, portrait: Portrait) -> None:
        self._portrait = portrait
        self._roots = _place(portrait)
        self._depths = 1 + max((one.depth for one in _flat(self._roots)), default=0)
        self._column = max(_COLUMN_MIN, min(_COLUMN_MAX, _ICICLE_WIDTH // self._depths))
        self._parts: list[str] = []

    def svg(self, title: str) -> str:
        self._parts += _head(self._portrait, title)
        self._slices(self._roots, _HEAD, _ICICLE_HEIGHT / max(1, sum(one.weight for one in self._roots)))
        return _document(2 * _MARGIN + self._depths * self._column, _HEAD + _ICICLE_HEIGHT + _MARGIN, self._parts)

    def _slices(self, family: list[_PlacedSketch], top: float, scale: float) -> None:
        """Draw *family* and everything below it, from *top* on, with *scale* pixels for each leaf."""
        thin: list[_PlacedSketch] = []
        for one in family:
            if one.weight * scale < _SLICE_MIN:
                thin.append(one)
                continue
            self._slice(one, one.title, top, one.weight * scale)
            self._slices(one.children, top, scale)
            top += one.weight * scale
        weight = sum(one.weight for one in thin)
        if thin and weight * scale >= 1:
            self._slice(thin[0], f"{len(thin):,} edges more, {weight:,} leaves", top, weight * scale, faint=True)

    def _slice(self, one: _PlacedSketch, words: str, top: float, height: float, faint: bool = False) -> None:
        kind, left = one.sketch.kind, _MARGIN + one.depth * self._column
        self._parts.append(
            f'<g><title>{escape(words)}</title><rect x="{left}" y="{top:.1f}" width="{self._column - 3}" '
            f'height="{max(height - 1, 0.5):.1f}" fill="{"#eeeeee" if faint else _FILL[kind]}" '
            f'stroke="{"#bbbbbb" if faint else _LINE[kind]}" stroke-width="0.6"/>'
        )
        if height >= _LABELLED_MIN:
            y = top + min(height / 2 + 4, 14)
            self._write(words if faint else one.sketch.label, left + 6, y, "name", _LETTER)
            if height >= _WORDED_MIN and not faint:
                self._write(one.sketch.words, left + 6, y + 14, "small", _SMALL_LETTER)
        self._parts.append("</g>")

    def _write(self, text: str, x: float, y: float, style: str, letter: float) -> None:
        fits = int((self._column - 14) / letter)
        text = text if len(text) <= fits else text[: fits - 3] + "..."
        self._parts.append(f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>')


def _texts(sketch: Sketch) -> tuple[str, str]:
    """Return the two lines in a box."""
    if sketch.kind is SketchKind.LEVEL:
        return sketch.label, sketch.words
    name, _, detail = sketch.words.partition(": ")
    return name, detail


def _edge_label(sketch: Sketch) -> str:
    return "" if sketch.kind is SketchKind.LEVEL or sketch.label == CONTENT else sketch.label


def _width(text: str, bold: bool = False) -> float:
    return len(text) * _LETTER * (1.08 if bold else 1)


def _head(portrait: Portrait, title: str, with_trits: bool = False) -> Iterator[str]:
    """Iterate over the parts of title, size and legend."""
    yield f'<text class="title" x="{_MARGIN}" y="24">{escape(title)}</text>'
    yield f'<text class="small" x="{_MARGIN}" y="41">{escape("; ".join(summary(portrait.census)))}</text>'
    x = float(_MARGIN)
    legend = [(_FILL[kind], _LINE[kind], kind.value) for kind in SketchKind]
    if with_trits:
        legend += [(_TRIT[letter], _TRIT[letter], meaning) for letter, meaning in _MEANING.items()]
    for fill, line, meaning in legend:
        yield f'<rect x="{x:.1f}" y="48" width="9" height="9" fill="{fill}" stroke="{line}"/>'
        yield f'<text class="small" x="{x + 14:.1f}" y="56.5">{meaning}</text>'
        x += 14 + len(meaning) * _SMALL_LETTER + 16


def _document(width: float, height: float, parts: list[str]) -> str:
    begin = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">\n<style>{_STYLE}</style>\n'
        '<rect width="100%" height="100%" fill="#fff"/>'
    )
    return "\n".join([begin, *parts, "</svg>", ""])
