"""The send window to a peer keeps few bytes in flight, and yet the connection is never idle."""

from __future__ import annotations

from collections import deque

import pytest

from edgebroker.instants import MILLISECOND, SECOND, Duration, Instant
from edgebroker.limits import KIB
from edgebroker.runtime.peers.connection import WINDOW_FIRST, WINDOW_MIN, SendWindow


class Wire:
    """Somebody who always has more to say, and a line that carries *per_s* bytes and acknowledges after *trip*."""

    def __init__(self, per_s: int, trip: Duration) -> None:
        self.per_s = per_s
        self.trip = trip
        self.now: Instant = 0
        self.window = SendWindow(0)
        self.written = self.acknowledged = 0
        self.most = 0
        """What stood in the queue, beyond a round trip's worth."""
        self._free: Instant = 0  # when the line has carried all that was written
        self._acks: deque[tuple[Instant, int]] = deque()

    @property
    def under_way(self) -> int:
        while self._acks and self._acks[0][0] <= self.now:
            self.acknowledged += self._acks.popleft()[1]
        return self.written - self.acknowledged

    def run(self, duration: Duration) -> int:
        """Returns how many bytes were carried."""
        until, before = self.now + duration, self.acknowledged
        self.most = 0
        while self.now < until:
            while room := min(max(1_000, self.per_s // 200), self.window.writable_bytes(self.now)):
                self.written += room
                self._free = max(self._free, self.now) + room * SECOND // self.per_s
                self._acks.append((self._free + self.trip, room))
                self.most = max(self.most, self.under_way - self.per_s * self.trip // SECOND)
                if self.window.record_written(room, self.now):
                    self.window.measure(self.under_way, self.trip, self.now)
            self.now += self.window.measure_after
            self.window.measure(self.under_way, self.trip, self.now)
        return self.acknowledged - before


@pytest.mark.parametrize("trip", [MILLISECOND, 40 * MILLISECOND, 600 * MILLISECOND])
@pytest.mark.parametrize("per_s", [1_000, 20_000, 5_000_000])
def test_a_line_is_full_and_what_is_urgent_does_not_wait_long(per_s: int, trip: Duration) -> None:
    wire = Wire(per_s, trip)
    wire.run(30 * SECOND)  # at 1,000 bytes a second 16 KiB take so long, once
    carried = wire.run(10 * SECOND)
    assert carried >= 9.5 * per_s
    assert wire.most <= max(2 * WINDOW_MIN, per_s * (300 * MILLISECOND + trip) // SECOND + 2_000)


def test_a_line_that_becomes_slow_or_fast_is_noticed() -> None:
    wire = Wire(100_000, 40 * MILLISECOND)
    wire.run(10 * SECOND)
    wire.per_s = 2_000
    wire.run(60 * SECOND)
    assert wire.window.window == WINDOW_MIN
    wire.per_s = 1_000_000
    wire.run(10 * SECOND)
    assert wire.run(10 * SECOND) >= 9 * wire.per_s


def test_a_window_is_worth_nothing_after_a_pause() -> None:
    wire = Wire(10_000_000, 40 * MILLISECOND)
    wire.run(10 * SECOND)
    assert wire.window.window > 100 * KIB
    wire.now += 15 * SECOND
    wire.window.measure(wire.under_way, wire.trip, wire.now)
    assert wire.window.writable_bytes(wire.now) == WINDOW_FIRST


def test_after_a_pause_there_is_room_although_nobody_has_looked_since() -> None:
    """Nothing is written without room, not even a ping, and nobody looks until something is written."""
    window = SendWindow(0)
    for now in range(0, 8 * MILLISECOND, MILLISECOND):  # all of it is acknowledged within a millisecond
        window.record_written(window.writable_bytes(now), now)
        window.measure(window.window, 0, now)
        window.measure(0, 0, now + 1)
    assert not window.record_written(window.window // 2, SECOND)
    now = 15 * SECOND
    assert 0 < window.writable_bytes(now) < WINDOW_FIRST
    assert window.record_written(1, now)
    window.measure(1, 0, now)
    assert window.writable_bytes(now) == WINDOW_FIRST - 1


def test_a_burst_that_is_acknowledged_at_once_does_not_open_it_wide() -> None:
    window = SendWindow(0)
    window.record_written(WINDOW_FIRST, 0)
    window.measure(WINDOW_FIRST, 0, 0)
    window.measure(0, 0, 1)
    assert window.window == 2 * WINDOW_FIRST
