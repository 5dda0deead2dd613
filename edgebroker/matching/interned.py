"""Interned values: values that many tests share are stored once, under a small number."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

V = TypeVar("V", bound=Hashable)

UNKNOWN: Final = -1
"""The number of a value that is not in the table."""


class InternTable(Generic[V]):
    """Values by number and numbers by value, with use counts. A number is reused after its last use ends."""

    __slots__ = ("_free", "numbers", "uses", "values")

    def __init__(self) -> None:
        self.numbers: dict[V, int] = {}
        self.values: list[V | None] = []
        self.uses: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, value: V) -> int:
        """Count one more use of *value* and return its number."""
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
        """Count one use of *number* less."""
        self.uses[number] -= 1
        if not self.uses[number]:
            value = self.values[number]
            assert value is not None
            del self.numbers[value]
            self.values[number] = None
            self._free.append(number)

    def bytes(self) -> int:
        """Return the memory in bytes, the values included as far as `sys.getsizeof` knows it."""
        tables = sys.getsizeof(self.numbers) + sys.getsizeof(self.values) + sys.getsizeof(self.uses)
        return tables + sum(map(sys.getsizeof, self.numbers))
