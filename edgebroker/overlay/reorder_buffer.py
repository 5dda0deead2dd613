"""The reorder buffer: events of one publisher that arrive over several paths leave it in publication order [SCOT 5].

Some events of a publisher take another path than those before them, around a congested or broken link. Such an event
names its predecessor. If it arrives first, it waits here until the predecessor is released, for some seconds at most.
"""

from __future__ import annotations

import heapq
from typing import Final, NamedTuple

from edgebroker.header import host_of
from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.limits import HELD_EVENT_BYTES_MAX, HELD_EVENTS_MAX
from edgebroker.overlay.messages import Forward

WAIT_MAX: Final[Duration] = 10 * SECOND
"""How long an event waits for a predecessor that is probably in the queue of a slow link."""
BROKEN_WAIT_MAX: Final[Duration] = SECOND
"""How long it waits if the link that the predecessor may have taken is down: a way around takes less time."""


class HeldEvent(NamedTuple):
    """An event that waits, or waited. `arrival`: the neighbour from which it came, empty if from another cluster.
    `since`: when it came.
    """

    forward: Forward
    arrival: str
    since: Instant


class ReorderBuffer:
    """The events that wait for their predecessors."""

    def __init__(self) -> None:
        self._publishers: dict[int, dict[int, HeldEvent]] = {}  # publisher -> sequence of a predecessor -> event
        self._dues: list[tuple[Instant, int, int]] = []  # a heap of (deadline, publisher, sequence of a predecessor)
        self._count = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._count

    def has_events_of(self, publisher: int) -> bool:
        """Return whether events of *publisher* wait."""
        return publisher in self._publishers

    def has(self, publisher: int, sequence: int) -> bool:
        """Return whether this event waits."""
        return any(each.forward.header.sequence == sequence for each in self._publishers.get(publisher, {}).values())

    def add(self, held: HeldEvent, predecessor: int, until: Instant) -> list[HeldEvent]:
        """Hold *held* until the event of its publisher with the sequence *predecessor* is released, but at most
        until the instant *until*. Returns the events to release now: those for which there is no room.
        """
        publisher = held.forward.header.publisher
        waiting = self._publishers.setdefault(publisher, {})
        if predecessor in waiting:  # two events cannot have the same one, unless a gateway gives wrong numbers
            return [held]
        waiting[predecessor] = held
        heapq.heappush(self._dues, (until, publisher, predecessor))
        self._count += 1
        self._bytes += len(held.forward.payload)
        released: list[HeldEvent] = []
        while self._count > HELD_EVENTS_MAX or self._bytes > HELD_EVENT_BYTES_MAX:
            _, first, number = heapq.heappop(self._dues)
            released += self._give_up(first, number)
        return released

    def successors(self, publisher: int, sequence: int) -> list[HeldEvent]:
        """Remove and return the events that waited for this one, in order."""
        released: list[HeldEvent] = []
        while (waiting := self._publishers.get(publisher)) is not None and sequence in waiting:
            held = self._remove(publisher, sequence)
            released.append(held)
            sequence = held.forward.header.sequence
        return released

    def hasten(self, host: int, until: Instant) -> None:
        """Let the events of the publishers of gateway *host* wait until *until* at most."""
        for publisher, waiting in self._publishers.items():
            if host_of(publisher) == host:
                for predecessor in waiting:
                    heapq.heappush(self._dues, (until, publisher, predecessor))

    @property
    def next_due(self) -> Instant | None:
        """The earliest deadline for `release`; None if no event waits."""
        while self._dues and self._dues[0][2] not in self._publishers.get(self._dues[0][1], ()):
            heapq.heappop(self._dues)
        return self._dues[0][0] if self._dues else None

    def release(self, now: Instant) -> list[HeldEvent]:
        """Remove and return the events whose deadline has passed, each with its successors and the earlier events of
        its publisher.
        """
        released: list[HeldEvent] = []
        while self._dues and self._dues[0][0] <= now:
            _, publisher, predecessor = heapq.heappop(self._dues)
            released += self._give_up(publisher, predecessor)
        return released

    def _give_up(self, publisher: int, predecessor: int) -> list[HeldEvent]:
        """Remove and return the event that waits for *predecessor*, with its successors, after the earlier events of
        the same kind: QoS 0, or the others.
        """
        waiting = self._publishers.get(publisher, {})
        last = waiting.get(predecessor)
        if last is None:
            return []
        sequence, is_bare = last.forward.header.sequence, last.forward.qos == 0
        earlier = [
            (each.header.sequence, before)
            for before, (each, *_) in waiting.items()
            if each.header.sequence <= sequence and (each.qos == 0) == is_bare
        ]
        released = [self._remove(publisher, before) for _, before in sorted(earlier)]
        return [*released, *self.successors(publisher, sequence)]

    def _remove(self, publisher: int, predecessor: int) -> HeldEvent:
        waiting = self._publishers[publisher]
        held = waiting.pop(predecessor)
        if not waiting:
            del self._publishers[publisher]
        self._count -= 1
        self._bytes -= len(held.forward.payload)
        return held
