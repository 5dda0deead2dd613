"""TOML as text: finds the line of every key, which `tomllib` does not report, and writes values."""

from __future__ import annotations

import json
import re
from typing import Final

_NAME: Final = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_HEADER: Final = re.compile(rf"\s*\[(\[?)\s*({_NAME}(?:\s*\.\s*{_NAME})*)\s*\]")
_ASSIGNMENT: Final = re.compile(rf"\s*({_NAME}(?:\s*\.\s*{_NAME})*)\s*=")
_QUOTED: Final = re.compile(r"""(?P<long>\"{3}|'{3})|"[^"\\]*+(?:\\.[^"\\]*+)*+"|'[^']*+'|(?P<comment>\#)""")
_END: Final = {'"""': re.compile(r'\\.|(?P<end>"{3,5})'), "'''": re.compile(r"(?P<end>'{3,5})")}
"""The end of a multi-line string; up to two quotes before the last three belong to it (TOML 1.0, "String")."""
_POSITION: Final = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


class KeyLines:
    """The line of every section and key in a text that is known to be TOML. Lines count from 1.

    The tables of an array, `[[name]]`, are ("name", 0), ("name", 1) and so on.
    """

    def __init__(self, text: str) -> None:
        self._lines = lines = dict[tuple[str | int, ...], int]()
        section: tuple[str | int, ...] = ()
        tables: dict[tuple[str | int, ...], int] = {}  # array -> how many tables it has so far
        inside = ""  # the quotes of the multi-line string in which this line begins
        for number, line in enumerate(text.splitlines(), 1):
            if not inside and (header := _HEADER.match(line)):
                section = ()
                for name in _names(header[2]):
                    if section in tables:
                        section += (tables[section] - 1,)  # what is in an array belongs to its last table
                    section += (name,)
                    lines.setdefault(section, number)
                if header[1]:
                    tables[section] = tables.get(section, 0) + 1
                    section += (tables[section] - 1,)
                lines.setdefault(section, number)
            elif not inside and (assignment := _ASSIGNMENT.match(line)):
                path = (*section, *_names(assignment[1]))
                for length in range(1, len(path) + 1):
                    lines.setdefault(path[:length], number)
            inside = _string_left_open(line, inside)

    def line(self, *path: str | int) -> int:
        """Return the line of a key or section; for a key inside an inline table, the table's; 0 if none is known."""
        known = (self._lines.get(path[:length]) for length in range(len(path), 0, -1))
        return next(filter(None, known), 0)


def _string_left_open(line: str, inside: str) -> str:
    """Return the quotes of the multi-line string that is open at the end of *line*, or "".

    *inside*: those of the one that is open at its beginning.
    """
    at = 0
    while True:
        pattern = _END[inside] if inside else _QUOTED
        found = pattern.search(line, at)
        if found is None or (not inside and found["comment"]):
            return inside
        if inside:
            inside = "" if found["end"] else inside
        else:
            inside = found["long"] or ""
        at = found.end()


def line_of_error(message: str, text: str) -> tuple[str, int]:
    """Return `tomllib`'s message without the position at its end, and the line of that position, or 0."""
    found = _POSITION.search(message)
    if not found:
        return message, 0
    reason = message[: found.start()]
    return reason, int(found[1]) if found[1] else text.count("\n") + 1


def _names(dotted: str) -> tuple[str, ...]:
    return tuple(name.strip("\"'") for name in re.findall(_NAME, dotted))


_LITERAL: Final = re.compile(r"""[^'\x00-\x1f\x7f"\\]*["\\][^'\x00-\x1f\x7f]*""")


def toml_value(value: object) -> str:
    """Return *value*, a string, a number, a boolean or a list of these, in TOML.

    JSON and TOML write them alike, except U+007F. A string with quotes or backslashes is written in single quotes, if
    it has none itself: it needs no escapes there.
    """
    if isinstance(value, str) and _LITERAL.fullmatch(value):
        return f"'{value}'"
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
