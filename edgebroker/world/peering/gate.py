"""How much may be under way to a peer: so much that its line is never idle, and no more, for what is said next waits
behind it.

A kernel takes all that its buffer holds, megabytes on a long fast line, and there no class goes before another. So a
line asks how much of what it wrote has not been acknowledged by the peer's kernel, be it here, in a modem or in the
air. Beyond three quarters of the *window* the gate shuts, and opens when half of it is left. What was acknowledged
since it was shut first, in a round trip or more, tells the window: what the line carries in HEADWAY and two round
trips. So it grows where nothing but the window bounds what is carried, twofold at most each time; and a line that is
full has half a window that is more than a round trip's worth. After a pause it begins anew.
"""

from __future__ import annotations

from typing import Final

from edgebroker.instants import MILLISECOND, NEVER, SECOND, Duration, Instant
from edgebroker.limits import KIB

WINDOW_FIRST: Final = 16 * KIB
"""TCP sends 14 KB before it hears anything (RFC 6928)."""
WINDOW_MIN: Final = 3 * KIB
"""A packet under way, and one behind it: three seconds of a line of 1,000 bytes a second."""
HEADWAY: Final[Duration] = 250 * MILLISECOND
"""As long as `overlay.link.budget` lets be said at once: so long the line is fed if this process is busy."""
ROUND_TRIP_MAX: Final[Duration] = SECOND
"""A satellite's is 0.6 s; what is longer stood in a queue."""
LOOK_FIRST: Final[Duration] = MILLISECOND
LOOK_LAST: Final[Duration] = 40 * MILLISECOND
PAUSE: Final[Duration] = 10 * SECOND
"""After so long without being met a window says nothing of the line as it is now."""


class Gate:
    """The gate of one connection."""

    __slots__ = (
        "_acknowledged",
        "_begun_at",
        "_opened_at",
        "_under_way",
        "_wrote_at",
        "is_shut",
        "look_after",
        "window",
    )

    def __init__(self, now: Instant) -> None:
        self.window = WINDOW_FIRST
        """Bytes."""
        self.is_shut = False
        """Nothing more is to be written now."""
        self.look_after: Duration = LOOK_FIRST
        """While it is shut: how long until the next `look`."""
        self._under_way = 0  # at most
        self._wrote_at: Instant = now
        self._opened_at: Instant = -NEVER
        self._begun_at: Instant = now  # since then the line has been busy
        self._acknowledged = 0  # and has carried so much

    def room(self, now: Instant) -> int:
        """So many bytes may be written now."""
        if now - self._wrote_at > PAUSE and self.window > WINDOW_FIRST:
            self.window = WINDOW_FIRST
            if not self.is_shut:
                # Nobody looked since, and by the count of before all of this window may be taken: nothing would ever be
                # written then, and nobody look. So less is believed, and whatever is written makes somebody look.
                self._under_way = min(self._under_way, 3 * WINDOW_FIRST // 4)
                self._begin(now)
        return 0 if self.is_shut else max(0, self.window - self._under_way)

    def wrote(self, octets: int, now: Instant) -> bool:
        """So many bytes were written. Whether to `look` before there are more."""
        self._wrote_at = now
        self._under_way += octets
        return 4 * self._under_way > 3 * self.window

    def look(self, under_way: int, round_trip: Duration, now: Instant) -> None:
        """*under_way* bytes are not acknowledged; *round_trip* is the shortest that was seen, 0 if none was."""
        self._acknowledged += self._under_way - under_way
        self._under_way = under_way
        round_trip = min(round_trip, ROUND_TRIP_MAX)
        if self.is_shut:
            self._measure(round_trip, now)
            self.is_shut = 2 * under_way > self.window
            self._opened_at = now
            self.look_after = min(self.look_after * 3 // 2, LOOK_LAST)
        elif 4 * under_way > 3 * self.window:
            self.is_shut = True
            self.look_after = LOOK_FIRST
            if now - self._opened_at > round_trip + HEADWAY:  # it may have been idle meanwhile
                self._begin(now)

    def _begin(self, now: Instant) -> None:
        self._begun_at = now
        self._acknowledged = 0

    def _measure(self, round_trip: Duration, now: Instant) -> None:
        """Set the window, if that what was carried is enough to tell how fast the line is."""
        took = now - self._begun_at
        if 4 * self._acknowledged >= self.window and took >= max(1, round_trip):
            wanted = self._acknowledged * (HEADWAY + 2 * round_trip) // took
            self.window = max(WINDOW_MIN, min(wanted, 2 * self.window))
            self._begin(now)
