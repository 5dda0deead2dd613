"""A mistake in a text, shown under the character where it is."""

from __future__ import annotations

from typing import Final
from unicodedata import combining, east_asian_width

SHOWN_BEFORE_MAX: Final = 50
SHOWN_AFTER_MAX: Final = 25
"""Characters of the text on either side of the mistake; together with an ellipsis at both ends they fit 80 columns."""


def pointed(text: str, column: int) -> tuple[str, str]:
    """The part of *text* around *column* (counted from 1; one past the end is allowed), and a line with the caret.

    Control characters are shown as blanks, so that both stay one line.
    """
    at = min(max(column - 1, 0), len(text))
    start, end = max(0, at - SHOWN_BEFORE_MAX), at + SHOWN_AFTER_MAX
    before, after = _printable(text[start:at]), _printable(text[at:end])
    if start:
        before = "..." + before
    if end < len(text):
        after += "..."
    return before + after, " " * sum(map(_cells, before)) + "^"


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def _cells(character: str) -> int:
    """Columns of a terminal that *character* takes."""
    if combining(character):
        return 0
    return 2 if east_asian_width(character) in ("W", "F") else 1
