"""Numbers, names and values as people read them: in a narrow table or in a line of text."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

KIB = 1024
_ELLIPSIS = "…"


def count(number: float) -> str:
    """At most six characters: 0, 999, 12.3 k, 4.56 M."""
    for unit in ("", " k", " M", " G"):
        if number < 999.5 or unit == " G":
            break
        number /= 1_000
    return f"{number:.0f}{unit}" if not unit or number >= 99.95 else f"{number:.3g}{unit}"


def octets(number: float | None) -> str:
    """At most eight characters: 999 B, 1.2 KiB, 45 MiB; `?` where nobody knows."""
    if number is None:
        return "?"
    unit = "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < KIB - 0.5 or unit == "GiB":
            break
        number /= KIB
    return f"{number:.0f} {unit}" if unit == "B" or number >= 9.95 else f"{number:.1f} {unit}"


def span(seconds: float) -> str:
    """A length of time in its two greatest units: 3 h 12 min, 45 s."""
    whole = int(seconds)
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    parts: list[str] = []
    for name, size in units:
        if whole >= size or (name == "s" and not parts):
            parts.append(f"{whole // size} {name}")
            whole %= size
        elif parts:
            parts.append("")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts))


def fitted(text: str, width: int) -> str:
    """*text* in exactly so many columns of a terminal. What cannot be printed becomes a dot, what is too much …"""
    text = "".join(letter if letter.isprintable() else "·" for letter in text)
    if columns(text) > width:
        kept = ""
        for letter in text:
            if columns(kept + letter) > width - 1:
                break
            kept += letter
        text = kept + _ELLIPSIS
    return text + " " * (width - columns(text))


def shortened(text: str, width: int | None = None) -> str:
    """*text* as `fitted` shows it, in as many columns as it takes, of *width* at most."""
    taken = columns(text)
    return fitted(text, taken if width is None else min(taken, width))


def columns(text: str) -> int:
    """How wide a terminal shows *text*: letters of East Asia take two columns, combining marks none."""
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text
    )


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table; the first of *rows* is its heading."""
    widths = [max(columns(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell + " " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()


def plain(value: Any) -> str:
    """A value behind `name=`: texts that are empty, have spaces or cannot be printed stand in quotes, as JSON."""
    if isinstance(value, str) and value and value.isprintable() and not set(value) & set(' "\\'):
        return value
    return json.dumps(value, ensure_ascii=not (isinstance(value, str) and value.isprintable()))


def harmless(text: str) -> str:
    """*text* in a sentence: as it is, or escaped if it cannot be printed."""
    return text if text.isprintable() else json.dumps(text)[1:-1]
