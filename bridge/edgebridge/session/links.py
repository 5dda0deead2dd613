"""Numbers in chains out of which any can be taken: each step takes the same time, however many there are.

A deque does not let go of what is in its middle. Of a dictionary with 100,000 keys one step in a while takes 20 ms, and
as many objects that refer to each other keep the garbage collector busy for as long again. So these are arrays.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence


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

    def fill(self, end: int, first: int, count: int) -> None:
        """Append so many numbers from *first* on, which is larger by one than any number so far."""
        if not count:
            return
        after, before, beyond = self._after, self._before, first + count
        last = before[end]
        before.extend(range(first - 1, beyond - 1))
        after.extend(range(first + 1, beyond + 1))
        before[first], after[last] = last, first
        after[beyond - 1], before[end] = end, beyond - 1

    def chain(self, end: int, numbers: Sequence[int]) -> None:
        """Let *numbers* follow each other in a chain. No number was in any so far."""
        if not numbers:
            return
        after, before = self._after, self._before
        known = range(len(after), max(numbers) + 1)
        after.extend(known)
        before.extend(known)
        last = end
        for number in numbers:
            before[number], after[last] = last, number
            last = number
        after[last], before[end] = end, last

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
