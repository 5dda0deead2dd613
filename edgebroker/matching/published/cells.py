"""Which intervals contain a value: elementary cells, found by bisection [LM, tests other than equality].

Every bound is a *position* `(value, after)` between values: `(x, 0)` lies just before x and `(x, 1)` just after it. An
interval then is half-open, `low <= position < high`, whichever of its ends are closed; a value v stands at `(v, 0)`.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right, insort
from typing import Final, TypeAlias

from edgebroker.predicate import Interval

Position: TypeAlias = "tuple[int | float | str, int]"

ALLOWANCE: Final = 64
"""512 bytes per interval at most. Without a bound 10,000 nested intervals would need a hundred million entries."""


class Cells:
    """The intervals of one node and one kind of value, each leading to a child.

    Intervals bounded on one side only, the most frequent ones, are kept in order of their bound: those that contain a
    value are then a slice. As cells they would cost the square of their number. Intervals bounded on both sides are cut
    into the cells between neighbouring positions, and each cell lists its children; those that would make these lists
    too long (nested ones, mostly) are kept *loose*, in order of their lower bound, and tested one by one.
    """

    __slots__ = (
        "allowance",
        "always",
        "cuts",
        "entries",
        "holders",
        "intervals",
        "loose",
        "lower",
        "lower_children",
        "upper",
        "upper_children",
        "uses",
    )

    def __init__(self, allowance: int = ALLOWANCE) -> None:
        """allowance: how long the lists of the cells may become together, per interval that is cut into cells."""
        self.always: list[int] = []
        self.lower: list[Position] = []  # sorted; lower_children[i] is reached at and above lower[i]
        self.lower_children: list[int] = []
        self.upper: list[Position] = []  # sorted; upper_children[i] is reached below upper[i]
        self.upper_children: list[int] = []
        self.cuts: list[Position] = []  # sorted; cell i lies before cuts[i], the last cell after all of them
        self.uses: list[int] = []  # uses[i]: how many bounds lie at cuts[i]
        self.holders: list[list[int]] = [[]]
        self.intervals = 0  # cut into cells
        self.entries = 0  # in all lists of `holders` together
        self.allowance = allowance
        self.loose: list[tuple[Position, Position, int]] = []  # sorted: lower bound, upper bound, child

    def __bool__(self) -> bool:
        return bool(self.always or self.lower or self.upper or self.cuts or self.loose)

    def add(self, interval: Interval, child: int) -> None:
        """Let the values in *interval* lead to *child*. A child's intervals do not overlap."""
        low, high = _positions(interval)
        if low is None:
            if high is None:
                self.always.append(child)
            else:
                _put(self.upper, self.upper_children, high, child)
        elif high is None:
            _put(self.lower, self.lower_children, low, child)
        elif self._is_costly(low, high):
            insort(self.loose, (low, high, child))
        else:
            first = self._cut(low)
            last = self._cut(high)
            for cell in range(first + 1, last + 1):
                self.holders[cell].append(child)
            self.intervals += 1
            self.entries += last - first

    def discard(self, interval: Interval, child: int) -> None:
        """Undo `add` with the same arguments."""
        low, high = _positions(interval)
        if low is None:
            if high is None:
                self.always.remove(child)
            else:
                _take(self.upper, self.upper_children, high, child)
        elif high is None:
            _take(self.lower, self.lower_children, low, child)
        elif self._is_loose(low, high, child):
            del self.loose[bisect_left(self.loose, (low, high, child))]
        else:
            first = bisect_left(self.cuts, low)
            last = bisect_left(self.cuts, high)
            for cell in range(first + 1, last + 1):
                self.holders[cell].remove(child)
            self.intervals -= 1
            self.entries -= last - first
            self._heal(last)
            self._heal(first)

    def find(self, value: int | float | str, found: list[int]) -> None:
        """Append to *found* the children whose intervals contain *value*."""
        here = (value, 0)
        if self.always:
            found += self.always
        if self.lower:
            found += self.lower_children[: bisect_right(self.lower, here)]
        if self.upper:
            found += self.upper_children[bisect_right(self.upper, here) :]
        if self.cuts:
            found += self.holders[bisect_right(self.cuts, here)]
        if self.loose:
            for low, high, child in self.loose:
                if low > here:
                    break
                if here < high:
                    found.append(child)

    def bytes_estimate(self) -> int:
        """About how many bytes the lists take, without the values of the bounds."""
        positions = 56 * (len(self.lower) + len(self.upper) + len(self.cuts) + 2 * len(self.loose))
        bounds = (self.lower, self.upper, self.cuts, self.loose)
        children = (self.always, self.lower_children, self.upper_children, self.uses, *self.holders)
        return positions + sum(map(sys.getsizeof, bounds)) + sum(map(sys.getsizeof, children))

    def _is_costly(self, low: Position, high: Position) -> bool:
        """Whether one more interval between these bounds would make the lists of the cells too long."""
        first, last = bisect_right(self.cuts, low), bisect_right(self.cuts, high)
        copied = len(self.holders[first]) + len(self.holders[last])
        return self.entries + copied + last - first + 1 > self.allowance * (self.intervals + 1)

    def _is_loose(self, low: Position, high: Position, child: int) -> bool:
        index = bisect_left(self.loose, (low, high, child))
        return index < len(self.loose) and self.loose[index] == (low, high, child)

    def _cut(self, position: Position) -> int:
        """The index of *position* among the cuts, made if it is new: its cell falls into two equal ones."""
        index = bisect_left(self.cuts, position)
        if index < len(self.cuts) and self.cuts[index] == position:
            self.uses[index] += 1
        else:
            self.cuts.insert(index, position)
            self.uses.insert(index, 1)
            self.holders.insert(index, self.holders[index].copy())
            self.entries += len(self.holders[index])
        return index

    def _heal(self, index: int) -> None:
        """Drop one use of a cut; without any, the cells at both sides are equal and become one again."""
        self.uses[index] -= 1
        if not self.uses[index]:
            self.entries -= len(self.holders[index])
            del self.cuts[index], self.uses[index], self.holders[index]


def _positions(interval: Interval) -> tuple[Position | None, Position | None]:
    low: Position | None = None if interval.low is None else (interval.low, 0 if interval.low_closed else 1)
    high: Position | None = None if interval.high is None else (interval.high, 1 if interval.high_closed else 0)
    return low, high


def _put(positions: list[Position], children: list[int], position: Position, child: int) -> None:
    index = bisect_right(positions, position)
    positions.insert(index, position)
    children.insert(index, child)


def _take(positions: list[Position], children: list[int], position: Position, child: int) -> None:
    index = children.index(child, bisect_left(positions, position))
    del positions[index], children[index]
