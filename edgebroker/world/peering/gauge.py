"""How congested links are, for whoever looks: the same index that dynamic routing goes by, over a longer window."""

from __future__ import annotations

from edgebroker.overlay.congestion import Queue
from edgebroker.overlay.link.link import Link


class CongestionGauge:
    """The congestion index of each link since somebody last asked; the first time, since the start."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}

    def index(self, link: Link) -> float:
        """(1 + entered) / (1 + left), times what waits; as `overlay.congestion` says."""
        figures = [lane.figures for lane in link.outbox.lanes.values()]
        entered, left = sum(each.entered for each in figures), sum(each.left for each in figures)
        before = self._seen.get(link.peer, (0, 0))
        self._seen[link.peer] = entered, left
        waiting = sum(each.waiting for each in figures)
        return Queue(entered - before[0], left - before[1], waiting).congestion_index
