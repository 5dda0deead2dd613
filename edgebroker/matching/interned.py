"""Values that many tests share, each held once under a small number."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

V = TypeVar("V", bound=Hashable)

UNKNOWN: Final = -1
"""The number of a value that nobody holds."""


class InternTable(Generic[V]):
    """Values by number and numbers by value, with a count of uses. A number is free again when its last use ends."""

    __slots__ = ("_free", "numbers", "uses", "values")

    def __init__(self) -> None:
        self.numbers: dict[V, int] = {}
        self.values: list[V | None] = []
        self.uses: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, value: V) -> int:
        """The number of *value*, used once more."""
        number = self.numbers.get(value, UNKNOWN)
        if number != UNKNOWN:
            self.uses[number] += 1
            return number
        if self._free:
            number = self._free.pop()
            self.values[number] = value
            self.uses[number] = 1
        else:
            number = len(self.values)
            self.values.append(value)
            self.uses.append(1)
        self.numbers[value] = number
        return number

    def drop(self, number: int) -> None:
        """One use of *number* less."""
        self.uses[number] -= 1
        if not self.uses[number]:
            value = self.values[number]
            assert value is not None
            del self.numbers[value]
            self.values[number] = None
            self._free.append(number)

    def bytes(self) -> int:
        """Bytes taken, the values themselves included as far as they say so."""
        tables = sys.getsizeof(self.numbers) + sys.getsizeof(self.values) + sys.getsizeof(self.uses)
        return tables + sum(map(sys.getsizeof, self.numbers))
