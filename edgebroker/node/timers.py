"""Named deadlines. Setting a name again moves its deadline. Times are arguments, in microseconds."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Final

from edgebroker.instants import Instant

TIDY: Final = ("tidy",)
"""The timer of `Node.tidy`: cleanup is left to do between two turns."""


class TimerQueue:
    """A priority queue of named deadlines. Equal deadlines expire in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[Instant, int, Hashable]] = []
        self._current: dict[Hashable, int] = {}
        self.changes = 0
        """Grows with each change; the runtime then calls `next_due` again."""

    def __len__(self) -> int:
        return len(self._current)

    def set(self, name: Hashable, at: Instant) -> None:
        """Set the deadline of *name* to *at*; it replaces an earlier setting."""
        self.changes += 1
        self._current[name] = self.changes
        heapq.heappush(self._heap, (at, self.changes, name))
        # Each move leaves a dead entry in the heap; the heap is rebuilt when most of its entries are dead.
        if len(self._heap) > 64 + 4 * len(self._current):
            self._heap = [entry for entry in self._heap if self._current.get(entry[2]) == entry[1]]
            heapq.heapify(self._heap)

    def cancel(self, name: Hashable) -> None:
        """Remove the deadline of *name*; an unknown name is ignored."""
        self.changes += 1
        self._current.pop(name, None)

    def next_due(self) -> Instant | None:
        """Return the earliest deadline, None if there is none."""
        while self._heap:
            at, change, name = self._heap[0]
            if self._current.get(name) == change:
                return at
            heapq.heappop(self._heap)
        return None

    def take_next(self, now: Instant) -> Hashable | None:
        """Remove and return the name with the earliest deadline if it has passed at *now*; else return None."""
        at = self.next_due()
        if at is None or at > now:
            return None
        name = heapq.heappop(self._heap)[2]
        del self._current[name]
        self.changes += 1
        return name


class Timers(TimerQueue):
    """A TimerQueue that knows the current deadline of each name, so that moving one to where it is costs nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._at: dict[Hashable, Instant] = {}

    def deadline_of(self, name: Hashable, otherwise: Instant) -> Instant:
        """Return the deadline of *name*, or *otherwise* if it has none."""
        return self._at.get(name, otherwise)

    def move(self, name: Hashable, at: Instant | None) -> None:
        """Move the deadline of *name* to *at*; None removes it."""
        if self._at.get(name) == at:
            return
        if at is None:
            del self._at[name]
            self.cancel(name)
        else:
            self._at[name] = at
            self.set(name, at)

    def take_next(self, now: Instant) -> Hashable | None:
        name = super().take_next(now)
        self._at.pop(name, None)
        return name
