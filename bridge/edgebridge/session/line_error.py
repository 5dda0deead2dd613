"""Errors in lines of password, key and access-control files: line number, reason and remedy."""

from __future__ import annotations

from edgebroker.dataclasses import dataclass


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
