"""How much happens in a minute: averages over one, five and fifteen, as Mosquitto has them in $SYS/broker/load."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp
from typing import Final

from edgebroker.instants import MINUTE, Duration

SPANS: Final = {"1min": MINUTE, "5min": 5 * MINUTE, "15min": 15 * MINUTE}


class Load:
    """Exponentially weighted averages of one counter's rate, in counts per minute. They begin at zero."""

    def __init__(self) -> None:
        self._count = 0
        self._averages = dict.fromkeys(SPANS, 0.0)

    def update(self, count: int, passed: Duration) -> None:
        """The counter stands at *count* now, and *passed*, more than nothing, is the time since the last update."""
        rate = (count - self._count) * MINUTE / passed
        self._count = count
        for name, span in SPANS.items():
            kept = exp(-passed / span)
            self._averages[name] = rate + kept * (self._averages[name] - rate)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """(span, average with two decimals)."""
        return ((name, f"{average:.2f}") for name, average in self._averages.items())
