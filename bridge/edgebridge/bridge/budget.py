"""The daily byte budget of a bridge, and its schedule: spans of the day, open, closed or with a rate of their own.

    22:00-06:00 open          the bridge's own rate
    06:00-08:00 2000          a rate in bytes per second; 0 means no limit
    00:00-24:00 closed        the bridge does not connect, and messages wait

The first span that covers a minute decides; an uncovered minute is open. A span may pass midnight. Minutes are local
time, so an hour that a clock shows twice counts twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from edgebroker.dataclasses import dataclass
from edgebroker.errors import OptionInvalid
from edgebroker.instants import DAY, HOUR, SECOND, Duration, Instant
from edgebroker.limits import KIB

DAY_MINUTES: Final = 24 * 60
OPEN: Final = "open"
CLOSED: Final = "closed"
RATE_MAX: Final = 1_000_000_000
_HOURS: Final = re.compile(r"(\d\d):([0-5]\d)-(\d\d):([0-5]\d)")


class ScheduleSpanInvalid(OptionInvalid):
    """A span of a schedule cannot be used."""


@dataclass(frozen=True, slots=True)
class ScheduleSpan:
    """From the minute `first` of a day to before `last`; `last` before `first` is of the next day."""

    first: int
    last: int
    is_closed: bool = False
    rate_bytes_s: int | None = None
    """None: what the bridge may otherwise; 0: no bound."""

    def covers(self, minute: int) -> bool:
        """Whether *minute* of a day is in it."""
        if self.first < self.last:
            return self.first <= minute < self.last
        return minute >= self.first or minute < self.last

    def __str__(self) -> str:
        """As `parse_span` reads it."""
        rate = OPEN if self.rate_bytes_s is None else str(self.rate_bytes_s)
        return f"{format_minute(self.first)}-{format_minute(self.last)} {CLOSED if self.is_closed else rate}"


DEFAULT_SPAN: Final = ScheduleSpan(0, DAY_MINUTES)
"""What holds where no span is."""


class Schedule:
    """The spans of one bridge."""

    def __init__(self, spans: Sequence[ScheduleSpan] = ()) -> None:
        self.spans = tuple(spans)

    def span(self, minute: int) -> ScheduleSpan:
        """What holds in *minute* of the day."""
        return next((one for one in self.spans if one.covers(minute)), DEFAULT_SPAN)

    def is_closed(self, minute: int) -> bool:
        """Whether nobody is dialled in *minute*."""
        return self.span(minute).is_closed

    def opens_at(self, minute: int) -> int | None:
        """The first minute from *minute* on that is not closed; None: none is."""
        later = ((minute + more) % DAY_MINUTES for more in range(DAY_MINUTES))
        return next((one for one in later if not self.is_closed(one)), None)


def format_minute(minute: int) -> str:
    """*minute* of the day as a clock shows it; 24:00 is its end."""
    return f"{minute // 60:02}:{minute % 60:02}"


def parse_hours(text: str) -> tuple[int, int]:
    """`22:00-06:00`. Raises SpanInvalid."""
    found = _HOURS.fullmatch(text)
    first, last = (int(found[1]) * 60 + int(found[2]), int(found[3]) * 60 + int(found[4])) if found else (-1, -1)
    if not 0 <= first < DAY_MINUTES or last > DAY_MINUTES:
        raise ScheduleSpanInvalid(f"{text[:40]!r} are no hours", "write them as 22:00-06:00, up to 24:00")
    if first == last:
        raise ScheduleSpanInvalid(f"{text!r} is all of the day or nothing of it", "all of it is 00:00-24:00")
    return first, last


def span_of(table: Mapping[str, object]) -> ScheduleSpan:
    """Read a table: `hours`, and `closed` or `rate_bytes_s`. Raises SpanInvalid."""
    mend = 'write hours = "22:00-06:00", and closed = true or rate_bytes_s = 2000'
    for name in table:
        if name not in ("hours", CLOSED, "rate_bytes_s"):
            raise ScheduleSpanInvalid(f"it has {name!r}", mend)
    hours, is_closed, rate = table.get("hours"), table.get(CLOSED, False), table.get("rate_bytes_s")
    if not isinstance(hours, str) or not isinstance(is_closed, bool) or (is_closed and rate is not None):
        raise ScheduleSpanInvalid(
            "it has no hours, or other than true or false for closed, or both closed and a rate", mend
        )
    return parse_span(f"{hours.replace(' ', '')} {CLOSED if is_closed else OPEN if rate is None else rate}")


def parse_span(text: str) -> ScheduleSpan:
    """Read one line of text. Raises SpanInvalid."""
    words = text.split()
    if len(words) != 2:
        raise ScheduleSpanInvalid(
            f"{text[:80]!r} has {len(words)} words", "write HH:MM-HH:MM open, closed or BYTES-A-SECOND"
        )
    first, last = parse_hours(words[0])
    if words[1] in (OPEN, CLOSED):
        return ScheduleSpan(first, last, words[1] == CLOSED)
    if not re.fullmatch(r"[0-9]{1,10}", words[1]) or int(words[1]) > RATE_MAX:
        raise ScheduleSpanInvalid(
            f"{words[1][:40]!r} says nothing of a span", f"write open, closed or 0 to {RATE_MAX:,}"
        )
    return ScheduleSpan(first, last, rate_bytes_s=int(words[1]))


WARN_FRACTION: Final = 0.8
"""The part of a day's bytes from which an operator is told."""
CHECKPOINT_PARTS: Final = 100
CHECKPOINT_BYTES_MIN: Final = 4 * KIB
CHECKPOINT_INTERVAL: Final[Duration] = HOUR
"""Of the time that counts while the clock is behind."""


class LocalTime(NamedTuple):
    """What a clock on the wall shows."""

    day: int
    """Of the local calendar, counted from any."""
    minute: int
    """Of that day."""


class BudgetRecord(NamedTuple):
    """What a run hands to the next one."""

    day: int = -1
    """The latest day that a clock has shown."""
    octets: int = 0
    """Bytes of that day."""
    behind_s: int = 0
    """So long the clock has shown earlier days than that one, while we ran."""


class DailyBudget:
    """Bytes of one day in both directions; 0 a day is no bound.

    A day begins when the clock shows a later one than ever before. A clock that shows an earlier one was wrong, or is:
    what is spent stays spent, until it has shown such days for 24 hours of running time; then it is believed. So a
    gateway that wakes up in 1970 does not begin a day with each boot, and one that was in 2099 once is not shut until
    then.
    """

    __slots__ = ("_behind_us", "_bytes_per_day", "_checkpointed", "_day", "_looked", "spent")

    def __init__(self, bytes_per_day: int = 0) -> None:
        self._bytes_per_day = bytes_per_day
        self._day = -1
        self.spent = 0
        """Bytes of the present day."""
        self._behind_us: Duration = 0
        self._looked: Instant | None = None
        self._checkpointed = BudgetRecord()

    def restore(self, spent: BudgetRecord) -> None:
        """Begin with what an earlier run has left."""
        self._day, self.spent, self._behind_us = spent.day, spent.octets, spent.behind_s * SECOND
        self._checkpointed = spent

    def set_day(self, day: int, now: Instant) -> bool:
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
    def used_fraction(self) -> float:
        """How much of the day's bytes is gone: 1 is all of them."""
        return self.spent / self._bytes_per_day if self._bytes_per_day else 0

    @property
    def needs_checkpoint(self) -> bool:
        """Whether there is news since `noted`: a hundredth of a day's bytes, their end, an hour behind, another day."""
        if not self._bytes_per_day:
            return False
        day, octets, behind_s = self._checkpointed
        return (
            self.spent - octets >= max(self._bytes_per_day // CHECKPOINT_PARTS, CHECKPOINT_BYTES_MIN)
            or self._behind_us - behind_s * SECOND >= CHECKPOINT_INTERVAL
            or octets < self._bytes_per_day <= self.spent
            or day != self._day
        )

    def checkpoint(self) -> BudgetRecord:
        """What the next run is to know; it counts as written down."""
        self._checkpointed = BudgetRecord(self._day, self.spent, self._behind_us // SECOND)
        return self._checkpointed
