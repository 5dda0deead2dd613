"""Mosquitto's configuration, line by line, as mosquitto.conf(5) describes it, and the verdict on each line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from edgebroker.errors import EdgebrokerError
from edgebroker.limits import OPERATOR_FILE_BYTES_MAX

SECRETS: Final = ("password", "remote_password", "local_password", "bridge_psk")
"""Options whose values are shown to nobody."""


class ConfUnreadable(EdgebrokerError):
    """A configuration file, or a folder of them, that cannot be read."""


@dataclass(frozen=True, slots=True)
class ConfLine:
    """One option as it stands in a file. `number` counts from 1."""

    file: str
    number: int
    name: str
    value: str

    @property
    def place(self) -> str:
        """Where it stands, as an editor takes it."""
        return f"{self.file}:{self.number}"

    def __str__(self) -> str:
        shown = "(not shown)" if self.name in SECRETS and self.value else self.value
        return f"{self.name} {shown}".rstrip()


def read_lines(path: Path) -> list[ConfLine]:
    """The options of one file, in their order. Raises ConfUnreadable.

    Mosquitto takes a line for a comment only if it begins with `#`; we forgive spaces before it, and tabs.
    """
    try:
        with path.open("rb") as file:
            data = file.read(OPERATOR_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfUnreadable(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > OPERATOR_FILE_BYTES_MAX:
        raise ConfUnreadable(f"{path}: has more than {OPERATOR_FILE_BYTES_MAX:,} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfUnreadable(f"{path}:{line}: is not UTF-8; save it as UTF-8 text") from error
    found = []
    place = str(path)
    for number, written in enumerate(text.split("\n"), 1):
        stripped = written.strip()
        if stripped and not stripped.startswith("#"):
            name, _, value = stripped.replace("\t", " ").partition(" ")
            found.append(ConfLine(place, number, name, value.strip()))
    return found


def included_files(folder: Path) -> list[Path]:
    """The files that `include_dir` takes from *folder*, in its order. Raises ConfUnreadable."""
    try:
        found = [path for path in folder.iterdir() if path.name.endswith(".conf")]
    except OSError as error:
        raise ConfUnreadable(f"{folder}: cannot be read: {error.strerror}") from error
    return sorted(found, key=lambda path: (path.name.lower(), path.name))


class VerdictKind(Enum):
    """How a line fared; the value is its heading in the report, in this order."""

    TRANSLATED = "translated"
    DIFFERS = "translated with a difference"
    NEEDLESS = "not needed here"
    MISSING = "no equivalent here"
    UNKNOWN = "not understood"

    @property
    def is_loss(self) -> bool:
        """Whether a gateway with the settings written lacks something that was asked for."""
        return self in (VerdictKind.MISSING, VerdictKind.UNKNOWN)


@dataclass(frozen=True, slots=True)
class LineVerdict:
    """One line's verdict. `keys` are those of our settings that it set, `note` says what differs or what to do."""

    line: ConfLine
    verdict: VerdictKind
    note: str = ""
    keys: tuple[str, ...] = ()
