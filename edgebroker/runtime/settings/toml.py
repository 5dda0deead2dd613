"""TOML as text: the line of every key, and the notation of a value.

`tomllib` parses a file and forgets the lines, which error messages need.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

_NAME: Final = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_HEADER: Final = re.compile(rf"\s*\[(\[?)\s*({_NAME}(?:\s*\.\s*{_NAME})*)\s*\]")
_ASSIGNMENT: Final = re.compile(rf"\s*({_NAME}(?:\s*\.\s*{_NAME})*)\s*=")
_QUOTED: Final = re.compile(r"""(?P<long>\"{3}|'{3})|"[^"\\]*+(?:\\.[^"\\]*+)*+"|'[^']*+'|(?P<comment>\#)""")
_END: Final = {'"""': re.compile(r'\\.|(?P<end>"{3,5})'), "'''": re.compile(r"(?P<end>'{3,5})")}
"""Of a long string; up to two quotes before the last three belong to it (TOML 1.0, "String")."""
_POSITION: Final = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


class KeyLines:
    """The line of every section and key in a text that is known to be TOML. Lines count from 1.

    The tables of an array, `[[name]]`, are ("name", 0), ("name", 1) and so on. The text is looked at up to what is
    asked for: 64 KiB take 2 ms, and the first problems are told alone.
    """

    def __init__(self, text: str) -> None:
        self._lines: dict[tuple[str | int, ...], int] = {}
        self._rest = self._read(text)

    def line(self, *path: str | int) -> int:
        """The line of a key or section; for a key inside an inline table, the table's; 0 if nothing is known."""
        for length in range(len(path), 0, -1):
            if (line := self._line(path[:length])) is not None:
                return line
        return 0

    def _line(self, path: tuple[str | int, ...]) -> int | None:
        while path not in self._lines and next(self._rest, None) is not None:
            pass
        return self._lines.get(path)

    def _read(self, text: str) -> Iterator[int]:
        """Reads on, a line each time."""
        lines = self._lines
        section: tuple[str | int, ...] = ()
        tables: dict[tuple[str | int, ...], int] = {}  # array -> how many tables it has so far
        inside = ""  # the quotes of the long string that this line begins in
        for number, line in enumerate(text.splitlines(), 1):
            if not inside:
                begin = line.lstrip()[:1]
                if begin in ("", "#"):
                    continue
                if begin == "[" and (header := _HEADER.match(line)):
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
                elif (name := line.partition("=")[0].strip()).isidentifier():  # as most keys: a third of the time
                    lines.setdefault((*section, name), number)
                elif assignment := _ASSIGNMENT.match(line):
                    path = (*section, *_names(assignment[1]))
                    for length in range(1, len(path) + 1):
                        lines.setdefault(path[:length], number)
            yield number
            if inside or '"' in line or "'" in line:
                inside = _string_left_open(line, inside)


def _string_left_open(line: str, inside: str) -> str:
    """The quotes of the long string that the next line begins in, if *line* begins in one of *inside*; else empty."""
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
    """`tomllib`'s message without its position, and the line of the position."""
    found = _POSITION.search(message)
    if not found:
        return message, 0
    reason = message[: found.start()]
    return reason, int(found[1]) if found[1] else text.count("\n") + 1


def _names(dotted: str) -> tuple[str, ...]:
    if dotted.isidentifier():
        return (dotted,)
    return tuple(name.strip("\"'") for name in re.findall(_NAME, dotted))


_ENCODE: Final = json.JSONEncoder(ensure_ascii=False).encode
"""Made once: `json.dumps` makes another one for each value."""
_LITERAL: Final = re.compile(r"""[^'\x00-\x1f\x7f"\\]*["\\][^'\x00-\x1f\x7f]*""")


def toml_value(value: object) -> str:
    """*value*, of a kind that JSON has too: TOML writes these alike, but for the last character of ASCII.

    A text with quotes or backslashes stands in single quotes if it can: settings may have so many escapes only.
    """
    if isinstance(value, str) and _LITERAL.fullmatch(value):
        return f"'{value}'"
    if isinstance(value, int):
        return str(value).lower()  # in a seventh of the time that JSON takes
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    return _ENCODE(value).replace("\x7f", "\\u007f")
