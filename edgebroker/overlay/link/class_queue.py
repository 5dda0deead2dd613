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
"""What a message that is no event is taken to be in memory. Interests of 64 tests are more, most are less."""
EVENT_BYTES = 512
"""Of an event besides topic and payload."""


def event_of(message: Message) -> Forward | None:
    """The event that *message* is or carries past what is down; None: it is about something else, or several."""
    if isinstance(message, Relay):
        message = message.message
    return message if isinstance(message, Forward) else None


def events_of(message: Message) -> Iterable[Forward]:
    """All events that *message* is or carries."""
    if isinstance(message, EventSeries):
        return message.events()
    event = event_of(message)
    return () if event is None else (event,)


def messages_in(message: Message) -> int:
    """For how many *message* counts."""
    return message.count if isinstance(message, EventSeries) else 1


class QueuedMessage:
    """One message on its way, or a series. `number` is 0 for what is sent once or never (QoS 0)."""

    __slots__ = ("count", "expires_at", "flow", "is_event", "lsn", "message", "number", "size", "was_sent")

    def __init__(self, message: Message, number: int, expires_at: Instant | None) -> None:
        self.message = message
        self.number = number
        self.expires_at = expires_at
        self.lsn = 0
        """The record that must be on disk before it is sent."""
        self.flow: tuple[str, str] | None = None
        """The flow that is late because of it."""
        self.was_sent = False
        """As a whole: the peer may have it, whoever lost the connection meanwhile."""
        self.count = 1
        """Messages that it stands for."""
        event = message if type(message) is Forward else event_of(message)
        if isinstance(message, EventSeries):
            self.count = message.count
            event = message.first
        self.is_event = event is not None
        """Or several."""
        self.size = CONTROL_BYTES if event is None else EVENT_BYTES + len(event.payload) + len(event.topic)

    def has_expired(self, now: Instant) -> bool:
        """Whether it is of no use any more and never was sent. Else the peer says what became of it: it may have had it
        in time, and counts it as expired if not.
        """
        return self.expires_at is not None and now >= self.expires_at and not self.was_sent

    def expires_in_ms(self, now: Instant) -> int | None:
        """How long it is of use from *now* on; None: for ever."""
        return None if self.expires_at is None else max(0, (self.expires_at - now) // 1_000)


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """What the congestion measure asks of one class (or all): messages and bytes since the link was made."""

    entered: int
    """Q_in, ever."""
    left: int
    """Q_out, ever: sent, or dropped from the queue."""
    waiting: int
    """Q_len: not sent yet."""
    waiting_bytes: int


class ClassQueue:
    """One class."""

    __slots__ = ("bytes", "entered", "left", "next_number", "unacked", "waiting", "waiting_bytes")

    def __init__(self) -> None:
        self.waiting: deque[QueuedMessage] = deque()
        self.unacked: deque[QueuedMessage] = deque()
        """Sent over the present connection and numbered, oldest first."""
        self.next_number = 1
        self.entered = 0
        self.left = 0
        self.waiting_bytes = 0
        self.bytes = 0
        """Of all entries, waiting and unacknowledged."""

    def __len__(self) -> int:
        return len(self.waiting) + len(self.unacked)

    @property
    def figures(self) -> QueueFigures:
        """The queue as congestion sees it."""
        return QueueFigures(self.entered, self.left, self.entered - self.left, self.waiting_bytes)

    def push(self, entry: QueuedMessage) -> None:
        """A message enters, at the end."""
        self.waiting.append(entry)
        self.entered += entry.count
        self.waiting_bytes += entry.size
        self.bytes += entry.size

    def pop(self) -> QueuedMessage:
        """The first one leaves, to be sent or dropped. A numbered one that was sent goes to `unacked`."""
        entry = self.waiting.popleft()
        self.left += entry.count
        self.waiting_bytes -= entry.size
        self.bytes -= entry.size
        return entry

    def sent(self, entry: QueuedMessage) -> None:
        """*entry* was sent and is numbered: keep it until it is acknowledged."""
        self.unacked.append(entry)
        self.bytes += entry.size

    def acked(self, upto: int) -> list[QueuedMessage]:
        """The entries that the peer has, which leave: sent, or about to be sent again."""
        gone = []
        for queue in (self.unacked, self.waiting):
            while queue and queue[0].number and queue[0].number <= upto:
                if queue is self.waiting:
                    gone.append(self.pop())
                else:
                    gone.append(queue.popleft())
                    self.bytes -= gone[-1].size
        if upto >= self.next_number:
            self.next_number = upto + 1  # our own disk forgot what the peer knows
        return gone

    def lost(self) -> list[QueuedMessage]:
        """The connection ended: what was sent and is numbered waits again, in front; the rest leaves."""
        kept: list[QueuedMessage] = []
        gone: list[QueuedMessage] = []
        for entry in self.waiting:
            (kept if entry.number else gone).append(entry)
        self.left += sum(entry.count for entry in gone) - len(self.unacked)
        self.waiting = deque((*self.unacked, *kept))
        self.unacked.clear()
        self.waiting_bytes = self.bytes = sum(entry.size for entry in self.waiting)
        return gone

    def clear(self) -> list[QueuedMessage]:
        """Everything leaves."""
        gone = [*self.unacked, *self.waiting]
        self.left = self.entered
        self.unacked.clear()
        self.waiting.clear()
        self.waiting_bytes = self.bytes = 0
        return gone
