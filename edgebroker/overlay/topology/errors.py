"""The errors of a topology, each with its place in the file."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.errors import EdgebrokerError
from edgebroker.names import most_alike

NAMES_SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class TopologyMistake:
    """One mistake. `where`: its place in the file: section, index from 0 if sections repeat, and key. `mend`: the
    remedy.
    """

    where: tuple[str | int, ...]
    reason: str
    mend: str

    def __str__(self) -> str:
        place = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in self.where).removeprefix(".")
        return f"{place}: {self.reason}; {self.mend}"


def nearest(name: str, names: Collection[str]) -> str:
    """Return a remedy for *name*, which is none of *names*."""
    if (meant := most_alike(name, names)) is not None:
        return f"did you mean {meant}?"
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"there are {', '.join(islice(names, NAMES_SHOWN))}{more}"


class TopologyInvalid(EdgebrokerError):
    """A topology is invalid because of `mistakes`; the message has one line for each."""

    def __init__(self, mistakes: Iterable[TopologyMistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(map(str, self.mistakes)))
