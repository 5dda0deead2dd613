"""`LIKE` patterns: parsing them, spelling them, and their position in the order of strings."""

from __future__ import annotations

from typing import Final

from edgebroker.errors import FilterInvalid
from edgebroker.predicate import ANY_ONE, ANY_RUN

_LAST_CHARACTER: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)
_ESCAPE: Final = "!"


def parts_of(pattern: str, escape: str | None, column: int) -> tuple[str | int, ...]:
    """Parse *pattern*, whose literal is at *column*: `%` is any run, `_` any one character, *escape* quotes both.

    The result is the shortest form: no empty text, no two texts in a row, and of a run of wildcards first the `_` and
    then one `%`. Raises FilterInvalid if the escape character stands before anything but `%`, `_` and itself.
    """
    parts: list[str | int] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            character = next(characters, "")
            if character not in ("%", "_", escape):
                raise FilterInvalid(f"in a pattern {escape!r} must be followed by %, _ or itself", column)
        elif character == "%":
            if not parts or parts[-1] != ANY_RUN:
                parts.append(ANY_RUN)
            continue
        elif character == "_":
            after_run = bool(parts) and parts[-1] == ANY_RUN
            parts.insert(len(parts) - after_run, ANY_ONE)
            continue
        if parts and isinstance(parts[-1], str):
            parts[-1] += character
        else:
            parts.append(character)
    return tuple(parts)


def spelled(parts: tuple[str | int, ...]) -> tuple[str, str | None]:
    """Return the text of the pattern, and the escape character it needs, if any."""
    needs_escape = any(isinstance(part, str) and ("%" in part or "_" in part) for part in parts)
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += "%" if part == ANY_RUN else "_"
        elif needs_escape:
            text += "".join(
                _ESCAPE + character if character in ("%", "_", _ESCAPE) else character for character in part
            )
        else:
            text += part
    return text, _ESCAPE if needs_escape else None


def prefix_of(parts: tuple[str | int, ...]) -> str:
    """Return the prefix of all strings that are like the pattern; it may be empty."""
    return parts[0] if parts and isinstance(parts[0], str) else ""


def is_plain(parts: tuple[str | int, ...]) -> bool:
    """Return whether the pattern is one text or a prefix: no `%` but the last, no `_`."""
    return parts in ((), (prefix_of(parts),), (prefix_of(parts), ANY_RUN), (ANY_RUN,))


def successor(prefix: str) -> str | None:
    """Return the smallest string that is greater than every string that begins with *prefix*; None if there is none.

    Strings are ordered by code point. Surrogates are no characters: U+E000 follows U+D7FF, and nothing follows
    U+10FFFF.
    """
    kept = prefix.rstrip(chr(_LAST_CHARACTER))
    if not kept:
        return None
    after = ord(kept[-1]) + 1
    return kept[:-1] + chr(_SURROGATES.stop if after in _SURROGATES else after)
