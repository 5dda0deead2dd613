"""How both drawings place the tree of positions: a row for each, every branch below the row it hangs on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edgebroker.overlay.factor import Factor


@dataclass(frozen=True, slots=True)
class Row:
    """A position, and the rails of the tree in front of it, one for each level: which go on below it."""

    position: str
    parent: str | None
    rails: tuple[bool, ...]

    @property
    def depth(self) -> int:
        return len(self.rails)


def rows(factor: Factor) -> tuple[Row, ...]:
    """The tree hung up in its middle, so that it is no deeper than it must be."""
    trunk = factor.trunk
    return tuple(_below(factor, trunk[len(trunk) // 2], None, ()))


def _below(factor: Factor, position: str, parent: str | None, rails: tuple[bool, ...]) -> Iterator[Row]:
    yield Row(position, parent, rails)
    branches = [one for one in factor.neighbours(position) if one != parent]
    for branch in branches:
        yield from _below(factor, branch, position, (*rails, branch != branches[-1]))
