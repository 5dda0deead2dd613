"""What is wrong with one line of a password, key or access-control file."""

from __future__ import annotations

from edgebroker.dataclasses import dataclass


@dataclass(slots=True)  # not frozen, which takes 0.3 us more: a file of another kind has thousands
class LineProblem:
    """`line` counts from 1; `mend` says how to put it right, or is empty."""

    line: int
    reason: str
    mend: str = ""

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}" + (f"; {self.mend}" if self.mend else "")


def clipped(text: str, characters: int = 60) -> str:
    """*text* quoted for a message: what cannot be printed is escaped, what is long is cut."""
    return repr(text if len(text) <= characters else text[:characters] + "...")
