"""Jobs: work that may take longer than a turn, as a SUBSCRIBE to thousands of filters does; it goes on in the next.

A *job* is a generator: it is sent the time, does a little, and yields the work that this cost. While a connection has
a job, the packets behind it wait: they are answered in order, and take effect in order. A job whose connection ends
is forgotten: what it did until then stays done, and no answer is sent.
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

Job: TypeAlias = Generator[int, Instant, None]


def start(connection: Connection, job: Job, octets: int) -> None:
    """From now on *connection* has *errand*, which holds *octets* of memory until it is done."""
    next(job)  # as far as its first question for the time
    connection.job = job
    connection.job_bytes = octets


def step(connection: Connection, work: int, now: Instant) -> int:
    """Do up to *work* of the connection's errand, or a little more. Returns what is left of *work*.

    Raises ProtocolError, as an errand may.
    """
    while work > 0 and not connection.closing:
        try:
            work -= connection.job.send(now)
        except StopIteration:
            connection.job = None
            connection.job_bytes = 0
            break
    return work
