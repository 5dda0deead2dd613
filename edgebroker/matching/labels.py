"""Edges as text: the values that take an edge, as in `temp: 20 <= .. < 30`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, nextafter
from typing import Any, Final

from edgebroker.matching.cells import ABSENT, OTHERWISE, STAR, STRING_CELLS_MAX, Cells

STAR_LABEL: Final = "*"
NAMED_MAX: Final = 4
"""Strings that one label shows; the others are counted."""
TEXT_SHOWN_MAX: Final = 40
"""Characters of a name or string that are shown."""
INTEGER_SHOWN_MAX: Final = 10**15
"""Whole numbers below this are shown without a point."""


def label_of(leaves: Any, cells: Cells | None, edge: int) -> str:
    """Return the text of *edge*, a set of *cells*; `*` for the one that tests nothing. leaves: of either kernel."""
    if edge == STAR or cells is None:
        return STAR_LABEL
    return f"{attribute_of(leaves, cells)}: {accepted(cells, edge, leaves.strings.values)}"


def attribute_of(leaves: Any, cells: Cells) -> str:
    """Return the name of the attribute that *cells* divide; "" if no predicate tests it any more."""
    name: str | None = leaves.names.values[cells.attribute]
    return shown(name or "")


def accepted(cells: Cells, edge: int, texts: Sequence[str | None]) -> str:
    """Return the values in the set *edge* of *cells* as text. texts: the strings by number."""
    present = (1 << cells.count) - 1 & ~(1 << ABSENT)
    if edge & present == present:
        return "present" if edge == present else "anything"
    parts = ["absent"] if edge >> ABSENT & 1 else []
    parts += _booleans(cells, edge)
    parts += _strings(cells, edge, texts)
    parts += _numbers(cells, edge)
    if edge >> OTHERWISE & 1:
        parts.append("of another kind")
    return " or ".join(parts)


def shown(text: str) -> str:
    """Return *text* on one line, cut to TEXT_SHOWN_MAX characters."""
    if len(text) > TEXT_SHOWN_MAX:
        text = text[:TEXT_SHOWN_MAX] + "..."
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def _booleans(cells: Cells, edge: int) -> list[str]:
    if cells.false_cell == OTHERWISE:
        return []
    truths = [text for cell, text in ((cells.false_cell, "FALSE"), (cells.true_cell, "TRUE")) if edge >> cell & 1]
    return ["a boolean"] if len(truths) == 2 else truths


def _strings(cells: Cells, edge: int, texts: Sequence[str | None]) -> list[str]:
    if cells.other_string == OTHERWISE:
        return []
    others = edge >> cells.other_string & 1
    count = STRING_CELLS_MAX if cells.strings_shared else len(cells.strings)
    inside = [place for place in range(count) if edge >> cells.first_string + place & 1]
    if len(inside) == count and others:
        return ["a string"]
    if cells.strings_shared:
        return [f"a string in {len(inside)} of {count} groups"] if inside else ["a string that no test names"] * others
    if others:
        outside = [place for place in range(count) if place not in inside]
        return [f"a string but {_listed(cells, outside, texts)}"]
    return [_listed(cells, inside, texts)] if inside else []


def _listed(cells: Cells, places: Sequence[int], texts: Sequence[str | None]) -> str:
    named = ["'" + shown(texts[cells.strings[place]] or "").replace("'", "''") + "'" for place in places[:NAMED_MAX]]
    more = len(places) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _numbers(cells: Cells, edge: int) -> list[str]:
    if cells.first_number == OTHERWISE:
        return []
    return [_range(low, high) for low, high in _runs(cells, edge >> cells.first_number)]


def _runs(cells: Cells, numbers: int) -> Iterator[tuple[float | None, float | None]]:
    """Iterate over runs of adjacent cells in the set *numbers*: their lower cut, and the cut above them."""
    end = len(cells.cuts) + 1
    cell = 0
    while cell < end:
        first = cell
        while cell < end and numbers >> cell & 1:
            cell += 1
        if cell > first:
            yield cells.cuts[first - 1] if first else None, cells.cuts[cell - 1] if cell < end else None
        cell += 1


def _range(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return "a number"
    if low is not None and high == nextafter(low, inf):
        return _number(low)
    if low is None:
        assert high is not None
        bound, below = _bound(high)
        return f"<= {bound}" if below else f"< {bound}"
    bound, below = _bound(low)
    if high is None:
        return f"> {bound}" if below else f">= {bound}"
    last, closed = _bound(high)
    return f"{bound} {'<' if below else '<='} .. {'<=' if closed else '<'} {last}"


def _bound(cut: float) -> tuple[str, bool]:
    """Return the text of a cut, and whether it is that of the float just below: `> 30` is cut just above 30 [LM
    2.7].
    """
    here, below = _number(cut), _number(nextafter(cut, -inf))
    return (below, True) if len(below) < len(here) else (here, False)


def _number(number: float) -> str:
    return str(int(number)) if abs(number) < INTEGER_SHOWN_MAX and number == int(number) else repr(number)
