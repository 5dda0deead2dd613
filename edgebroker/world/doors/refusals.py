"""Who was turned away before a CONNECT could be read: all are counted by cause, some are told."""

from __future__ import annotations

import enum
from collections import Counter

from edgebroker.world.operatorlog import Level, OperatorLog


class Turned(enum.Enum):
    """Why a client was turned away. The value is the code in the operator's log, and the label in metrics."""

    PLAIN = "no-tls"
    HANDSHAKE = "tls-handshake"
    NO_CERTIFICATE = "no-client-certificate"
    CERTIFICATE = "client-certificate"
    UPGRADE = "websocket-upgrade"
    FRAME = "websocket-frame"
    ORIGIN = "websocket-origin"
    PROXY_SOURCE = "proxy-source"
    PROXY_HEADER = "proxy-header"
    FULL = "listener-full"


class Refusals:
    """`counts` has every one; the log tells a few of each cause a minute: a scan knocks a thousand times a second."""

    def __init__(self, log: OperatorLog) -> None:
        self.counts: Counter[Turned] = Counter()
        self._log = log

    def note(self, cause: Turned, listener: str, peer: str, why: str) -> None:
        """A client at *peer* was turned away by *listener*."""
        self.counts[cause] += 1
        self._log.tell(Level.WARNING, cause.value, f"turned away: {why}", listener=listener, peer=peer)
