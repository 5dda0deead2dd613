"""Who was turned away before a CONNECT could be read: counted by cause, told in few lines."""

from __future__ import annotations

import enum
import time
from collections import Counter
from collections.abc import Callable

EVERY_S = 10.0
"""One line for each cause in this time; how many more there were, the next one says. A scan of the port knocks some
thousand times a second, and each line is a write to a card."""


class Turned(enum.Enum):
    """Why a client was turned away. The value is for people and for metrics."""

    PLAIN = "no TLS"
    HANDSHAKE = "TLS handshake"
    NO_CERTIFICATE = "no client certificate"
    CERTIFICATE = "client certificate"
    UPGRADE = "WebSocket upgrade"
    FRAME = "WebSocket frame"
    ORIGIN = "WebSocket origin"
    PROXY_SOURCE = "not a trusted proxy"
    PROXY_HEADER = "PROXY header"
    FULL = "too many connections"


class Refusals:
    """`counts` has every one; *tell* gets a line for some."""

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.counts: Counter[Turned] = Counter()
        self._tell = tell
        self._clock = clock
        self._told: dict[Turned, tuple[float, int]] = {}  # cause -> when it was last told, and the count then

    def note(self, cause: Turned, listener: str, peer: str, why: str) -> None:
        """A client at *peer* was turned away by *listener*."""
        self.counts[cause] += 1
        now, count = self._clock(), self.counts[cause]
        at, told = self._told.get(cause, (-EVERY_S, 0))
        if now - at < EVERY_S:
            return
        self._told[cause] = (now, count)
        more = f" ({count - told - 1} more of these since the last line)" if count - told > 1 else ""
        self._tell(f"{listener}: {peer} is turned away: {cause.value}: {why}{more}")
