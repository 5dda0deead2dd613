"""The reorder buffer: events of one publisher that arrive over several paths leave it in publication order [SCOT 5].

Marked copies take a different path from those before and after them, around a congested or broken link. While a marked
copy of a publisher arrived within the last second, its events wait HOLD_TIME for those that they may have overtaken.
Events that arrive even later are delivered as late.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import field
from typing import Final, NamedTuple

from edgebroker.dataclasses import dataclass
from edgebroker.instants import MILLISECOND, SECOND, Duration, Instant
from edgebroker.limits import HELD_EVENTS_MAX
from edgebroker.overlay.messages import Forward

HOLD_TIME: Final[Duration] = 100 * MILLISECOND
"""How long an event waits for earlier ones."""
MARKED_WITHIN: Final[Duration] = SECOND
"""How long after a marked copy the events of a publisher are reordered."""
SEQUENCE_MAX: Final = (1 << 32) - 1
PUBLISHERS_MAX: Final = 4_096
"""Publishers with marked copies that are remembered; the one marked longest ago is removed first."""


class OrderedEvent(NamedTuple):
    """An event in its turn. `is_entry`: it entered the cluster here. `is_late`: a later one was delivered before."""

    forward: Forward
    is_entry: bool
    is_late: bool
    was_held: bool = False


@dataclass(slots=True)
class _PublisherEvents:
    """The events of one publisher under all topics, because its sequence counts all of them."""

    marked_at: Instant
    last: int = 0
    """The greatest sequence delivered while there were marked copies."""
    held: list[tuple[int, Forward, bool]] = field(default_factory=list)
    """Events that wait, a heap by sequence."""


class ReorderBuffer:
    """The events that wait for earlier ones."""

    def __init__(self) -> None:
        self._publishers: dict[int, _PublisherEvents] = {}
        # (deadline, publisher, sequence), in order of arrival, because all wait equally long
        self._dues: deque[tuple[Instant, int, int]] = deque()

    def __len__(self) -> int:
        return sum(len(events.held) for events in self._publishers.values())

    def may_reorder(self, forward: Forward) -> bool:
        """Return whether *forward* may have to wait, or others for it."""
        return forward.was_marked or forward.header.publisher in self._publishers

    def add(self, forward: Forward, is_entry: bool, now: Instant) -> list[OrderedEvent]:
        """Add *forward*, which arrived at *now*; return the events to deliver."""
        publisher, sequence = forward.header.eid
        events = self._publishers.get(publisher)
        if forward.was_marked:
            if events is None:
                events = self._publishers[publisher] = _PublisherEvents(now)
            else:
                self._publishers[publisher] = self._publishers.pop(publisher)  # the last to be removed
            events.marked_at = now
            if len(self._publishers) > PUBLISHERS_MAX:
                oldest = self._publishers.pop(next(iter(self._publishers)))
                return [*_take(oldest, SEQUENCE_MAX), *self._hold(events, forward, is_entry, now)]
        if events is None:
            return [OrderedEvent(forward, is_entry, False)]
        if not events.held and now - events.marked_at > MARKED_WITHIN:
            del self._publishers[publisher]
            return [OrderedEvent(forward, is_entry, sequence < events.last)]
        return self._hold(events, forward, is_entry, now)

    @property
    def next_due(self) -> Instant | None:
        """The earliest deadline for `release`; None if no event waits."""
        return self._dues[0][0] if self._dues else None

    def release(self, now: Instant) -> list[OrderedEvent]:
        """Return the events whose deadline has passed, each with earlier ones of its publisher."""
        released: list[OrderedEvent] = []
        while self._dues and (self._dues[0][0] <= now or len(self._dues) > HELD_EVENTS_MAX):
            _, publisher, sequence = self._dues.popleft()
            if publisher in self._publishers:
                released += _take(self._publishers[publisher], sequence)
        return released

    def _hold(self, events: _PublisherEvents, forward: Forward, is_entry: bool, now: Instant) -> list[OrderedEvent]:
        publisher, sequence = forward.header.eid
        if sequence < events.last:
            return [OrderedEvent(forward, is_entry, True)]
        heapq.heappush(events.held, (sequence, forward, is_entry))
        self._dues.append((now + HOLD_TIME, publisher, sequence))
        return self.release(now)


def _take(events: _PublisherEvents, sequence: int) -> list[OrderedEvent]:
    """Remove and return the held events of a publisher up to *sequence*, in order."""
    taken = []
    while events.held and events.held[0][0] <= sequence:
        events.last, forward, is_entry = heapq.heappop(events.held)
        taken.append(OrderedEvent(forward, is_entry, False, True))
    return taken
