"""Whether the remote is still there: pings into the silence, and when to give up."""

from __future__ import annotations

from edgebroker.instants import SECOND, Duration, Instant


class Heartbeat:
    """A ping goes out when half of the keep alive has passed without a word; as long again, and nobody is there.

    So a connection whose other end vanished without a word is given up within one keep alive, and we are never silent
    for longer than it [MQTT-3.1.2-22].
    """

    def __init__(self) -> None:
        self._half: Duration = 0
        self._heard: Instant = 0
        self._said: Instant = 0
        self._pinged: Instant | None = None

    def begin(self, keep_alive_s: int, now: Instant) -> None:
        """A connection is open. 0: nobody is asked."""
        self._half = keep_alive_s * SECOND // 2
        self._heard = self._said = now
        self._pinged = None

    def heard(self, now: Instant) -> None:
        """Something came."""
        self._heard = now
        self._pinged = None

    def said(self, now: Instant) -> None:
        """Something was sent."""
        self._said = now

    def due(self) -> Instant | None:
        """When to look again."""
        if not self._half:
            return None
        if self._pinged is not None:
            return self._pinged + self._half
        return min(self._heard, self._said) + self._half

    def wants_ping(self, now: Instant) -> bool:
        """Whether to ping now; then it counts as done."""
        if self._pinged is not None or not self._half or now < min(self._heard, self._said) + self._half:
            return False
        self._pinged = self._said = now
        return True

    def is_dead(self, now: Instant) -> bool:
        """Whether nobody has answered."""
        return self._pinged is not None and now >= self._pinged + self._half
