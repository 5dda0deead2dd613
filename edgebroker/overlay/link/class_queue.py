"""The queue of one traffic class: messages that wait for a link, and messages that were sent and are not
acknowledged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from edgebroker.dataclasses import dataclass
from edgebroker.instants import Instant
from edgebroker.limits import KIB
from edgebroker.overlay.messages import EventSeries, Forward, Message, Relay

CONTROL_BYTES = 1 * KIB
"""The assumed memory of a message that is not an event. Interests of 64 tests take more, most take less."""
EVENT_BYTES = 512
"""The assumed memory of an event besides topic and payload."""


def event_of(message: Message) -> Forward | None:
    """Return the event that *message* is or relays; None for other messages and for series."""
    if isinstance(message, Relay):
        message = message.message
    return message if isinstance(message, Forward) else None


def events_of(message: Message) -> Iterable[Forward]:
    """Return all events that *message* is or relays."""
    if isinstance(message, EventSeries):
        return message.events()
    event = event_of(message)
    return () if event is None else (event,)


def messages_in(message: Message) -> int:
    """Return as how many messages *message* counts."""
    return message.count if isinstance(message, EventSeries) else 1


class QueuedMessage:
    """A message or a series in the queue. `number` is 0 for messages that are not acknowledged (QoS 0)."""

    __slots__ = ("count", "expires_at", "flow", "is_event", "lsn", "message", "number", "size", "was_sent")

    def __init__(self, message: Message, number: int, expires_at: Instant | None) -> None:
        self.message = message
        self.number = number
        self.expires_at = expires_at
        self.lsn = 0
        """The record that must be on disk before the message is sent."""
        self.flow: tuple[str, str] | None = None
        """The flow that this message keeps in the BACKLOG."""
        self.was_sent = False
        """Whether all of it was sent, so that the peer may have it."""
        self.count = 1
        """The messages that it stands for."""
        event = message if type(message) is Forward else event_of(message)
        if isinstance(message, EventSeries):
            self.count = message.count
            event = message.first
        self.is_event = event is not None
        """Whether it is an event or several."""
        self.size = CONTROL_BYTES if event is None else EVENT_BYTES + len(event.payload) + len(event.topic)

    def has_expired(self, now: Instant) -> bool:
        """Return whether it has expired and was never sent. A sent one may have arrived in time; then the peer decides
        its fate.
        """
        return self.expires_at is not None and now >= self.expires_at and not self.was_sent

    def expires_in_ms(self, now: Instant) -> int | None:
        """Return the remaining message expiry interval at *now*; None: it does not expire."""
        return None if self.expires_at is None else max(0, (self.expires_at - now) // 1_000)


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """The counts of one class, or of all, for the congestion measure: messages and bytes since the link was created."""

    entered: int
    """Q_in, in total."""
    left: int
    """Q_out, in total: sent, or dropped from the queue."""
    waiting: int
    """Q_len: not sent yet."""
    waiting_bytes: int


class ClassQueue:
    """The queue of one class."""

    __slots__ = ("bytes", "entered", "left", "next_number", "unacked", "waiting", "waiting_bytes")

    def __init__(self) -> None:
        self.waiting: deque[QueuedMessage] = deque()
        self.unacked: deque[QueuedMessage] = deque()
        """Numbered messages sent on the present connection, oldest first."""
        self.next_number = 1
        self.entered = 0
        self.left = 0
        self.waiting_bytes = 0
        self.bytes = 0
        """The memory of all entries, waiting and unacknowledged."""

    def __len__(self) -> int:
        return len(self.waiting) + len(self.unacked)

    @property
    def figures(self) -> QueueFigures:
        """The counts for the congestion measure."""
        return QueueFigures(self.entered, self.left, self.entered - self.left, self.waiting_bytes)

    def push(self, entry: QueuedMessage) -> None:
        """Append a message."""
        self.waiting.append(entry)
        self.entered += entry.count
        self.waiting_bytes += entry.size
        self.bytes += entry.size

    def pop(self) -> QueuedMessage:
        """Remove and return the first message, to be sent or dropped. After sending, a numbered one is passed to
        `sent`.
        """
        entry = self.waiting.popleft()
        self.left += entry.count
        self.waiting_bytes -= entry.size
        self.bytes -= entry.size
        return entry

    def sent(self, entry: QueuedMessage) -> None:
        """Keep *entry*, which was sent and is numbered, until it is acknowledged."""
        self.unacked.append(entry)
        self.bytes += entry.size

    def acked(self, upto: int) -> list[QueuedMessage]:
        """Remove and return the entries that the peer has; a waiting one may have been sent on an earlier
        connection.
        """
        acknowledged = []
        for queue in (self.unacked, self.waiting):
            while queue and queue[0].number and queue[0].number <= upto:
                if queue is self.waiting:
                    acknowledged.append(self.pop())
                else:
                    acknowledged.append(queue.popleft())
                    self.bytes -= acknowledged[-1].size
        if upto >= self.next_number:
            self.next_number = upto + 1  # this gateway's disk lost numbers that the peer has received
        return acknowledged

    def lost(self) -> list[QueuedMessage]:
        """Handle the end of a connection: unacknowledged messages wait again, in front; those without a number are
        returned.
        """
        kept: list[QueuedMessage] = []
        dropped: list[QueuedMessage] = []
        for entry in self.waiting:
            (kept if entry.number else dropped).append(entry)
        self.left += sum(entry.count for entry in dropped) - len(self.unacked)
        self.waiting = deque((*self.unacked, *kept))
        self.unacked.clear()
        self.waiting_bytes = self.bytes = sum(entry.size for entry in self.waiting)
        return dropped

    def clear(self) -> list[QueuedMessage]:
        """Remove and return everything."""
        removed = [*self.unacked, *self.waiting]
        self.left = self.entered
        self.unacked.clear()
        self.waiting.clear()
        self.waiting_bytes = self.bytes = 0
        return removed
