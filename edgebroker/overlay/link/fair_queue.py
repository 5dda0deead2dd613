"""Start-time fair queueing by weight (Goyal, Vin and Cheng, 1996): which traffic class sends next.

Each class has a clock that what it sends moves on, the slower the more weight it has. The one whose clock is behind
sends next. A class that had nothing to send does not save up: it begins where the others are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edgebroker.overlay.traffic_class import WEIGHTS, TrafficClass

_COSTS: Final = {TrafficClass.CONTROL: 0} | {
    service: max(WEIGHTS.values()) // weight for service, weight in WEIGHTS.items()
}
"""What a byte of each class moves its clock on."""


class FairQueue:
    """The clocks of the classes that share one link."""

    __slots__ = ("_clocks", "_now")

    def __init__(self) -> None:
        self._clocks = dict.fromkeys(_COSTS, 0)
        self._now = 0

    def choose(self, ready: Sequence[TrafficClass]) -> TrafficClass:
        """Who of *ready*, which is not empty, sends next. CONTROL is asked for alone."""
        clocks, now = self._clocks, self._now
        chosen = ready[0]
        if len(ready) > 1:
            chosen = min(ready, key=lambda service: (max(clocks[service], now), service))
        self._now = max(clocks[chosen], now)
        return chosen

    def charge(self, service: TrafficClass, octets: int) -> None:
        """*service*, the one chosen last, sent so much."""
        self._clocks[service] = self._now + octets * _COSTS[service]
