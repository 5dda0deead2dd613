"""The traffic shaper of a bridge: rate limits, daily byte budget and schedule decide when the next message may go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edgebridge.bridge.budget import WARN_FRACTION, DailyBudget, LocalTime, Schedule, ScheduleSpan, format_minute
from edgebridge.bridge.counters import ByteCounter
from edgebroker.dataclasses import dataclass
from edgebroker.instants import SECOND, Instant
from edgebroker.tokenbucket import Meter


@dataclass(frozen=True, slots=True)
class ShaperOptions:
    """The settings of one bridge, as far as its costs are concerned; 0 is no bound."""

    rate_bytes_s: int = 0
    rate_messages_s: int = 0
    bytes_per_day: int = 0
    schedule: Sequence[ScheduleSpan] = ()
    record_bytes: int = 0
    """What TLS adds to each write."""

    @property
    def is_unlimited(self) -> bool:
        """Whether messages go out as they come, at any time."""
        return not (self.rate_bytes_s or self.rate_messages_s or self.bytes_per_day or self.schedule)


UNSHAPED: Final = ShaperOptions()


class Shaper:
    """Counts what crosses the line to the remote, and says what may."""

    def __init__(self, shaper_options: ShaperOptions) -> None:
        self.shaper_options = shaper_options
        self.daily_budget = DailyBudget(shaper_options.bytes_per_day)
        self.written, self.read = ByteCounter(), ByteCounter()
        """What crossed the line since the start: writes and reads, and their bytes."""
        self.day_began: Instant | None = None
        """When today's counts begin; None: before a clock was looked at."""
        self.blocked_until: Instant = 0
        """Until then messages wait: more was sent than the rate gives."""
        self.rate_bytes_s = shaper_options.rate_bytes_s
        """Of this minute; 0: no bound."""
        self._schedule = Schedule(shaper_options.schedule)
        self._local_time: LocalTime | None = None
        self._meter = Meter(shaper_options.rate_messages_s, shaper_options.rate_bytes_s, 0)
        self._overhead_due_at: Instant = 0  # until then what else is written has had its half of the rate
        self.batched_bytes = 0
        """Of batches that will be sent: they are as good as spent, and the rate knows nothing of them yet."""
        self._charged_bytes = 0  # of messages that were let through, and are not written yet

    # -- the clock on the wall ------------------------------------------------------------------------------------

    def set_local_time(self, moment: LocalTime, now: Instant) -> bool:
        """It shows *moment*; whether another day has begun."""
        self._local_time = moment
        rate = self._schedule.span(moment.minute).rate_bytes_s
        rate = self.shaper_options.rate_bytes_s if rate is None else rate
        if rate != self.rate_bytes_s:
            self.rate_bytes_s, self.blocked_until = rate, now
            self._meter = Meter(self.shaper_options.rate_messages_s, rate, now)
        is_another_day = self.daily_budget.set_day(moment.day, now)
        if is_another_day or self.day_began is None:
            self.day_began = now
            self.written.begin_day()
            self.read.begin_day()
        return is_another_day

    @property
    def is_closed(self) -> bool:
        """Whether nobody is to be dialled now. Before a clock was looked at, whoever has hours is closed."""
        if self._local_time is None:
            return bool(self.shaper_options.schedule)
        return self._schedule.is_closed(self._local_time.minute)

    @property
    def closed_until(self) -> str:
        """`22:00`; empty: it is open, or it never is."""
        if self._local_time is None or not self.is_closed:
            return ""
        minute = self._schedule.opens_at(self._local_time.minute)
        return "" if minute is None else format_minute(minute)

    # -- what crosses the line ------------------------------------------------------------------------------------

    def must_wait(self, now: Instant) -> bool:
        """Whether the next message has to wait."""
        return now < self.blocked_until or self.is_budget_spent

    @property
    def is_budget_spent(self) -> bool:
        """Whether the day's bytes are, with those that are not written yet."""
        return self._are_spent(self._charged_bytes + self.batched_bytes)

    @property
    def must_hold_batches(self) -> bool:
        """Whether not even what is gathered may go: other bytes have taken its place."""
        return self._are_spent(self._charged_bytes)

    def _are_spent(self, octets: int) -> bool:
        return 0 < self.shaper_options.bytes_per_day <= self.daily_budget.spent + octets

    def charge(self, octets: int, now: Instant) -> None:
        """A message of so many bytes is let through."""
        self._charged_bytes += octets
        self.blocked_until = now + self._meter.charge(1, octets, now)

    def record_write(self, octets: int, now: Instant) -> None:
        """So many bytes are written, with the messages that were paid for.

        The rest, answers and the like, is due now, but takes half of the rate at most: who is sent much still says what
        he has to say.
        """
        self._count(self.written, octets)
        rest, self._charged_bytes = max(0, octets - self._charged_bytes), 0
        if rest and self.rate_bytes_s and now >= self._overhead_due_at:
            self.blocked_until = now + self._meter.charge(0, rest, now)
            self._overhead_due_at = now + 2 * rest * SECOND // self.rate_bytes_s

    def record_read(self, octets: int) -> None:
        """So many bytes came."""
        self._count(self.read, octets)

    def _count(self, cell: ByteCounter, octets: int) -> None:
        octets += self.shaper_options.record_bytes
        cell.messages += 1
        cell.bytes += octets
        self.daily_budget.charge(octets)

    # -- what the next run, and an operator, is to know -----------------------------------------------------------

    @property
    def warning(self) -> str:
        """What an operator is to be told of the day's bytes; empty: nothing. It does not change with every byte."""
        if self.is_budget_spent:
            return (
                f"the {self.shaper_options.bytes_per_day:,} bytes of the day are spent: what goes out waits until 00:00"
            )
        if self.daily_budget.used_fraction >= WARN_FRACTION:
            return f"{WARN_FRACTION:.0%} of the {self.shaper_options.bytes_per_day:,} bytes of the day are spent"
        return ""

    def described(self) -> dict[str, object]:
        """For programs."""
        return {
            "rate_bytes_s": self.rate_bytes_s or None,
            "rate_messages_s": self.shaper_options.rate_messages_s or None,
            "bytes_per_day": self.shaper_options.bytes_per_day or None,
            "spent": self.daily_budget.spent,
            "warning": self.warning,
            "schedule": [str(span) for span in self.shaper_options.schedule],
        }
