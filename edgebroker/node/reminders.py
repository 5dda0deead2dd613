"""Timers whose deadlines are looked at more often than they move."""

from __future__ import annotations

from collections.abc import Hashable

from edgebroker.instants import Instant
from edgebroker.node.timers import Timers


class Reminders(Timers):
    """Timers that know what they were last moved to, so that moving one to where it is costs nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._at: dict[Hashable, Instant] = {}

    def at(self, name: Hashable, otherwise: Instant) -> Instant:
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
