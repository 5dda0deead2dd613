"""A set of numbers as bitmaps of 1,024 bits: a range is removed at the price of what it holds, not of its length."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

PAGE_BITS: Final = 10
"""Of 1,024 numbers one bit each, 136 bytes at most: a row of SETTLED, 255 numbers, is in two pages at most."""
PAGE: Final = 1 << PAGE_BITS
_ONE = 1  # a number of Python's, also where this is compiled: a page does not fit 64 bits


class HeldNumbers:
    """Numbers from 0 on, which come in any order and go by ranges."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._pages: dict[int, int] = {}
        for number in numbers:
            self.add(number)

    def add(self, number: int) -> None:
        """*number* is held from now on, once, however often it is added."""
        page = number >> PAGE_BITS
        self._pages[page] = self._pages.get(page, 0) | _ONE << (number & PAGE - 1)

    def remove_range(self, first: int, count: int) -> list[int]:
        """Those of the *count* numbers from *first* on that are held, in order. They are held no longer."""
        taken: list[int] = []
        end = first + count
        while first < end:
            page = first >> PAGE_BITS
            upto = min(end, page + 1 << PAGE_BITS)
            held = self._pages.get(page)
            if held is not None:
                found = held & (_ONE << upto - first) - _ONE << (first & PAGE - 1)
                if found == held:
                    del self._pages[page]
                elif found:
                    self._pages[page] = held ^ found
                while found:
                    lowest = found & -found
                    taken.append((page << PAGE_BITS) + lowest.bit_length() - 1)
                    found ^= lowest
            first = upto
        return taken
