"""The byte budget of a link: a long-term rate per second, and a limit per day; and what becomes of events that find no
room in its outbox.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from edgebroker.instants import DAY, Instant
from edgebroker.limits import KIB, MIB
from edgebroker.overlay.traffic_class import BUDGET_SHARES, SHARED, TrafficClass
from edgebroker.tokenbucket import TokenBucket

ROOM_MIN: Final = 1 * KIB
ROOM_MAX: Final = 1 * MIB
_NOTHING: Final[frozenset[TrafficClass]] = frozenset()
_ALL: Final = frozenset(SHARED)


class OutboxFull(StrEnum):
    """What becomes of an event for a peer whose outbox is full."""

    REFUSE = "refuse"
    """Its publisher is refused, here or at another gateway."""
    DROP_NEWEST = "drop-newest"
    """The copy for that peer is dropped; the publisher is acknowledged, and other readers get the event."""


class LinkBudget:
    """The bytes of one link under both limits; 0 means no limit.

    A day ends at midnight of the stored clock: `clock` is the difference between microseconds since 1970 and instants.
    When a clock is corrected, at most one more day begins than in the calendar.
    """

    __slots__ = ("_bucket", "_bytes_per_s", "_day", "_recorded", "bytes_per_day", "clock", "owed_until", "spent")

    def __init__(self, bytes_per_s: int, bytes_per_day: int, now: Instant, clock: int = 0) -> None:
        # A burst of one second: a modem buffers as much anyway.
        self._bucket = TokenBucket(bytes_per_s, bytes_per_s, now) if bytes_per_s else None
        self._bytes_per_s = bytes_per_s
        self.bytes_per_day = bytes_per_day
        self.clock = clock
        self._day = (now + clock) // DAY
        self._recorded = (0, 0)  # the day and its bytes as last written to the journal
        self.spent = 0
        """Bytes of the present day."""
        self.owed_until: Instant = now
        """The shared classes wait until this instant, because more than a second's worth was sent."""

    @property
    def room(self) -> int:
        """Bytes that may be sent at once: a quarter of a second's worth, so that more urgent messages wait no longer,
        and at most the rest of the day's budget.
        """
        day_left = self.bytes_per_day - self.spent if self.bytes_per_day else ROOM_MAX
        pace = self._bytes_per_s // 4 if self._bytes_per_s else ROOM_MAX
        return max(ROOM_MIN, min(day_left, pace))

    def charge(self, octets: int, now: Instant) -> None:
        """Count sent bytes, CONTROL included."""
        self._turn_day(now)
        self.spent += octets
        if self._bucket is not None:
            self.owed_until = now + self._bucket.charge(octets, now)

    def allowed(self, now: Instant) -> frozenset[TrafficClass]:
        """Return the shared classes that may send now. CONTROL always may."""
        if now < self.owed_until:
            return _NOTHING
        if not self.bytes_per_day:
            return _ALL
        self._turn_day(now)
        part = self.spent / self.bytes_per_day
        return frozenset(service for service in SHARED if part < BUDGET_SHARES[service])

    def is_spent(self, service: TrafficClass, now: Instant) -> bool:
        """Return whether the day's budget is spent for *service*."""
        if service is TrafficClass.CONTROL or not self.bytes_per_day:
            return False
        self._turn_day(now)
        return self.spent >= self.bytes_per_day * BUDGET_SHARES[service]

    def next_day(self, now: Instant) -> Instant:
        """Return the instant at which the next day begins."""
        return ((now + self.clock) // DAY + 1) * DAY - self.clock

    def resume(self, day: int, spent: int) -> None:
        """Add the bytes that an earlier run spent on *day*, if that is the present day."""
        self._recorded = (day, spent)
        if day == self._day:
            self.spent += spent

    def take_record(self) -> tuple[int, int] | None:
        """Return the present day and its bytes if they must be written to the journal: on a new day, or after 1 % of
        the limit.
        """
        day, spent = self._recorded
        if not self.bytes_per_day or (self._day == day and self.spent - spent < self.bytes_per_day // 100):
            return None
        self._recorded = (self._day, self.spent)
        return self._recorded

    @property
    def day(self) -> int:
        """The present day, counted since 1970."""
        return self._day

    def _turn_day(self, now: Instant) -> None:
        day = (now + self.clock) // DAY
        if day != self._day:
            self._day = day
            self.spent = 0
