"""Named deadlines. Setting a name again moves its deadline; the time is an argument, in microseconds."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Final

from edgebroker.instants import Instant

TIDY: Final = ("tidy",)
"""The deadline of `Node.tidy`: there is something to clear away between two turns."""


class TimerQueue:
    """A set of named deadlines. Equal deadlines fire in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[Instant, int, Hashable]] = []
        self._current: dict[Hashable, int] = {}
        self.changes = 0
        """Grows with each `set`, so that a world knows when to look at `next_due` again."""

    def __len__(self) -> int:
        return len(self._current)

    def set(self, name: Hashable, at: Instant) -> None:
        """Let *name* be due at *at*, and at no earlier time set before."""
        self.changes += 1
        self._current[name] = self.changes
        heapq.heappush(self._heap, (at, self.changes, name))
        # A name moved often leaves its old entries behind; they may not outnumber the live ones for long.
        if len(self._heap) > 64 + 4 * len(self._current):
            self._heap = [entry for entry in self._heap if self._current.get(entry[2]) == entry[1]]
            heapq.heapify(self._heap)

    def cancel(self, name: Hashable) -> None:
        """Forget *name*; unknown names are fine."""
        self._current.pop(name, None)

    def next_due(self) -> Instant | None:
        """The earliest deadline, None if there is none."""
        while self._heap:
            at, turn, name = self._heap[0]
            if self._current.get(name) == turn:
                return at
            heapq.heappop(self._heap)
        return None

    def take_next(self, now: Instant) -> Hashable | None:
        """Remove and return the name that has been due longest at *now*; None if none is."""
        at = self.next_due()
        if at is None or at > now:
            return None
        name = heapq.heappop(self._heap)[2]
        del self._current[name]
        return name


class Timers(TimerQueue):
    """Timers that know what they were last moved to, so that moving one to where it is costs nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._at: dict[Hashable, Instant] = {}

    def deadline_of(self, name: Hashable, otherwise: Instant) -> Instant:
        """The deadline of *name*, *otherwise* if it has none."""
        return self._at.get(name, otherwise)

    def move(self, name: Hashable, at: Instant | None) -> None:
        """Let *name* be due at *at*; None: never."""
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
