"""The kinds of value a setting may have: the accepted values, and the message for a value that is not accepted."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Protocol

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
        if not isinstance(value, str):
            raise InvalidValue(f"is {toml_name(value)}", f"write {self}, in quotes")
        if not re.fullmatch(self.pattern, value):
            raise InvalidValue(f"is {value!r}", f"write {self}")
        return value

    def __str__(self) -> str:
        return self.meaning


@dataclass(frozen=True, slots=True)
class FolderPath:
    """The path of a folder, which need not exist yet. `~` is the user's home directory."""

    def read(self, value: object, folder: Path) -> Path:
        return _path(value, folder, str(self))

    def __str__(self) -> str:
        return "the path of a folder"


@dataclass(frozen=True, slots=True)
class FilePath:
    """The path of a file, which is opened later. `~` is the user's home directory."""

    def read(self, value: object, folder: Path) -> Path:
        return _path(value, folder, str(self))

    def __str__(self) -> str:
        return "the path of a file"


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
        if not isinstance(value, str):
            raise InvalidValue(f"is {toml_name(value)}", f"write one of {self}")
        if value not in self.words:
            nearest = most_alike(value, self.words)
            raise InvalidValue(f"is {value!r}", f'did you mean "{nearest}"?' if nearest else f"write one of {self}")
        return value

    def __str__(self) -> str:
        return ", ".join(f'"{word}"' for word in self.words)


@dataclass(frozen=True, slots=True)
class IpNetwork:
    """An IP network, or the address of one host."""

    def read(self, value: object, folder: Path) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        if not isinstance(value, str):
            raise InvalidValue(f"is {toml_name(value)}", f"write {self}, in quotes")
        try:
            return ipaddress.ip_network(value)
        except ValueError as error:
            raise InvalidValue(f"is {value!r}", f"write {self}") from error

    def __str__(self) -> str:
        return "an address or a network like 10.0.0.0/8"


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


def _path(value: object, folder: Path, what: str) -> Path:
    if not isinstance(value, str):
        raise InvalidValue(f"is {toml_name(value)}", f"write {what}, in quotes")
    if not value or "\0" in value:
        raise InvalidValue(f"is {value!r}", f"write {what}, or leave the line out")
    try:
        return folder / Path(value).expanduser()
    except RuntimeError as error:
        raise InvalidValue(f"is {value!r}", "there is no such user; write the whole path") from error


def toml_name(value: object) -> str:
    """Return the name of a value's TOML type, for error messages."""
    return TOML_NAMES.get(type(value), "a date or time")
