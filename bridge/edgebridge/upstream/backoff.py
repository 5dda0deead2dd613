"""How long to wait before the next attempt: longer and longer, and never all gateways at the same time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from edgebroker.instants import SECOND, Duration

LEAST: Final[Duration] = 1 * SECOND
STAYED: Final[Duration] = 30 * SECOND
"""A connection that lasted as long was a success: what ends sooner is refused in another way."""


class Backoff:
    """Decorrelated jitter: each wait is drawn between LEAST and three times the last one, up to a bound."""

    def __init__(self, most: Duration, chance: Callable[[], float]) -> None:
        """*chance* gives numbers from 0 to below 1."""
        self._most = max(most, LEAST)
        self._chance = chance
        self._last = LEAST

    def next(self) -> Duration:
        """The next wait."""
        drawn = LEAST + int(self._chance() * (3 * self._last - LEAST))
        self._last = min(self._most, drawn)
        return self._last

    def reset(self) -> None:
        """All is well again."""
        self._last = LEAST
