"""What may take longer than a turn: a SUBSCRIBE to thousands of filters goes on in the next turn, where it stopped.

An *errand* is a generator: it is sent the time, does a little, and yields what that cost. As long as a connection has
one, the packets behind it wait: they are answered in order, and what they say happens in order. An errand whose
connection ends is forgotten: what it did until then stays done, and nobody was told.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeAlias

from edgebridge.frontend.connection import Connection
from edgebroker.instants import Instant

WORK_AT_ONCE: Final = 2_048
"""What one connection gets done in one turn, in units of about a microsecond. A packet of the long way counts 16 and
what its properties do; a plan for a topic 8, and 1 for four readers; what is routed, as `Routes.work` says; what waited
and is sent, as `Delivery.work` says; a filter, as `subscribing` says. Who takes more than there is waits longer.
"""
PROPERTIES_SHIFT: Final = 3
"""Eight bytes of properties count one, to read them as well as to write them: a user property has 5 bytes at least, and
takes 0.2 us to read and 0.5 to write."""

Errand: TypeAlias = Generator[int, Instant, None]


def begin(connection: Connection, errand: Errand, octets: int) -> None:
    """From now on *connection* has *errand*, which holds *octets* of memory until it is done."""
    next(errand)  # as far as its first question for the time
    connection.errand = errand
    connection.errand_bytes = octets


def go_on(connection: Connection, work: int, now: Instant) -> int:
    """Do up to *work* of the connection's errand, or a little more. Returns what is left of *work*.

    Raises ProtocolError, as an errand may.
    """
    while work > 0 and not connection.closing:
        try:
            work -= connection.errand.send(now)
        except StopIteration:
            connection.errand = None
            connection.errand_bytes = 0
            break
    return work
