"""Traffic classes: the order in which kinds of traffic use one uplink, and the queueing that shares it by weight.

CONTROL is sent before everything. The others share by weight, so that none starves: while all of them have messages to
send, LIVE gets 16 of 23 bytes and LOGS one. As a daily byte budget runs out, the classes stop one after the other, LOGS
first and LIVE last; CONTROL is counted but never stopped, because no link works without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final


class TrafficClass(IntEnum):
    """The class of a message, the most urgent first."""

    CONTROL = 0
    """Routing state, and the signals of the link itself."""
    LIVE = 1
    """Publications as they arrive."""
    BACKLOG = 2
    """Publications that waited for a connection or for room."""
    BULK = 3
    """Large images, in pieces."""
    LOGS = 4
    """Delivery logs on their way to the analytics."""


SHARED: Final = (TrafficClass.LIVE, TrafficClass.BACKLOG, TrafficClass.BULK, TrafficClass.LOGS)
"""The classes that share by weight."""
WEIGHTS: Final = {TrafficClass.LIVE: 16, TrafficClass.BACKLOG: 4, TrafficClass.BULK: 2, TrafficClass.LOGS: 1}
"""The ratio of bytes while all classes have messages to send. The backlog of one hour is sent in 5 hours beside live
traffic that takes four fifths of the link, and at once if that takes less.
"""
BUDGET_SHARES: Final = {
    TrafficClass.LIVE: 1.0,
    TrafficClass.BACKLOG: 0.9,
    TrafficClass.BULK: 0.7,
    TrafficClass.LOGS: 0.5,
}
"""Class -> the part of a day's bytes, spent by all classes, up to which it may send."""
_COSTS: Final = {TrafficClass.CONTROL: 0} | {
    service: max(WEIGHTS.values()) // weight for service, weight in WEIGHTS.items()
}
"""The advance of a class's clock per byte."""


class FairQueue:
    """Start-time fair queueing by weight (Goyal, Vin and Cheng, 1996): chooses the traffic class that sends next.

    Each class has a virtual clock that advances with the bytes it sends, more slowly the more weight it has. The class
    whose clock is least sends next. An idle class does not accumulate credit: its clock starts at that of the others.
    """

    __slots__ = ("_clocks", "_now")

    def __init__(self) -> None:
        self._clocks = dict.fromkeys(_COSTS, 0)
        self._now = 0

    def choose(self, ready: Sequence[TrafficClass]) -> TrafficClass:
        """Return the class of *ready*, which is not empty, that sends next. CONTROL is always passed alone."""
        clocks, now = self._clocks, self._now
        chosen = ready[0]
        if len(ready) > 1:
            chosen = min(ready, key=lambda service: (max(clocks[service], now), service))
        self._now = max(clocks[chosen], now)
        return chosen

    def charge(self, service: TrafficClass, octets: int) -> None:
        """Charge the bytes that *service*, the class chosen last, has sent."""
        self._clocks[service] = self._now + octets * _COSTS[service]
