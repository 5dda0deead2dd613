"""Token buckets: rate limits that allow a burst and hold the rate in the long run."""

from __future__ import annotations

from edgebroker.instants import SECOND, Duration, Instant


class TokenBucket:
    """`per_s` tokens are added each second, up to `burst`. The level may become negative; the caller must then wait."""

    __slots__ = ("_at", "_burst", "_level", "_per_s")

    def __init__(self, per_s: float, burst: float, now: Instant) -> None:
        self._per_s = per_s
        self._burst = burst
        self._level = burst
        self._at = now

    def admits(self, now: Instant) -> bool:
        """Take one token and return True, or return False if there is none."""
        self._fill(now)
        if self._level < 1:
            return False
        self._level -= 1
        return True

    def charge(self, tokens: float, now: Instant) -> Duration:
        """Take *tokens* even if the level becomes negative. Returns the time until the level is 0 again."""
        self._fill(now)
        self._level -= tokens
        return 0 if self._level >= 0 else int(-self._level / self._per_s * SECOND) + 1

    def is_full(self, now: Instant) -> bool:
        """Return whether the bucket is full: no token was taken lately."""
        self._fill(now)
        return self._level >= self._burst

    def _fill(self, now: Instant) -> None:
        self._level = min(self._burst, self._level + (now - self._at) * self._per_s / SECOND)
        self._at = now


class Meter:
    """The rate limit of one client in messages and bytes per second; 0 means no limit. A burst of one second is
    allowed.
    """

    __slots__ = ("_bytes", "_messages")

    def __init__(self, messages_per_s: int, bytes_per_s: int, now: Instant) -> None:
        self._messages = TokenBucket(messages_per_s, messages_per_s, now) if messages_per_s else None
        self._bytes = TokenBucket(bytes_per_s, bytes_per_s, now) if bytes_per_s else None

    def charge(self, messages: int, octets: int, now: Instant) -> Duration:
        """Count received messages and bytes. Returns the time for which to read nothing, so that the rate holds in the
        long run.
        """
        wait = 0 if self._messages is None else self._messages.charge(messages, now)
        return wait if self._bytes is None else max(wait, self._bytes.charge(octets, now))
