"""Points and lengths of time. The core never reads a clock: `now` is an argument of every event.

An `Instant` is a whole number of microseconds on a monotonic clock whose zero is arbitrary (a gateway has no
battery-backed clock). A `Duration` is a difference of two instants. Whole numbers keep runs repeatable.
"""

from __future__ import annotations

from typing import Final, TypeAlias

Instant: TypeAlias = int
Duration: TypeAlias = int

MILLISECOND: Duration = 1_000
SECOND: Duration = 1_000_000
MINUTE: Duration = 60 * SECOND
HOUR: Duration = 60 * MINUTE
DAY: Duration = 24 * HOUR

NEVER: Instant = 1 << 62
"""Later than every instant that a clock can show."""

CLOCK_IS_SET_AFTER: Final = 1_767_225_600 * SECOND
"""2026-01-01 in microseconds since 1970. A wall clock that shows an earlier time has not been set since the machine
booted.
"""
