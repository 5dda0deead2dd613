"""Measures the lag of the event loop: how late a timer of 100 ms fires.

The timer runs always, so that a stall that is over can still be seen. Tasks that must run regularly, and must not run
while the loop hangs (the watchdog, the operator's log), are called by the same timer.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import Final

BEAT_S: Final = 0.1
"""The period of the timer. A stall is measured if a beat of the timer is due during it: every second one of 50 ms. An
idle gateway takes 0.1 % of a core, beats included."""
WINDOW_S: Final = 60
"""The period that `recent_lag` covers: one minute, so that an alarm ends a minute after its cause."""
LAG_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of the histogram's buckets. 5 ms is what an event may wait for maintenance; 1 s is a sick machine."""


class LoopLagMonitor:
    """The lag of all beats so far as a histogram, and each lag of the last minute."""

    def __init__(self) -> None:
        self.counts = [0] * (len(LAG_BOUNDS_S) + 1)
        self.sum_s = 0.0
        self._recent: deque[float] = deque(maxlen=int(WINDOW_S / BEAT_S))
        self._on_beat: list[Callable[[], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def start(self) -> None:
        """Start the timer on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + BEAT_S
        self._timer = self._loop.call_at(self._due, self._beat)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_each_beat(self, *tasks: Callable[[], None]) -> None:
        """Call *tasks* at each beat from now on, in this order. They must be quick."""
        self._on_beat.extend(tasks)

    def record(self, late_s: float) -> None:
        """Record one beat that was *late_s* seconds late."""
        self.counts[bisect_left(LAG_BOUNDS_S, late_s)] += 1
        self.sum_s += late_s
        self._recent.append(late_s)

    @property
    def beats_recent(self) -> int:
        """The number of beats that `recent_lag` covers."""
        return len(self._recent)

    def recent_lag(self) -> tuple[float, float, float]:
        """The median, the 99th percentile and the maximum lag of the last minute, in seconds; zeros before the first
        beat.
        """
        if not self._recent:
            return 0.0, 0.0, 0.0
        ordered = sorted(self._recent)
        last = len(ordered) - 1
        return ordered[last // 2], ordered[last * 99 // 100], ordered[last]

    def _beat(self) -> None:
        assert self._loop is not None
        now = self._loop.time()
        self.record(max(now - self._due, 0.0))
        # Relative to now, not to the last due time: after a stall of a second there is one late beat, not ten.
        self._due = now + BEAT_S
        self._timer = self._loop.call_at(self._due, self._beat)
        for task in self._on_beat:
            try:
                task()
            except Exception as error:
                self._loop.call_exception_handler({"message": "edgebroker: a regular duty failed", "exception": error})
