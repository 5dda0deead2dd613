"""What a bridge may spend in a day, and how much of it is gone."""

from __future__ import annotations

from typing import Final, NamedTuple

from edgebroker.instants import DAY, HOUR, SECOND, Duration, Instant
from edgebroker.limits import KIB

WARNED: Final = 0.8
"""The part of a day's bytes from which an operator is told."""
NOTED_PARTS: Final = 100
NOTED_BYTES_MIN: Final = 4 * KIB
NOTED_EVERY: Final[Duration] = HOUR
"""Of the time that counts while the clock is behind."""


class Moment(NamedTuple):
    """What a clock on the wall shows."""

    day: int
    """Of the local calendar, counted from any."""
    minute: int
    """Of that day."""


class Spent(NamedTuple):
    """What a run hands to the next one."""

    day: int = -1
    """The latest day that a clock has shown."""
    octets: int = 0
    """Bytes of that day."""
    behind_s: int = 0
    """So long the clock has shown earlier days than that one, while we ran."""


class Purse:
    """Bytes of one day in both directions; 0 a day is no bound.

    A day begins when the clock shows a later one than ever before. A clock that shows an earlier one was wrong, or is:
    what is spent stays spent, until it has shown such days for 24 hours of running time; then it is believed. So a
    gateway that wakes up in 1970 does not begin a day with each boot, and one that was in 2099 once is not shut until
    then.
    """

    __slots__ = ("_behind_us", "_bytes_per_day", "_day", "_looked", "_noted", "spent")

    def __init__(self, bytes_per_day: int = 0) -> None:
        self._bytes_per_day = bytes_per_day
        self._day = -1
        self.spent = 0
        """Bytes of the present day."""
        self._behind_us: Duration = 0
        self._looked: Instant | None = None
        self._noted = Spent()

    def go_on(self, spent: Spent) -> None:
        """Begin with what an earlier run has left."""
        self._day, self.spent, self._behind_us = spent.day, spent.octets, spent.behind_s * SECOND
        self._noted = spent

    def clock(self, day: int, now: Instant) -> bool:
        """The clock shows *day*; whether another one has begun."""
        passed, self._looked = 0 if self._looked is None else now - self._looked, now
        self._behind_us = self._behind_us + passed if day < self._day else 0
        if day <= self._day and self._behind_us < DAY:
            return False
        self._day, self._behind_us, self.spent = day, 0, 0
        return True

    def charge(self, octets: int) -> None:
        """Count what crossed the line."""
        self.spent += octets

    @property
    def part(self) -> float:
        """How much of the day's bytes is gone: 1 is all of them."""
        return self.spent / self._bytes_per_day if self._bytes_per_day else 0

    @property
    def is_to_be_noted(self) -> bool:
        """Whether there is news since `noted`: a hundredth of a day's bytes, their end, an hour behind, another day."""
        if not self._bytes_per_day:
            return False
        day, octets, behind_s = self._noted
        return (
            self.spent - octets >= max(self._bytes_per_day // NOTED_PARTS, NOTED_BYTES_MIN)
            or self._behind_us - behind_s * SECOND >= NOTED_EVERY
            or octets < self._bytes_per_day <= self.spent
            or day != self._day
        )

    def noted(self) -> Spent:
        """What the next run is to know; it counts as written down."""
        self._noted = Spent(self._day, self.spent, self._behind_us // SECOND)
        return self._noted
