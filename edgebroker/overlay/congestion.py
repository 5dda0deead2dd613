"""The link status table (LST): how congested each link is, as of the end of the last window [SCOT 2.7].

The paper leaves the form of its condition (10) open. Here the congestion element CE is the ratio of messages that
entered and left a queue in a window, each plus one, so that an idle queue has 1. CE times the queue length is the
congestion index CI. A queue is congested above `TAU`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final, NamedTuple

from edgebroker.dataclasses import dataclass
from edgebroker.instants import MILLISECOND, Duration

WINDOW: Final[Duration] = 50 * MILLISECOND
"""The time t_w between two samples of all queues."""
TAU: Final = 10.0


class QueueSample(NamedTuple):
    """The activity of one queue in a window, in messages."""

    entered: int
    left: int
    waiting: int
    """The queue length at the end of the window."""

    @property
    def congestion_element(self) -> float:
        """CE: above 1 while the queue grows, below 1 while it shrinks."""
        return (1 + self.entered) / (1 + self.left)

    @property
    def congestion_index(self) -> float:
        """CI. For a stalled link, on which nothing enters or leaves, it is the queue length."""
        return self.congestion_element * self.waiting


class LinkLoad(NamedTuple):
    """The load of a link; a smaller tuple is better."""

    congestion_index: float
    waiting: int


IDLE: Final = LinkLoad(0.0, 0)
DOWN: Final = LinkLoad(inf, 0)
STALLED: Final = LinkLoad(1e300, 0)
"""Worse than all that is up and moves, better than what is down."""


@dataclass(slots=True)
class _Status:
    load: LinkLoad = IDLE
    is_congested: bool = False
    is_up: bool = False
    is_stalled: bool = False


class LinkStatus:
    """The status of every link. Decisions within a window use the result of the window before."""

    def __init__(self, links: tuple[str, ...], tau: float = TAU, has_hysteresis: bool = False) -> None:
        """has_hysteresis: a congested link stays congested until its CI is at most half of *tau*."""
        self._tau = tau
        self._clear_below = tau / 2 if has_hysteresis else tau
        self._status = {link: _Status() for link in links}
        self.window = 0
        """The number of windows so far."""

    def measure(self, queues: Mapping[str, QueueSample]) -> bool:
        """End a window with samples of the links that sent or queued anything; all others are idle. Returns whether a
        link is congested that was not, or the other way round.
        """
        self.window += 1
        is_news = False
        for link, status in self._status.items():
            queue, was_congested = queues.get(link), status.is_congested
            if queue is None:
                status.load, status.is_congested = IDLE, False
            else:
                index = queue.congestion_index
                status.load = LinkLoad(index, queue.waiting)
                status.is_congested = index > (self._clear_below if status.is_congested else self._tau)
            is_news = is_news or status.is_congested != was_congested
        return is_news

    def set_up(self, link: str, is_up: bool) -> None:
        """Mark *link* as up, or as down: then its CI is infinite."""
        self._status[link].is_up = is_up
        self._status[link].is_stalled = False

    def set_stalled(self, link: str, is_stalled: bool) -> bool:
        """Mark *link* as one whose peer acknowledges nothing, or as one where it does. Returns whether that is news."""
        status = self._status[link]
        is_news = status.is_stalled != is_stalled
        status.is_stalled = is_stalled
        return is_news

    def is_stalled(self, link: str) -> bool:
        """Return whether *link* is up and its peer acknowledges nothing."""
        return self._status[link].is_stalled

    def is_failed(self, link: str) -> bool:
        """Return whether *link* is down or stalled."""
        status = self._status[link]
        return status.is_stalled or not status.is_up

    def is_up(self, link: str) -> bool:
        """Return whether *link* is up."""
        return self._status[link].is_up

    def is_congested(self, link: str) -> bool:
        """Return whether the queue of *link* was congested, or the link is down or stalled."""
        status = self._status[link]
        return status.is_congested or status.is_stalled or not status.is_up

    def load(self, link: str) -> LinkLoad:
        """Return the load of *link*."""
        status = self._status[link]
        if status.is_up and status.is_stalled:
            return STALLED
        return status.load if status.is_up else DOWN
