"""Numbers in chains out of which any can be taken: each step takes the same time, however many there are.

A deque does not let go of what is in its middle. Of a dictionary with 100,000 keys one step in a while takes 20 ms, and
as many objects that refer to each other keep the garbage collector busy for as long again. So these are arrays.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator


class Links:
    """The numbers below *ends* are the ends of as many chains, which are empty. All others are in no chain yet."""

    __slots__ = ("_after", "_before")

    def __init__(self, ends: int) -> None:
        self._after = array("q", range(ends))
        self._before = array("q", range(ends))

    def first(self, end: int) -> int:
        """What stands first in a chain; its end if it is empty."""
        return self._after[end]

    def has(self, number: int) -> bool:
        """Whether *number* is in a chain."""
        return number < len(self._after) and self._after[number] != number

    def append(self, end: int, number: int) -> None:
        """Let *number*, which is in no chain, be the last in one."""
        after, before = self._after, self._before
        for another in range(len(after), number + 1):
            after.append(another)
            before.append(another)
        last = before[end]
        before[number], after[number] = last, end
        after[last] = before[end] = number

    def leave(self, number: int) -> None:
        """Take *number* out of its chain."""
        after, before = self._after, self._before
        last, following = before[number], after[number]
        after[last], before[following] = following, last
        after[number] = before[number] = number

    def join(self, end: int, other: int) -> None:
        """Let all of the chain that ends with *other* stand behind those of another one, and none in it any more."""
        after, before = self._after, self._before
        first, last = after[other], before[other]
        if first != other:
            before[first], after[before[end]] = before[end], first
            after[last], before[end] = end, last
            after[other] = before[other] = other

    def walk(self, end: int) -> Iterator[int]:
        """All of a chain, which must not change meanwhile."""
        number = self._after[end]
        while number != end:
            yield number
            number = self._after[number]
