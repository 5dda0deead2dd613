"""The errors that a user may see. Each message names the fault, its place and the remedy; the caller at the edge
decides who may see it.

Errors in lines of password, key and access-control files are collected, so that all of them are reported at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from edgebroker.dataclasses import dataclass


class EdgebrokerError(Exception):
    """Base of every error this product raises on purpose."""


class TopicInvalid(EdgebrokerError):
    """A text is not a valid topic name or topic filter (MQTT 5.0 section 4.7)."""


class FilterInvalid(EdgebrokerError):
    """A content filter cannot be parsed. `column` counts characters from 1."""

    def __init__(self, reason: str, column: int) -> None:
        super().__init__(f"column {column}: {reason}")
        self.reason = reason
        self.column = column


class FilterTooComplex(EdgebrokerError):
    """A content filter is well-formed but exceeds a bound of `edgebroker.limits`."""


class SettingsInvalid(EdgebrokerError):
    """A settings file cannot be used; the message names file, line and key."""


class OptionInvalid(EdgebrokerError):
    """A part of an option cannot be used: (reason, how to mend it)."""

    def __init__(self, reason: str, mend: str) -> None:
        super().__init__(f"{reason}; {mend}")
        self.reason = reason
        self.mend = mend


class RuleInvalid(OptionInvalid):
    """A rule of a bridge cannot be used."""


class LogDamaged(EdgebrokerError):
    """A delivery log is damaged; the message names the block and the offset."""


class CannotListen(EdgebrokerError):
    """The operating system refuses to listen at an address; the message names the address and the reason."""


class JournalDamaged(EdgebrokerError):
    """A journal cannot be used as it is; the message names the file and the remedy."""


class StoreUnusable(EdgebrokerError):
    """The state folder cannot be used; the message names the reason and the remedy."""


class JournalInUse(EdgebrokerError):
    """Another process has the journal open; the message names that process."""


class HeaderInvalid(EdgebrokerError):
    """The header of an event from another gateway cannot be read or written; the message gives the reason."""


class BrokerNoAnswer(EdgebrokerError):
    """No broker answers at the address, or not as expected; the message says where and why."""


@dataclass(slots=True)  # not frozen: it grows
class LineError:
    """`line` counts from 1; `mend` says how to put it right, or is empty. `last`: all lines up to there have it."""

    line: int
    reason: str
    mend: str = ""
    last: int = 0

    def __str__(self) -> str:
        where = f"lines {self.line} to {self.last}" if self.last else f"line {self.line}"
        return f"{where}: {self.reason}" + (f"; {self.mend}" if self.mend else "")


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """(Number from 1, line without blanks around it) of each line of *text* that is not empty and no `#` comment."""
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        bare = line.strip()
        if bare and bare[0] != "#":
            yield number, bare


def add_line_error(problems: list[LineError], line: int, reason: str, mend: str = "") -> None:
    """One more of *problems*, at *line*. What lines in a row have is told once: other files have thousands."""
    before = problems[-1] if problems else None
    if before is not None and before.reason == reason and (before.last or before.line) == line - 1:
        before.last = line
    else:
        problems.append(LineError(line, reason, mend))


def clipped(text: str, characters: int = 60) -> str:
    """*text* quoted for a message: what cannot be printed is escaped, what is long is cut."""
    return repr(text if len(text) <= characters else text[:characters] + "...")
