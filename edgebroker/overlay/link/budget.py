"""What a link may spend: so many bytes a second in the long run, and so many a day."""

from __future__ import annotations

from typing import Final

from edgebroker.instants import DAY, Instant
from edgebroker.limits import KIB, MIB
from edgebroker.overlay.traffic_class import BUDGET_SHARES, SHARED, TrafficClass
from edgebroker.tokenbucket import TokenBucket

ROOM_MIN: Final = 1 * KIB
ROOM_MAX: Final = 1 * MIB
_NOTHING: Final[frozenset[TrafficClass]] = frozenset()
_ALL: Final = frozenset(SHARED)


class LinkBudget:
    """The bytes of one link, both ways of counting; 0 is no bound.

    A day ends at midnight of the stored clock: `clock` is what to add to an instant for microseconds since 1970. A
    clock that is set right begins another day at most once more than the calendar does.
    """

    __slots__ = ("_bucket", "_bytes_per_s", "_day", "_noted", "bytes_per_day", "clock", "owed_until", "spent")

    def __init__(self, bytes_per_s: int, bytes_per_day: int, now: Instant, clock: int = 0) -> None:
        # A burst of one second: what a modem takes at once anyway.
        self._bucket = TokenBucket(bytes_per_s, bytes_per_s, now) if bytes_per_s else None
        self._bytes_per_s = bytes_per_s
        self.bytes_per_day = bytes_per_day
        self.clock = clock
        self._day = (now + clock) // DAY
        self._noted = (0, 0)  # day and bytes in the journal
        self.spent = 0
        """Bytes of the present day."""
        self.owed_until: Instant = now
        """Until then the shared classes wait: more was sent than a second's worth."""

    @property
    def room(self) -> int:
        """So many bytes may be sent at once: a quarter of a second's worth, that what is more urgent waits no longer,
        and what is left of the day.
        """
        left = self.bytes_per_day - self.spent if self.bytes_per_day else ROOM_MAX
        pace = self._bytes_per_s // 4 if self._bytes_per_s else ROOM_MAX
        return max(ROOM_MIN, min(left, pace))

    def charge(self, octets: int, now: Instant) -> None:
        """Count what was sent, control too."""
        self._turn_day(now)
        self.spent += octets
        if self._bucket is not None:
            self.owed_until = now + self._bucket.charge(octets, now)

    def allowed(self, now: Instant) -> frozenset[TrafficClass]:
        """The shared classes that may send now. CONTROL always may."""
        if now < self.owed_until:
            return _NOTHING
        if not self.bytes_per_day:
            return _ALL
        self._turn_day(now)
        part = self.spent / self.bytes_per_day
        return frozenset(service for service in SHARED if part < BUDGET_SHARES[service])

    def is_spent(self, service: TrafficClass, now: Instant) -> bool:
        """Whether the day's bytes are gone as far as *service* is concerned."""
        if service is TrafficClass.CONTROL or not self.bytes_per_day:
            return False
        self._turn_day(now)
        return self.spent >= self.bytes_per_day * BUDGET_SHARES[service]

    def next_day(self, now: Instant) -> Instant:
        """When the next day begins."""
        return ((now + self.clock) // DAY + 1) * DAY - self.clock

    def resume(self, day: int, spent: int) -> None:
        """Begin with what an earlier run had spent on *day*; of another day it does not count."""
        self._noted = (day, spent)
        if day == self._day:
            self.spent += spent

    def take_record(self) -> tuple[int, int] | None:
        """The present day and what it has spent, if the journal has to know: another day, or a hundredth of it more."""
        day, spent = self._noted
        if not self.bytes_per_day or (self._day == day and self.spent - spent < self.bytes_per_day // 100):
            return None
        self._noted = (self._day, self.spent)
        return self._noted

    @property
    def day(self) -> int:
        """The present day, counted since 1970."""
        return self._day

    def _turn_day(self, now: Instant) -> None:
        day = (now + self.clock) // DAY
        if day != self._day:
            self._day = day
            self.spent = 0
