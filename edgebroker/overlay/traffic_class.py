"""Traffic classes: the order in which kinds of traffic use one uplink.

CONTROL goes before everything. The others share by weight, so that none starves: while all of them have something
to send, LIVE gets 16 of 23 bytes and LOGS one. A byte budget is spent from below: when little of the day's bytes is
left, LOGS stop first and LIVE last; CONTROL is counted but never stopped, for a link without it is no link.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class TrafficClass(IntEnum):
    """The class of a message, the most urgent first."""

    CONTROL = 0
    """Routing state and what the link says of itself."""
    LIVE = 1
    """Publications as they come."""
    BACKLOG = 2
    """Publications that waited for the link to come back, or for room."""
    BULK = 3
    """Large images, in pieces."""
    LOGS = 4
    """Delivery logs on their way to the analytics."""


SHARED: Final = (TrafficClass.LIVE, TrafficClass.BACKLOG, TrafficClass.BULK, TrafficClass.LOGS)
"""The classes that share by weight."""
WEIGHTS: Final = {TrafficClass.LIVE: 16, TrafficClass.BACKLOG: 4, TrafficClass.BULK: 2, TrafficClass.LOGS: 1}
"""Bytes of each class while all have something to send. A backlog of an hour is sent in 5 hours beside live traffic
that takes four fifths of the link, and at once if it takes less."""
BUDGET_SHARES: Final = {
    TrafficClass.LIVE: 1.0,
    TrafficClass.BACKLOG: 0.9,
    TrafficClass.BULK: 0.7,
    TrafficClass.LOGS: 0.5,
}
"""Which part of a day's bytes may have been spent, by all, while a class still sends."""
