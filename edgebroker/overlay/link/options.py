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
"""A record carries so much at most (section 5.1)."""


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """The terms of one link at one end."""

    dials: bool = True
    """Whether this end dials."""
    heartbeat: Duration = LAN_INTERVAL
    """So long nothing is heard before the peer is asked."""
    patience: Duration = PATIENCE_MIN
    """So long at least an answer may take, while round trips are short."""
    batch: Duration = 0
    """So long messages may wait for others that go with them, counted from what was sent last: the first after a pause
    waits for nobody. Acknowledgements wait as long for messages to go with; CONTROL and answers to pings never do."""
    batch_bytes: int = 8 * KIB
    """So many bytes wait no longer."""
    deflates: bool = False
    """Whether to deflate, if the peer does too."""
    bytes_per_s: int = 0
    """Sent, in the long run; 0: no bound."""
    bytes_per_day: int = 0
    """Sent on a day of the calendar; 0: no bound."""
    record_bytes: int = TLS_RECORD_BYTES
    """What TLS adds to each of its records; without it nothing is added."""
    bounds: OutboxBounds = BOUNDS


LAN_OPTIONS: Final = LinkOptions()
METERED_OPTIONS: Final = LinkOptions(heartbeat=IDLE_INTERVAL, batch=SECOND, deflates=True)
"""Where bytes cost money."""
