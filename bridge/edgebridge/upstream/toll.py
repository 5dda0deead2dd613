"""What a bridge may send at the moment: its rate, its day's bytes and its hours together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edgebridge.upstream.costs import Cell
from edgebridge.upstream.purse import WARNED, Moment, Purse
from edgebridge.upstream.schedule import Schedule, Span, hour
from edgebroker.dataclasses import dataclass
from edgebroker.instants import SECOND, Instant
from edgebroker.tokenbucket import Meter


@dataclass(frozen=True, slots=True)
class Dues:
    """The settings of one bridge, as far as its costs are concerned; 0 is no bound."""

    rate_bytes_s: int = 0
    rate_messages_s: int = 0
    bytes_per_day: int = 0
    schedule: Sequence[Span] = ()
    record_bytes: int = 0
    """What TLS adds to each write."""

    @property
    def are_none(self) -> bool:
        """Whether messages go out as they come, at any time."""
        return not (self.rate_bytes_s or self.rate_messages_s or self.bytes_per_day or self.schedule)


NOTHING: Final = Dues()


class Toll:
    """Counts what crosses the line to the remote, and says what may."""

    def __init__(self, dues: Dues) -> None:
        self.dues = dues
        self.purse = Purse(dues.bytes_per_day)
        self.written, self.read = Cell(), Cell()
        """What crossed the line since the start: writes and reads, and their bytes."""
        self.day_began: Instant | None = None
        """When today's counts begin; None: before a clock was looked at."""
        self.owed_until: Instant = 0
        """Until then messages wait: more was sent than the rate gives."""
        self.rate_bytes_s = dues.rate_bytes_s
        """Of this minute; 0: no bound."""
        self._schedule = Schedule(dues.schedule)
        self._moment: Moment | None = None
        self._meter = Meter(dues.rate_messages_s, dues.rate_bytes_s, 0)
        self._rest_at: Instant = 0  # until then what else is written has had its half of the rate
        self.gathered_bytes = 0
        """Of batches that will be sent: they are as good as spent, and the rate knows nothing of them yet."""
        self._paid_bytes = 0  # of messages that were let through, and are not written yet

    # -- the clock on the wall ------------------------------------------------------------------------------------

    def clock(self, moment: Moment, now: Instant) -> bool:
        """It shows *moment*; whether another day has begun."""
        self._moment = moment
        rate = self._schedule.span(moment.minute).rate_bytes_s
        rate = self.dues.rate_bytes_s if rate is None else rate
        if rate != self.rate_bytes_s:
            self.rate_bytes_s, self.owed_until = rate, now
            self._meter = Meter(self.dues.rate_messages_s, rate, now)
        is_another_day = self.purse.clock(moment.day, now)
        if is_another_day or self.day_began is None:
            self.day_began = now
            self.written.begin_day()
            self.read.begin_day()
        return is_another_day

    @property
    def is_closed(self) -> bool:
        """Whether nobody is to be dialled now. Before a clock was looked at, whoever has hours is closed."""
        if self._moment is None:
            return bool(self.dues.schedule)
        return self._schedule.is_closed(self._moment.minute)

    @property
    def closed_until(self) -> str:
        """`22:00`; empty: it is open, or it never is."""
        if self._moment is None or not self.is_closed:
            return ""
        minute = self._schedule.opens_at(self._moment.minute)
        return "" if minute is None else hour(minute)

    # -- what crosses the line ------------------------------------------------------------------------------------

    def holds(self, now: Instant) -> bool:
        """Whether the next message has to wait."""
        return now < self.owed_until or self.is_spent

    @property
    def is_spent(self) -> bool:
        """Whether the day's bytes are, with those that are not written yet."""
        return self._are_spent(self._paid_bytes + self.gathered_bytes)

    @property
    def holds_batches(self) -> bool:
        """Whether not even what is gathered may go: other bytes have taken its place."""
        return self._are_spent(self._paid_bytes)

    def _are_spent(self, octets: int) -> bool:
        return 0 < self.dues.bytes_per_day <= self.purse.spent + octets

    def pay(self, octets: int, now: Instant) -> None:
        """A message of so many bytes is let through."""
        self._paid_bytes += octets
        self.owed_until = now + self._meter.charge(1, octets, now)

    def wrote(self, octets: int, now: Instant) -> None:
        """So many bytes are written, with the messages that were paid for.

        The rest, answers and the like, is due now, but takes half of the rate at most: who is sent much still says what
        he has to say.
        """
        self._count(self.written, octets)
        rest, self._paid_bytes = max(0, octets - self._paid_bytes), 0
        if rest and self.rate_bytes_s and now >= self._rest_at:
            self.owed_until = now + self._meter.charge(0, rest, now)
            self._rest_at = now + 2 * rest * SECOND // self.rate_bytes_s

    def heard(self, octets: int) -> None:
        """So many bytes came."""
        self._count(self.read, octets)

    def _count(self, cell: Cell, octets: int) -> None:
        octets += self.dues.record_bytes
        cell.messages += 1
        cell.bytes += octets
        self.purse.charge(octets)

    # -- what the next run, and an operator, is to know -----------------------------------------------------------

    @property
    def warning(self) -> str:
        """What an operator is to be told of the day's bytes; empty: nothing. It does not change with every byte."""
        if self.is_spent:
            return f"the {self.dues.bytes_per_day:,} bytes of the day are spent: what goes out waits until 00:00"
        if self.purse.part >= WARNED:
            return f"{WARNED:.0%} of the {self.dues.bytes_per_day:,} bytes of the day are spent"
        return ""

    def described(self) -> dict[str, object]:
        """For programs."""
        return {
            "rate_bytes_s": self.rate_bytes_s or None,
            "rate_messages_s": self.dues.rate_messages_s or None,
            "bytes_per_day": self.dues.bytes_per_day or None,
            "spent": self.purse.spent,
            "warning": self.warning,
            "schedule": [str(span) for span in self.dues.schedule],
        }
