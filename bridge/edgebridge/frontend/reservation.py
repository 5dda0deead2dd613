"""The numbers that a run of a gateway may give: those of publishers and questions, which others remember."""

from __future__ import annotations

from typing import Final

from edgebridge.frontend.keeping import Keeping
from edgebroker.instants import SECOND, Instant
from edgebroker.overlay.link.records import StoredLinks, run_record
from edgebroker.overlay.numbers import Numbers

NUMBERS_RESERVED: Final = 16_384
"""Numbers that the journal is told of ahead of need: a restart leaves out as many at most. While half of them are left
the next are reserved; that record need not be on disk before they are given, for one commit sees fewer."""


class Reservation:
    """What the journal knows of this run's numbers. No two runs give the same one to others.

    The first reservation of a run must be on disk before peers are met. A run that ends before that leaves no trace,
    so the next begins with the same numbers; peers would take its events for known ones, and its questions too.
    """

    def __init__(self, keeping: Keeping, stored: StoredLinks, now: Instant) -> None:
        """*stored*: what an earlier run left; `keeping.clock` is set."""
        self.boot = max(stored.run + 1, (now + keeping.clock) // SECOND)
        """Grows with every run."""
        by_the_clock = self.boot * NUMBERS_RESERVED  # where the journal does not know what was given
        self.first = max(stored.numbers, by_the_clock) if stored.is_damaged else stored.numbers or by_the_clock
        """Where the run's numbers begin."""
        self._keeping = keeping
        self._end = 0
        self._lsn = 0

    @property
    def is_on_disk(self) -> bool:
        """Whether peers may be met."""
        return self._lsn <= self._keeping.synced

    def begin(self, numbers: Numbers, now: Instant) -> None:
        """The first reservation, which somebody waits for."""
        self._reserve(numbers, True, now)

    def go_on(self, numbers: Numbers, now: Instant) -> None:
        """See that the journal knows of the numbers that are given next."""
        if numbers.given + NUMBERS_RESERVED // 2 > self._end:
            self._reserve(numbers, False, now)

    def record(self) -> bytes:
        """What the journal has to know, said again."""
        return run_record(self.boot, self._end)

    def _reserve(self, numbers: Numbers, waits: bool, now: Instant) -> None:
        if self._keeping.journal is not None:
            self._end = numbers.given + NUMBERS_RESERVED
            lsn = self._keeping.append(self.record(), waits, now)
            self._lsn = lsn if waits else self._lsn
