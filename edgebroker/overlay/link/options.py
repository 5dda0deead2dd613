"""The options of a link at one end."""

from __future__ import annotations

from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.instants import SECOND, Duration
from edgebroker.limits import KIB
from edgebroker.overlay.link.heartbeat import IDLE_INTERVAL, LAN_INTERVAL, PATIENCE_MIN
from edgebroker.overlay.link.outbox import BOUNDS, OutboxBounds

TLS_RECORD_BYTES: Final = 22
"""TLS 1.3 adds 5 bytes of header, 1 of type and 16 of tag to a record (RFC 8446 section 5.2)."""
TLS_DATA_BYTES: Final = 16 * KIB
"""The most data in one record (section 5.1)."""


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """The options of one link at one end."""

    dials: bool = True
    """Whether this end dials."""
    heartbeat: Duration = LAN_INTERVAL
    """How long nothing is received before the peer is pinged."""
    patience: Duration = PATIENCE_MIN
    """The least time that an answer may take; the measured round trip may extend it."""
    batch: Duration = 0
    """How long a message may wait for others to share a packet, counted from the last packet; so the first one after a
    pause does not wait. Acknowledgements wait as long for messages. CONTROL and answers to pings do not wait.
    """
    batch_bytes: int = 8 * KIB
    """Bytes of waiting messages that end the wait."""
    deflates: bool = False
    """Whether to deflate, if the peer does too."""
    bytes_per_s: int = 0
    """The long-term rate of sending; 0: no limit."""
    bytes_per_day: int = 0
    """Bytes sent per calendar day; 0: no limit."""
    record_bytes: int = TLS_RECORD_BYTES
    """Bytes that TLS adds to each of its records, counted in the budget if the connection uses TLS."""
    bounds: OutboxBounds = BOUNDS


LAN_OPTIONS: Final = LinkOptions()
METERED_OPTIONS: Final = LinkOptions(heartbeat=IDLE_INTERVAL, batch=SECOND, deflates=True)
"""For links on which bytes cost money."""
