"""Events that wait until every cluster has said whether it wants such: one round trip after an advertisement."""

from __future__ import annotations

from collections import deque
from dataclasses import field
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.limits import WAITING_BYTES_MAX, WAITING_EVENTS_MAX
from edgebroker.overlay.advertisements import Record
from edgebroker.overlay.link.lanes import EVENT_BYTES
from edgebroker.overlay.messages import Forward

PATIENCE: Final[Duration] = SECOND


@dataclass(slots=True)
class _Queue:
    due: Instant
    events: deque[tuple[Forward, Instant]] = field(default_factory=deque)
    """Each with the instant since when it waits."""


class Waiting:
    """The events by advertisement. Events of one advertisement wait together, in order."""

    def __init__(self) -> None:
        self._queues: dict[Record, _Queue] = {}
        self._bytes = 0
        self.overflows = 0
        """How often so many waited that all went at once."""

    def begin(self, record: Record, now: Instant) -> None:
        """Let the events of *record* wait, for PATIENCE at most."""
        self._queues[record] = _Queue(now + PATIENCE)

    @property
    def next_due(self) -> Instant | None:
        """When some record is `overdue`."""
        return next((queue.due for queue in self._queues.values()), None)

    def overdue(self, now: Instant) -> list[Record]:
        """The records whose events have waited long enough."""
        return [record for record, queue in self._queues.items() if queue.due <= now]

    def __contains__(self, record: Record) -> bool:
        return record in self._queues

    def add(self, record: Record, forward: Forward, now: Instant) -> bool:
        """Let *forward* wait with those of *record*. True: there are so many now that all must go."""
        events = self._queues[record].events
        events.append((forward, now))
        self._bytes += _size(forward)
        is_full = len(events) >= WAITING_EVENTS_MAX or self._bytes > WAITING_BYTES_MAX
        self.overflows += is_full
        return is_full

    def end(self, record: Record) -> list[tuple[Forward, Instant]]:
        """Let no event of *record* wait any longer; return those that did, with the instant since when."""
        queue = self._queues.pop(record, None)
        self._bytes -= 0 if queue is None else sum(_size(forward) for forward, _ in queue.events)
        return [] if queue is None else list(queue.events)


def _size(forward: Forward) -> int:
    return EVENT_BYTES + len(forward.topic) + len(forward.payload)
