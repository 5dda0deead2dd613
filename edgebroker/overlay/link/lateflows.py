"""Late flows: something of them is in the BACKLOG, and what comes later of the same flow must not overtake it.

A flow is what one publisher says under one topic.
"""

from __future__ import annotations

from edgebroker.overlay.messages import Forward, Series

from .lanes import Entry, event_of

Flow = tuple[str, str]
"""Publisher and topic."""


def flow_of(event: Forward) -> Flow:
    """The one that *event* belongs to."""
    return event.client, event.topic


class LateFlows:
    """Those of one link."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[Flow, int] = {}
        """How much of each flow is in the BACKLOG: waiting, in part on its way, or not acknowledged."""

    def add(self, entry: Entry) -> None:
        """*entry* goes into the BACKLOG."""
        event = entry.message.first if isinstance(entry.message, Series) else event_of(entry.message)
        if event is not None:
            entry.flow = flow = flow_of(event)
            self.counts[flow] = self.counts.get(flow, 0) + 1

    def leave(self, entry: Entry) -> None:
        """*entry*, of any class, is acknowledged, or gone if it has no number."""
        flow = entry.flow
        if flow is not None:
            entry.flow = None
            self.counts[flow] -= 1
            if not self.counts[flow]:
                del self.counts[flow]
