"""The reorder buffer: events of one publisher that came over several paths leave it in the order in which they
were published [SCOT 5].

Marked copies go another way than those before and after them: around something congested, or down. While such a
copy of a publisher was seen within the last second, its events wait a moment for those that they overtook. Whatever
comes later than that is handed on as late.
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
MARKED_WITHIN: Final[Duration] = SECOND
SEQUENCE_MAX: Final = (1 << 32) - 1
PUBLISHERS_MAX: Final = 4_096
"""Publishers with marked copies that are remembered; the one marked longest ago is forgotten first."""


class OrderedEvent(NamedTuple):
    """An event in its turn. `is_entry`: it entered the cluster here. `is_late`: a later one was handed on before."""

    forward: Forward
    is_entry: bool
    is_late: bool
    was_held: bool = False


@dataclass(slots=True)
class _PublisherEvents:
    """The events of one publisher, all topics together: its sequence counts them so."""

    marked_at: Instant
    last: int = 0
    """The greatest sequence that was handed on while there were marked copies."""
    held: list[tuple[int, Forward, bool]] = field(default_factory=list)
    """By sequence, a heap."""


class ReorderBuffer:
    """The events that wait for others."""

    def __init__(self) -> None:
        self._flows: dict[int, _PublisherEvents] = {}
        self._dues: deque[tuple[Instant, int, int]] = deque()  # with publisher and sequence; all wait equally long

    def __len__(self) -> int:
        return sum(len(flow.held) for flow in self._flows.values())

    def may_reorder(self, forward: Forward) -> bool:
        """Whether *forward* may have to wait, or others for it."""
        return forward.was_marked or forward.header.publisher in self._flows

    def add(self, forward: Forward, is_entry: bool, now: Instant) -> list[OrderedEvent]:
        """*forward* arrived; return what is to be handed on."""
        publisher, sequence = forward.header.eid
        flow = self._flows.get(publisher)
        if forward.was_marked:
            if flow is None:
                flow = self._flows[publisher] = _PublisherEvents(now)
            else:
                self._flows[publisher] = self._flows.pop(publisher)  # it is the last to be forgotten
            flow.marked_at = now
            if len(self._flows) > PUBLISHERS_MAX:
                oldest = self._flows.pop(next(iter(self._flows)))
                return [*_taken(oldest, SEQUENCE_MAX), *self._hold(flow, forward, is_entry, now)]
        if flow is None:
            return [OrderedEvent(forward, is_entry, False)]
        if not flow.held and now - flow.marked_at > MARKED_WITHIN:
            del self._flows[publisher]
            return [OrderedEvent(forward, is_entry, sequence < flow.last)]
        return self._hold(flow, forward, is_entry, now)

    @property
    def next_due(self) -> Instant | None:
        """When to call `release`."""
        return self._dues[0][0] if self._dues else None

    def release(self, now: Instant) -> list[OrderedEvent]:
        """What has waited long enough, and what is before it in its flow."""
        found: list[OrderedEvent] = []
        while self._dues and (self._dues[0][0] <= now or len(self._dues) > HELD_EVENTS_MAX):
            _, publisher, sequence = self._dues.popleft()
            if publisher in self._flows:
                found += _taken(self._flows[publisher], sequence)
        return found

    def _hold(self, flow: _PublisherEvents, forward: Forward, is_entry: bool, now: Instant) -> list[OrderedEvent]:
        publisher, sequence = forward.header.eid
        if sequence < flow.last:
            return [OrderedEvent(forward, is_entry, True)]
        heapq.heappush(flow.held, (sequence, forward, is_entry))
        self._dues.append((now + HOLD_TIME, publisher, sequence))
        return self.release(now)


def _taken(flow: _PublisherEvents, sequence: int) -> list[OrderedEvent]:
    """The events of *flow* up to *sequence*, in order."""
    taken = []
    while flow.held and flow.held[0][0] <= sequence:
        flow.last, forward, is_entry = heapq.heappop(flow.held)
        taken.append(OrderedEvent(forward, is_entry, False, True))
    return taken
