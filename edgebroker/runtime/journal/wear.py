"""The wear of the card: bytes written in a day, and the years until the card's rated cycles are used up.

A gateway has no reliable clock, so a day is 24 hours of running time.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from edgebroker.dataclasses import dataclass
from edgebroker.instants import DAY, HOUR, SECOND, Instant

WEAR_FILE = "wear.json"
DAYS_KEPT = 7
YEAR_DAYS = 365.25

# An ordinary card has no rating. One made for recording has: Samsung rates the PRO Endurance of 128 GB at 43,800 hours
# of Full HD, which is 26 Mbit/s: 512 TB, or 4,000 times its size. We assume an eighth of that.
GIGABYTE = 10**9


@dataclass(frozen=True, slots=True)
class Card:
    """The card of the journal: its size as makers count it, and its rated write cycles."""

    gb: float = 32
    cycles: int = 500


CARD = Card()


@dataclass(frozen=True, slots=True)
class WearTotals:
    """What was written while the gateway ran, and to which card."""

    bytes: int = 0
    running_us: int = 0
    days: tuple[int, ...] = ()
    """The latest whole days of running time, in bytes."""
    day_bytes: int = 0
    """The present day."""
    day_us: int = 0
    card: Card = CARD

    @property
    def bytes_per_day(self) -> float | None:
        """The mean over the days kept and the present one; None before the first hour."""
        span, total = len(self.days) * DAY + self.day_us, sum(self.days) + self.day_bytes
        return total * DAY / span if span >= HOUR else None

    @property
    def years(self) -> float | None:
        """The lifetime of the card at this rate; None if it is unknown."""
        per_day = self.bytes_per_day
        return self.card.gb * GIGABYTE * self.card.cycles / (per_day * YEAR_DAYS) if per_day else None

    def described(self) -> dict[str, float | None]:
        """Returns both, rounded; None if they are unknown."""
        per_day, years = self.bytes_per_day, self.years
        return {
            "bytes_per_day": None if per_day is None else round(per_day),
            "card_years": None if years is None else round(years, 1),
        }

    def plus(self, size: int, span_us: int) -> WearTotals:
        """Returns the totals after *size* more bytes in *span_us*."""
        days, day_bytes, day_us = self.days, self.day_bytes + size, self.day_us + span_us
        if day_us >= DAY:
            days = (*days, day_bytes * DAY // day_us)[-DAYS_KEPT:]
            day_bytes = day_us = 0
        return WearTotals(self.bytes + size, self.running_us + span_us, days, day_bytes, day_us, self.card)


def read_wear(folder: Path) -> WearTotals:
    """Reads the file in *folder*; returns zeros if there is none or it is damaged."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        path = folder / WEAR_FILE
        if not path.is_file():  # to read a FIFO would block
            return WearTotals()
        fields = json.loads(path.read_bytes()[:4_096])
        days = tuple(int(day) for day in fields["days"])
        return WearTotals(
            int(fields["bytes"]),
            int(fields["running_s"]) * SECOND,
            days,
            int(fields["day_bytes"]),
            int(fields["day_s"]) * SECOND,
            Card(float(fields.get("card_gb", CARD.gb)), int(fields.get("card_cycles", CARD.cycles))),
        )
    return WearTotals()


class CardWear:
    """Adds up what a run writes, and saves it in a small file, once an hour and at the end."""

    def __init__(self, folder: Path, card: Card = CARD) -> None:
        self.written = replace(read_wear(folder), card=card)
        self._folder = folder
        self._recorded_at: Instant | None = None
        self._recorded_bytes = 0

    def record(self, now: Instant, written: int, *, is_last: bool = False) -> None:
        """Records that *written* bytes were written in this run so far. Errors of the file are ignored."""
        if self._recorded_at is None:
            self._recorded_at = now
        if not is_last and now - self._recorded_at < HOUR:
            return
        self.written = self.written.plus(written - self._recorded_bytes, now - self._recorded_at)
        self._recorded_at, self._recorded_bytes = now, written
        fields = {
            "bytes": self.written.bytes,
            "running_s": self.written.running_us // SECOND,
            "days": list(self.written.days),
            "day_bytes": self.written.day_bytes,
            "day_s": self.written.day_us // SECOND,
            "card_gb": self.written.card.gb,
            "card_cycles": self.written.card.cycles,
        }
        with suppress(OSError):
            temporary = self._folder / f"{WEAR_FILE}.part"
            temporary.write_text(json.dumps(fields) + "\n", encoding="utf-8")
            os.replace(temporary, self._folder / WEAR_FILE)
