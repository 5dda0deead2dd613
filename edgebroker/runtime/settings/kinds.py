"""The kinds of value a setting may have: the accepted values, and the message for a value that is not accepted."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from edgebroker.dataclasses import dataclass
from edgebroker.names import most_alike

TOML_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a fraction",
    str: "text",
    list: "a list",
    dict: "a section",
}


class InvalidValue(Exception):
    """Raised for a value that a key does not accept; `args` are the reason and the remedy."""

    def __init__(self, reason: str, mend: str) -> None:
        super().__init__(reason, mend)


class ValueKind(Protocol):
    """A kind of value: checks what `tomllib` has parsed, and describes what it accepts."""

    def read(self, value: object, folder: Path) -> object:
        """Return the value as the gateway uses it; paths are relative to *folder*. Raises InvalidValue."""

    def __str__(self) -> str:
        """Describe the accepted values, for error messages and docs/settings.md."""


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer from `least` to `most`, both included."""

    least: int
    most: int

    def read(self, value: object, folder: Path) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidValue(f"is {toml_name(value)}", f"write a number, {self}, without quotes")
        if not self.least <= value <= self.most:
            raise InvalidValue(f"is {value:,}", f"write a number, {self}")
        return value

    def __str__(self) -> str:
        return f"{self.least:,} to {self.most:,}"


@dataclass(frozen=True, slots=True)
class Text:
    """A string that matches `pattern` completely; `meaning` describes such strings."""

    pattern: str
    meaning: str

    def read(self, value: object, folder: Path) -> str:
        text = string(value, f"write {self}, in quotes")
        if not re.fullmatch(self.pattern, text):
            raise InvalidValue(f"is {text!r}", f"write {self}")
        return text

    def __str__(self) -> str:
        return self.meaning


@dataclass(frozen=True, slots=True)
class PathKind:
    """The path of a file, which is opened later, or of a folder, which need not exist yet. `~` is the user's home
    directory.
    """

    meaning: str

    def read(self, value: object, folder: Path) -> Path:
        path = string(value, f"write {self}, in quotes")
        if not path or "\0" in path:
            raise InvalidValue(f"is {path!r}", f"write {self}, or leave the line out")
        try:
            return folder / Path(path).expanduser()
        except RuntimeError as error:
            raise InvalidValue(f"is {path!r}", "there is no such user; write the whole path") from error

    def __str__(self) -> str:
        return self.meaning


FILE: Final = PathKind("the path of a file")
FOLDER: Final = PathKind("the path of a folder")


@dataclass(frozen=True, slots=True)
class Boolean:
    """`true` or `false`."""

    def read(self, value: object, folder: Path) -> bool:
        if not isinstance(value, bool):
            raise InvalidValue(f"is {toml_name(value)}", f"write {self}, without quotes")
        return value

    def __str__(self) -> str:
        return "true or false"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the strings in `words`."""

    words: tuple[str, ...]

    def read(self, value: object, folder: Path) -> str:
        word = string(value, f"write one of {self}")
        if word not in self.words:
            nearest = most_alike(word, self.words)
            raise InvalidValue(f"is {word!r}", f'did you mean "{nearest}"?' if nearest else f"write one of {self}")
        return word

    def __str__(self) -> str:
        return ", ".join(f'"{word}"' for word in self.words)


@dataclass(frozen=True, slots=True)
class ParsedText:
    """A string from which `parse` makes the value; it raises ValueError for any other."""

    meaning: str
    parse: Callable[[str], object]

    def read(self, value: object, folder: Path) -> object:
        text = string(value, f"write {self}, in quotes")
        try:
            return self.parse(text)
        except ValueError as error:
            raise InvalidValue(f"is {text!r}", f"write {self}") from error

    def __str__(self) -> str:
        return self.meaning


IP_NETWORK: Final = ParsedText("an address or a network like 10.0.0.0/8", ipaddress.ip_network)


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of at most `most` values of one kind; `read` returns a tuple."""

    kind: ValueKind
    most: int

    def read(self, value: object, folder: Path) -> tuple[object, ...]:
        if not isinstance(value, list):
            raise InvalidValue(f"is {toml_name(value)}", f"write {self}, as [..., ...]")
        if len(value) > self.most:
            raise InvalidValue(f"has {len(value)} entries", f"write at most {self.most}")
        return tuple(self.kind.read(one, folder) for one in value)

    def __str__(self) -> str:
        return f"a list of up to {self.most}, each {self.kind}"


@dataclass(frozen=True, slots=True)
class OneOrMoreOf:
    """A value of one kind, or a list of at most `most`; `read` returns a tuple. `plural`: the name of several."""

    kind: ValueKind
    plural: str
    most: int

    def read(self, value: object, folder: Path) -> tuple[object, ...]:
        return ListOf(self.kind, self.most).read([value] if isinstance(value, str) else value, folder)

    def __str__(self) -> str:
        return f"{self.kind}, or a list of such {self.plural}"


def string(value: object, mend: str) -> str:
    """Return *value* if it is a string. Raises InvalidValue."""
    if not isinstance(value, str):
        raise InvalidValue(f"is {toml_name(value)}", mend)
    return value


def toml_name(value: object) -> str:
    """Return the name of a value's TOML type, for error messages."""
    return TOML_NAMES.get(type(value), "a date or time")
