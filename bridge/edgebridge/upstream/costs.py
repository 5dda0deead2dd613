"""Who spends a bridge's bytes: a count for each topic prefix, so many at most.

A topic counts under its first `DEPTH` levels. When there are more prefixes than `PREFIXES_MAX`, the smallest half of
them is folded into the rest of what stands above it: `a/b/c` and `a/b/d` into `a/b/#`, that into `a/#`, and in the
end into `#`, the others. So every byte is counted once, whatever topics there are; a prefix that is named has had at
least what it shows, and what it had before it was named is in the rest above it. So is what has too long a name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

DEPTH: Final = 4
"""Levels of a topic that are told apart."""
PREFIXES_MAX: Final = 1_024
"""In each direction: 200 bytes each, beside their names."""
PREFIX_CHARS_MAX: Final = 256
"""Of a longer one, what stands above it counts. MQTT allows 65,535, with which all of them would hold 64 MiB."""
OTHERS: Final = "#"
"""What no prefix could be named for. No topic has a wildcard in it, so nothing else is called like this."""
_REST: Final = "/#"


class Cell:
    """What the messages of one prefix took."""

    __slots__ = ("bytes", "bytes_before", "messages", "messages_before")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        """Whole PUBLISH packets, as the remote sees them."""
        self.messages_before = 0
        """`messages` when the day began."""
        self.bytes_before = 0

    def begin_day(self) -> None:
        """What was counted so far was before today."""
        self.messages_before, self.bytes_before = self.messages, self.bytes

    def fold(self, other: Cell) -> None:
        """Count *other* here."""
        self.messages += other.messages
        self.bytes += other.bytes
        self.messages_before += other.messages_before
        self.bytes_before += other.bytes_before


class Costs:
    """Of one bridge in one direction, since it began."""

    def __init__(self, prefixes_max: int = PREFIXES_MAX) -> None:
        self._cells: dict[str, Cell] = {}
        self._most = prefixes_max
        self.folds = 0
        """How often prefixes were folded: whoever keeps a cell has to ask for it anew then."""

    def cell(self, topic: str) -> Cell:
        """Where the messages of *topic* are counted."""
        prefix = topic if topic.count("/") < DEPTH else "/".join(topic.split("/", DEPTH)[:DEPTH])
        while len(prefix) > PREFIX_CHARS_MAX:
            prefix = _above(prefix)
        found = self._cells.get(prefix)
        if found is None:
            if len(self._cells) >= self._most:
                self._fold()
            found = self._cells[prefix] = Cell()
        return found

    def begin_day(self) -> None:
        """It is midnight."""
        for cell in self._cells.values():
            cell.begin_day()

    def cells(self) -> Iterator[tuple[str, Cell]]:
        """Each prefix; one that ends in `#` is the rest of what is above it."""
        return iter(self._cells.items())

    @property
    def bytes(self) -> int:
        """Of all."""
        return sum(cell.bytes for cell in self._cells.values())

    def _fold(self) -> None:
        """Make room. Rests go into the rests above them where the prefixes alone do not suffice."""
        cells = self._cells
        self.folds += 1
        while (surplus := len(cells) - self._most // 2) > 0:
            ranked = sorted((one for one in cells if one != OTHERS), key=lambda one: cells[one].bytes)
            for prefix in ranked[:surplus]:
                folded = cells.pop(prefix)
                cells.setdefault(_above(prefix), Cell()).fold(folded)


def _above(prefix: str) -> str:
    """The rest that *prefix* belongs to."""
    above, slash, _ = prefix.removesuffix(_REST).rpartition("/")
    return above + _REST if slash else OTHERS


def table(out: Costs, into: Costs, depth: int) -> dict[str, tuple[Cell, Cell]]:
    """What went out and what came in by prefix, where no more than *depth* levels are told apart."""
    found: dict[str, tuple[Cell, Cell]] = {}
    for way, costs in enumerate((out, into)):
        for prefix, cell in costs.cells():
            if cell.messages:
                levels = prefix.split("/")
                short = prefix if len(levels) <= depth else "/".join(levels[:depth])
                found.setdefault(short, (Cell(), Cell()))[way].fold(cell)
    return found
