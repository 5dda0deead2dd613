"""Numbers, names and values for people, in a narrow table or in a line of text."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

KIB = 1024
_ELLIPSIS = "…"


def count(number: float) -> str:
    """Returns at most six characters: 0, 999, 12.3 k, 4.56 M."""
    for unit in ("", " k", " M", " G"):
        if number < 999.5 or unit == " G":
            break
        number /= 1_000
    return f"{number:.0f}{unit}" if not unit or number >= 99.95 else f"{number:.3g}{unit}"


def octets(number: float | None) -> str:
    """Returns at most eight characters: 999 B, 1.2 KiB, 45 MiB; `?` for None."""
    if number is None:
        return "?"
    unit = "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < KIB - 0.5 or unit == "GiB":
            break
        number /= KIB
    return f"{number:.0f} {unit}" if unit == "B" or number >= 9.95 else f"{number:.1f} {unit}"


def on_disk(queue: Mapping[str, Any]) -> str:
    """Returns how much of a queue is in page files, as `, 44 MiB on the disk`; nothing if none of it is."""
    return f", {octets(queue['paged_bytes'])} on the disk" if queue["paged_bytes"] else ""


def span(seconds: float) -> str:
    """Returns a duration in its two greatest units: 3 h 12 min, 45 s."""
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
    """Returns *text* in exactly *width* columns of a terminal. A dot replaces unprintable characters, … what is too
    long.
    """
    text = "".join(character if character.isprintable() else "·" for character in text)
    if columns(text) > width:
        part = ""
        for character in text:
            if columns(part + character) > width - 1:
                break
            part += character
        text = part + _ELLIPSIS
    return text + " " * (width - columns(text))


def shortened(text: str, width: int | None = None) -> str:
    """Returns *text* as `fitted`, in as many columns as it needs, at most *width*."""
    needed = columns(text)
    return fitted(text, needed if width is None else min(needed, width))


def columns(text: str) -> int:
    """Returns the width of *text* on a terminal: wide East Asian characters take two columns, combining marks none."""
    return sum(
        0 if unicodedata.combining(character) else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields the lines of a table; the first of *rows* is its heading."""
    widths = [max(columns(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell + " " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()


def plain(value: Any) -> str:
    """Returns a value behind `name=`: texts that are empty, or have spaces or unprintable characters, are quoted as
    JSON.
    """
    if isinstance(value, str) and value and value.isprintable() and not set(value) & set(' "\\'):
        return value
    return json.dumps(value, ensure_ascii=not (isinstance(value, str) and value.isprintable()))


def harmless(text: str) -> str:
    """Returns *text* for a sentence, escaped if it has unprintable characters."""
    return text if text.isprintable() else json.dumps(text)[1:-1]
