"""The keep alive of a bridge: it sends PINGREQ when idle and detects a remote broker that stopped answering."""

from __future__ import annotations

from edgebroker.instants import SECOND, Duration, Instant


class KeepAliveTimer:
    """A ping goes out when half of the keep alive has passed without a word; as long again, and nobody is there.

    So a connection whose other end vanished without a word is given up within one keep alive, and we are never silent
    for longer than it [MQTT-3.1.2-22].
    """

    def __init__(self) -> None:
        self._half: Duration = 0
        self._received_at: Instant = 0
        self._sent_at: Instant = 0
        self._pinged_at: Instant | None = None

    def begin(self, keep_alive_s: int, now: Instant) -> None:
        """A connection is open. 0: nobody is asked."""
        self._half = keep_alive_s * SECOND // 2
        self._received_at = self._sent_at = now
        self._pinged_at = None

    def on_receive(self, now: Instant) -> None:
        """Something came."""
        self._received_at = now
        self._pinged_at = None

    def on_send(self, now: Instant) -> None:
        """Something was sent."""
        self._sent_at = now

    def due(self) -> Instant | None:
        """When to look again."""
        if not self._half:
            return None
        if self._pinged_at is not None:
            return self._pinged_at + self._half
        return min(self._received_at, self._sent_at) + self._half

    def wants_ping(self, now: Instant) -> bool:
        """Whether to ping now; then it counts as done."""
        if self._pinged_at is not None or not self._half or now < min(self._received_at, self._sent_at) + self._half:
            return False
        self._pinged_at = self._sent_at = now
        return True

    def is_timed_out(self, now: Instant) -> bool:
        """Whether nobody has answered."""
        return self._pinged_at is not None and now >= self._pinged_at + self._half
