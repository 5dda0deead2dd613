"""Reads a configuration of Mosquitto into lines, as mosquitto.conf(5) describes it; each line gets a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from edgebroker.errors import EdgebrokerError
from edgebroker.limits import OPERATOR_FILE_BYTES_MAX

SECRETS: Final = ("password", "remote_password", "local_password", "bridge_psk")
"""Options whose values are secret, and not shown in reports."""


class ConfUnreadable(EdgebrokerError):
    """Raised for a configuration file, or a folder of such files, that cannot be read."""


@dataclass(frozen=True, slots=True)
class ConfLine:
    """One option in a file. `number` is that of the line and counts from 1."""

    file: str
    number: int
    name: str
    value: str

    @property
    def place(self) -> str:
        """The place of the line, `file:number`."""
        return f"{self.file}:{self.number}"

    @property
    def words(self) -> list[str]:
        """The words of the value up to a remark. A remark is a word that begins with `#`, and what follows it."""
        found = self.value.split()
        remark = next((place for place, word in enumerate(found) if word.startswith("#")), len(found))
        return found[:remark]

    @property
    def word(self) -> str:
        """The first word of the value, which is all that Mosquitto reads of a number, a boolean or a choice."""
        return next(iter(self.words), "")

    def translated(self, *keys: str, note: str = "") -> LineVerdict:
        """Return the verdict that the line has set these *keys*."""
        return LineVerdict(self, VerdictKind.TRANSLATED, note, keys)

    def differs(self, note: str, *keys: str) -> LineVerdict:
        """Return the verdict that the line has set these *keys*, with the difference in *note*."""
        return LineVerdict(self, VerdictKind.DIFFERS, note, keys)

    def needless(self, note: str) -> LineVerdict:
        """Return the verdict that the line is not needed here."""
        return LineVerdict(self, VerdictKind.NEEDLESS, note)

    def missing(self, note: str, *keys: str) -> LineVerdict:
        """Return the verdict that the line has no equivalent here; *note*: what to do instead."""
        return LineVerdict(self, VerdictKind.MISSING, note, keys)

    def unknown(self, note: str) -> LineVerdict:
        """Return the verdict that the line is not understood."""
        return LineVerdict(self, VerdictKind.UNKNOWN, note)

    def __str__(self) -> str:
        shown = "(not shown)" if self.name in SECRETS and self.value else self.value
        return f"{self.name} {shown}".rstrip()


def read_lines(path: Path) -> list[ConfLine]:
    """Return the options of one file, in their order. Raises ConfUnreadable.

    A value is the rest of the line, as Mosquitto reads paths, names and passwords; of other values it reads the first
    word (`ConfLine.word`). Unlike Mosquitto, this also accepts spaces before the `#` of a comment, and tabs.
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
    """Return the files that `include_dir` reads from *folder*, in Mosquitto's order. Raises ConfUnreadable."""
    try:
        found = [path for path in folder.iterdir() if path.name.endswith(".conf")]
    except OSError as error:
        raise ConfUnreadable(f"{folder}: cannot be read: {error.strerror}") from error
    return sorted(found, key=lambda path: (path.name.lower(), path.name))


class VerdictKind(Enum):
    """The verdict on a line; the value is its heading in the report, which has them in this order."""

    TRANSLATED = "translated"
    DIFFERS = "translated with a difference"
    NEEDLESS = "not needed here"
    MISSING = "no equivalent here"
    UNKNOWN = "not understood"

    @property
    def is_loss(self) -> bool:
        """Whether a gateway with the written settings lacks something that the line asks for."""
        return self in (VerdictKind.MISSING, VerdictKind.UNKNOWN)


@dataclass(frozen=True, slots=True)
class LineVerdict:
    """The verdict on one line. `keys`: the settings that it has set; `note`: a difference, or what to do instead."""

    line: ConfLine
    verdict: VerdictKind
    note: str = ""
    keys: tuple[str, ...] = ()
