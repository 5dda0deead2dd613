"""How long to wait before the next dial: twice as long after each that came to nothing, and never all at once."""

from __future__ import annotations

from typing import Final

from edgebroker.instants import MILLISECOND, SECOND, Duration, Instant

DELAY_MIN: Final[Duration] = 500 * MILLISECOND
"""A peer that restarts listens again after 250 ms."""
DELAY_MAX: Final[Duration] = 60 * SECOND
"""A site whose uplink was down all night is back a minute after it at the latest."""
HURRY: Final[Duration] = 200 * MILLISECOND
"""Who hears of others that the peer is back dials within this, and not all at once."""
STEADY: Final[Duration] = 30 * SECOND
"""A connection that lived so long was a good one: after it the first dial comes soon again. One that flaps is not."""


class BackOff:
    """The delays of one link.

    A delay is drawn between its half and its whole, so that the gateways of a site that lost its uplink do not dial in
    step. Beginning with the eighth failure in a row a link dials at most twice a minute.
    """

    __slots__ = ("_failures",)

    def __init__(self) -> None:
        self._failures = 0

    def next_delay(self, chance: float) -> Duration:
        """How long to wait now. *chance* is a random number from 0 to 1."""
        whole = min(DELAY_MAX, DELAY_MIN << min(self._failures, 7))
        self._failures += 1
        return whole // 2 + int(whole // 2 * chance)

    def ended(self, opened_at: Instant, now: Instant) -> None:
        """A connection that was opened at *opened_at* is over."""
        if now - opened_at >= STEADY:
            self._failures = 0
