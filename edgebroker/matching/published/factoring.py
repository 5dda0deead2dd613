"""Factoring [LM]: one tree for every combination of values of a few *index attributes*, found by hashing.

A subscription that leaves an index attribute untested goes into the trees of all its values. There may be more values
than subscriptions name. Those that none names share one tree, which holds only the copies with `*`: its value is OTHER.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import product
from typing import TypeAlias

from edgebroker.event import Value
from edgebroker.matching.published.node import STAR, Key, key_of


class Unnamed(Enum):
    """The value that stands for all that no subscription names."""

    OTHER = "other"


IndexKey: TypeAlias = tuple[Key | Unnamed, ...]
"""One value per index attribute: the name of a tree."""


class Factoring:
    """Which trees a subscription belongs in, and which one an event is looked up in."""

    def __init__(self, index_attributes: int) -> None:
        self._named: list[Counter[Key]] = [Counter() for _ in range(index_attributes)]
        """For each index attribute: how many subscriptions name a value."""

    def name(self, labels: Sequence[Key]) -> list[tuple[int, Key]]:
        """Count the values that *labels* (key or STAR) name; return those that are new, by index attribute."""
        fresh = [(at, key) for at, key in _keys(labels) if not self._named[at][key]]
        for at, key in _keys(labels):
            self._named[at][key] += 1
        return fresh

    def forget(self, labels: Sequence[Key]) -> list[tuple[int, Key]]:
        """Undo `name`; return the values that nobody names any more."""
        gone = []
        for at, key in _keys(labels):
            self._named[at][key] -= 1
            if not self._named[at][key]:
                del self._named[at][key]
                gone.append((at, key))
        return gone

    def trees_of(self, labels: Sequence[Key]) -> Iterator[IndexKey]:
        """The trees that a subscription belongs in, with *labels* (key or STAR) for its index attributes."""
        everywhere = [(*named, Unnamed.OTHER) for named in self._named]
        return product(*(everywhere[at] if key is STAR else (key,) for at, key in enumerate(labels)))

    def tree_for(self, values: Sequence[Value]) -> IndexKey:
        """The tree for events with *values* of the index attributes."""
        keys = zip(map(key_of, values), self._named, strict=True)
        return tuple(key if key in named else Unnamed.OTHER for key, named in keys)


def _keys(labels: Sequence[Key]) -> list[tuple[int, Key]]:
    """The values that are named, by index attribute."""
    return [(at, key) for at, key in enumerate(labels) if key is not STAR]
