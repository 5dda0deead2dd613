"""The hours of a bridge: spans of the day, and what may go out in each.

    22:00-06:00 open          as the bridge's own rate says
    06:00-08:00 2000          so many bytes a second; 0 is as many as there are
    00:00-24:00 closed        nobody is dialled, and what goes out waits

The first span that covers a minute decides; a minute that none covers is open. A span may pass midnight. Minutes are
those of the local day, as a clock on the wall shows them: an hour that it shows twice is in a span twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.errors import EdgebrokerError

DAY_MINUTES: Final = 24 * 60
OPEN: Final = "open"
CLOSED: Final = "closed"
RATE_MAX: Final = 1_000_000_000
_HOURS: Final = re.compile(r"(\d\d):([0-5]\d)-(\d\d):([0-5]\d)")


class SpanInvalid(EdgebrokerError):
    """A span that cannot be used: (reason, how to mend it)."""

    def __init__(self, reason: str, mend: str) -> None:
        super().__init__(f"{reason}; {mend}")
        self.reason = reason
        self.mend = mend


@dataclass(frozen=True, slots=True)
class Span:
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
        return f"{hour(self.first)}-{hour(self.last)} {CLOSED if self.is_closed else rate}"


OTHERWISE: Final = Span(0, DAY_MINUTES)
"""What holds where no span is."""


class Schedule:
    """The spans of one bridge."""

    def __init__(self, spans: Sequence[Span] = ()) -> None:
        self.spans = tuple(spans)

    def span(self, minute: int) -> Span:
        """What holds in *minute* of the day."""
        return next((one for one in self.spans if one.covers(minute)), OTHERWISE)

    def is_closed(self, minute: int) -> bool:
        """Whether nobody is dialled in *minute*."""
        return self.span(minute).is_closed

    def opens_at(self, minute: int) -> int | None:
        """The first minute from *minute* on that is not closed; None: none is."""
        later = ((minute + more) % DAY_MINUTES for more in range(DAY_MINUTES))
        return next((one for one in later if not self.is_closed(one)), None)


def hour(minute: int) -> str:
    """*minute* of the day as a clock shows it; 24:00 is its end."""
    return f"{minute // 60:02}:{minute % 60:02}"


def parse_hours(text: str) -> tuple[int, int]:
    """`22:00-06:00`. Raises SpanInvalid."""
    found = _HOURS.fullmatch(text)
    first, last = (int(found[1]) * 60 + int(found[2]), int(found[3]) * 60 + int(found[4])) if found else (-1, -1)
    if not 0 <= first < DAY_MINUTES or last > DAY_MINUTES:
        raise SpanInvalid(f"{text[:40]!r} are no hours", "write them as 22:00-06:00, up to 24:00")
    if first == last:
        raise SpanInvalid(f"{text!r} is all of the day or nothing of it", "all of it is 00:00-24:00")
    return first, last


def span_of(table: Mapping[str, object]) -> Span:
    """Read a table: `hours`, and `closed` or `rate_bytes_s`. Raises SpanInvalid."""
    mend = 'write hours = "22:00-06:00", and closed = true or rate_bytes_s = 2000'
    for name in table:
        if name not in ("hours", CLOSED, "rate_bytes_s"):
            raise SpanInvalid(f"it has {name!r}", mend)
    hours, is_closed, rate = table.get("hours"), table.get(CLOSED, False), table.get("rate_bytes_s")
    if not isinstance(hours, str) or not isinstance(is_closed, bool) or (is_closed and rate is not None):
        raise SpanInvalid("it has no hours, or other than true or false for closed, or both closed and a rate", mend)
    return parse_span(f"{hours.replace(' ', '')} {CLOSED if is_closed else OPEN if rate is None else rate}")


def parse_span(text: str) -> Span:
    """Read one line of text. Raises SpanInvalid."""
    words = text.split()
    if len(words) != 2:
        raise SpanInvalid(f"{text[:80]!r} has {len(words)} words", "write HH:MM-HH:MM open, closed or BYTES-A-SECOND")
    first, last = parse_hours(words[0])
    if words[1] in (OPEN, CLOSED):
        return Span(first, last, words[1] == CLOSED)
    if not re.fullmatch(r"[0-9]{1,10}", words[1]) or int(words[1]) > RATE_MAX:
        raise SpanInvalid(f"{words[1][:40]!r} says nothing of a span", f"write open, closed or 0 to {RATE_MAX:,}")
    return Span(first, last, rate_bytes_s=int(words[1]))
