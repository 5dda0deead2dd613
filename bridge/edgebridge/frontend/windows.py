"""What links did, window by window: dynamic routing goes around those on which more waits than leaves [SCOT 2.7].

While nothing waits for any link there are no windows, and no timer. What a link keeps back for a moment to send it with
more (`LinkTerms.batch`) does not wait: only what the transport does not take does, or what is beyond its rate.
"""

from __future__ import annotations

from edgebroker.instants import Instant
from edgebroker.node.peers import Peers
from edgebroker.overlay.classes import SHARED
from edgebroker.overlay.congestion import WINDOW, Queue
from edgebroker.overlay.link.link import Link
from edgebroker.overlay.link.links import Links


class Windows:
    """Those of one gateway."""

    def __init__(self, links: Links, peers: Peers) -> None:
        self._links = links
        self._peers = peers
        self.due: Instant | None = None
        """When the present window ends."""
        self._before: dict[str, tuple[int, int]] = {}

    def look(self, now: Instant) -> None:
        """All links were flushed: a window begins if something waits all the same, and ends when it is time."""
        if self.due is None:
            if any(link.is_held_up(now) for link in self._links):
                self._begin(now)
        elif now >= self.due:
            queues = {link.peer: self._queue(link, now) for link in self._links}
            self._peers.window({peer: queue for peer, queue in queues.items() if queue.waiting})
            self.due = None
            if any(queue.waiting for queue in queues.values()):
                self._begin(now)

    def _begin(self, now: Instant) -> None:
        self.due = now + WINDOW
        self._before = {link.peer: _counts(link) for link in self._links}

    def _queue(self, link: Link, now: Instant) -> Queue:
        entered, left = _counts(link)
        before = self._before[link.peer]
        waiting = sum(link.figures(service).waiting for service in SHARED) if link.is_held_up(now) else 0
        return Queue(entered - before[0], left - before[1], waiting)


def _counts(link: Link) -> tuple[int, int]:
    """The events that ever entered the queue of *link*, and that left it."""
    figures = [link.figures(service) for service in SHARED]
    return sum(each.entered for each in figures), sum(each.left for each in figures)
