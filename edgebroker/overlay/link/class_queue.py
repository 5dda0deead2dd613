"""The queue of one traffic class: messages that wait for a link, and messages that were sent and are not
acknowledged.

The middle of a long BACKLOG is in pages on the disk. In the order of sending there are: what was sent and is not
acknowledged, what waits in memory, the pages, and the tail, where messages enter while there are pages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

from edgebroker.dataclasses import dataclass
from edgebroker.instants import NEVER, Instant
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
    """A message or a series in the queue. `number` is 0 for messages that are not acknowledged (QoS 0); the events of a
    series of QoS 1 have successive numbers, of which it is the last.
    """

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
        if number and self.count > 1 and event is not None:
            self.size += (self.count - 1) * (EVENT_BYTES + len(event.topic))  # it may be taken apart later

    def has_expired(self, now: Instant) -> bool:
        """Return whether it has expired and was never sent. A sent one may have arrived in time; then the peer decides
        its fate.
        """
        return self.expires_at is not None and now >= self.expires_at and not self.was_sent

    def parts(self) -> list[QueuedMessage]:
        """Return what this is in single messages, each with its number; series of QoS 0 stay whole."""
        if not self.number or not isinstance(self.message, EventSeries):
            return [self]
        first = self.number - self.count + 1
        parts = [QueuedMessage(event, number, None) for number, event in enumerate(self.message.events(), first)]
        for part in parts:
            part.was_sent = self.was_sent
        return parts

    def message_at(self, now: Instant) -> Message:
        """Return the message with the remaining expiry interval of its event at *now*."""
        message = self.message
        if self.expires_at is None or isinstance(message, EventSeries):
            return message
        if isinstance(message, Relay) and isinstance(message.message, Forward):
            return replace(message, message=replace(message.message, expires_in_ms=self.expires_in_ms(now)))
        return replace(message, expires_in_ms=self.expires_in_ms(now)) if isinstance(message, Forward) else message

    def expires_in_ms(self, now: Instant) -> int | None:
        """Return the remaining message expiry interval at *now*; None: it does not expire."""
        return None if self.expires_at is None else max(0, (self.expires_at - now) // 1_000)


class LinkPage:
    """What the gateway knows of a page. It takes 400 bytes, for 512 messages that would take 500 KiB."""

    __slots__ = (
        "bytes",
        "count",
        "entries",
        "expires_at",
        "file_bytes",
        "first",
        "flows",
        "held_bytes",
        "is_gone",
        "is_requested",
        "last",
        "lsn",
        "number",
        "others",
        "written_at",
    )

    def __init__(self, number: int, first: int, last: int, count: int, held_bytes: int) -> None:
        self.number = number
        """Names its file; 0 if it is not written, nor on its way."""
        self.first = first
        """The number of its first message..."""
        self.last = last
        """...and of its last. All numbered events of the BACKLOG between them are in it."""
        self.count = count
        self.held_bytes = held_bytes
        """The bytes of the topics and payloads of its messages."""
        self.bytes = held_bytes
        """How many of the outbox's bytes it counts for: `held_bytes`, or the memory of `entries`."""
        self.file_bytes = 0
        self.flows = b""
        """What stands for the flows of its messages (`backlog.page_flows`)."""
        self.written_at: Instant = 0
        """The instant from which expiry in the file counts: the stored clock may be set before it is read."""
        self.expires_at: Instant | None = None
        """When the last of its messages expires; None if some never do."""
        self.lsn = 0
        """The record that must be on disk before its messages of QoS 2 are sent."""
        self.entries: list[QueuedMessage] | None = None
        """Its messages until the file is known to be on the disk; None from then on."""
        self.others: list[tuple[int, QueuedMessage]] = []
        """What waits among its messages and is not in the journal, each with the number of the message before it."""
        self.is_requested = False
        """Whether it is being read."""
        self.is_gone = False
        """Whether it was taken out of the queue."""

    def has_expired(self, now: Instant) -> bool:
        """Return whether all of its messages have expired at *now*."""
        return self.expires_at is not None and now >= self.expires_at


def new_page(entries: list[QueuedMessage]) -> LinkPage:
    """Return a page with *entries*, numbered events in the order of their numbers; at least one must exist."""
    memory = sum([entry.size for entry in entries])
    page = LinkPage(0, entries[0].number, entries[-1].number, len(entries), memory - EVENT_BYTES * len(entries))
    page.bytes = memory
    page.entries = entries
    page.lsn = max([entry.lsn for entry in entries])
    expiries = [entry.expires_at for entry in entries if entry.expires_at is not None]
    page.expires_at = max(expiries) if len(expiries) == len(entries) else None
    return page


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

    __slots__ = (
        "acked_upto",
        "bytes",
        "disk_bytes",
        "entered",
        "followers",
        "left",
        "next_number",
        "paged",
        "pages",
        "sent_before",
        "tail",
        "tail_bytes",
        "unacked",
        "waiting",
        "waiting_bytes",
    )

    def __init__(self) -> None:
        self.waiting: deque[QueuedMessage] = deque()
        """Messages in memory that are sent before all pages."""
        self.pages: deque[LinkPage] = deque()
        """Successive parts of the queue that are on the disk, or on their way there or back."""
        self.tail: deque[QueuedMessage] = deque()
        """Messages behind all pages. Empty if there are none."""
        self.unacked: deque[QueuedMessage] = deque()
        """Numbered messages sent on the present connection, oldest first."""
        self.next_number = 1
        self.acked_upto = 0
        """The peer has everything up to this number."""
        self.sent_before = 0
        """The highest number sent on earlier connections, or that an earlier run may have sent."""
        self.entered = 0
        self.left = 0
        self.followers = 0
        """The events in numbered series, unacknowledged ones too, without the first of each."""
        self.waiting_bytes = 0
        """The memory of `waiting` and `tail`."""
        self.tail_bytes = 0
        self.bytes = 0
        """The memory of all entries, waiting and unacknowledged, and what those in pages hold."""
        self.disk_bytes = 0
        """The part of `bytes` that is on the disk alone."""
        self.paged = 0
        """Messages in pages."""

    def __len__(self) -> int:
        return len(self.waiting) + len(self.unacked) + len(self.tail) + self.paged

    @property
    def sent_upto(self) -> int:
        """The highest number that may have been sent: the peer cannot have a higher one."""
        return max(self.unacked[-1].number if self.unacked else 0, self.sent_before, self.acked_upto)

    @property
    def on_disk(self) -> int:
        """The messages that are on the disk alone."""
        return sum(page.count for page in self.pages if page.entries is None)

    def in_memory(self) -> list[QueuedMessage]:
        """Return the entries in memory, in the order of sending."""
        entries = [*self.unacked, *self.waiting]
        for page in self.pages:
            entries += _merged(page)
        return [*entries, *self.tail]

    @property
    def figures(self) -> QueueFigures:
        """The counts for the congestion measure."""
        return QueueFigures(self.entered, self.left, self.entered - self.left, self.waiting_bytes)

    def push(self, entry: QueuedMessage) -> None:
        """Append a message."""
        if self.pages:
            self.tail.append(entry)
            self.tail_bytes += entry.size
        else:
            self.waiting.append(entry)
        self.entered += entry.count
        self.waiting_bytes += entry.size
        self.bytes += entry.size
        if entry.number:
            self.followers += entry.count - 1

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
        """Remove and return the entries in memory that the peer has; a waiting one may have been sent on an earlier
        connection.
        """
        self.acked_upto = max(upto, self.acked_upto)
        acknowledged = []
        for queue in (self.unacked, self.waiting):
            while queue and queue[0].number and queue[0].number <= upto:
                if queue is self.waiting:
                    acknowledged.append(self.pop())
                else:
                    acknowledged.append(queue.popleft())
                    self.bytes -= acknowledged[-1].size
                self.followers -= acknowledged[-1].count - 1
        return acknowledged

    def lost(self) -> list[QueuedMessage]:
        """Handle the end of a connection: unacknowledged messages wait again, in front; those without a number are
        returned.
        """
        dropped = self.take_bare()
        self._unsend()
        if self.followers:
            self.waiting = deque([part for entry in self.waiting for part in entry.parts()])
            self.followers = 0
        return dropped

    def take_bare(self) -> list[QueuedMessage]:
        """Remove and return the messages that wait without a number."""
        return self._remove(lambda entry: not entry.number)

    def take_events(self) -> list[QueuedMessage]:
        """Remove and return the events that wait in memory, except those on their way to a page."""
        return self._remove(lambda entry: entry.is_event)

    def remove_others(self) -> None:
        """Remove all messages that are not events. What was sent waits again."""
        self._unsend()
        self._remove(lambda entry: not entry.is_event)

    def _unsend(self) -> None:
        """Let what was sent and is not acknowledged wait again, in front."""
        self.sent_before = self.sent_upto
        self.left -= sum([entry.count for entry in self.unacked])
        self.waiting_bytes += sum(entry.size for entry in self.unacked)
        self.waiting.extendleft(reversed(self.unacked))
        self.unacked.clear()

    def _remove(self, wanted: Callable[[QueuedMessage], bool]) -> list[QueuedMessage]:
        """Remove and return the *wanted* messages that wait, but none that are on their way to a page."""
        removed: list[QueuedMessage] = []
        for queue in (self.waiting, self.tail):
            picked = [entry for entry in queue if wanted(entry)]
            if picked:
                kept = [entry for entry in queue if not wanted(entry)]
                queue.clear()
                queue.extend(kept)
                size = sum(entry.size for entry in picked)
                self.waiting_bytes -= size
                self.tail_bytes -= size if queue is self.tail else 0
                self.bytes -= size
                removed += picked
        for page in self.pages:
            picked = [entry for _, entry in page.others if wanted(entry)]
            page.others = [(after, entry) for after, entry in page.others if not wanted(entry)]
            self.bytes -= sum(entry.size for entry in picked)
            removed += picked
        self.left += sum(entry.count for entry in removed)
        return removed

    # -- pages ----------------------------------------------------------------------------------------------------

    def take_page(self, pages: int, messages: int, size: int) -> LinkPage | None:
        """Let the oldest messages behind all pages be one more page: *messages* of them, or up to the one with which it
        holds *size* bytes. Returns None if there are fewer than *pages* times as many.
        """
        is_first = not self.pages
        if is_first and not self._begin_tail(messages, size, pages):
            return None
        if not self._is_long(pages, messages, size):
            self._end_tail()
            return None
        taken: list[QueuedMessage] = []
        others: list[tuple[int, QueuedMessage]] = []
        held = 0
        while self.tail and len(taken) < messages and held < size:
            entry = self.tail.popleft()
            self.tail_bytes -= entry.size
            self.waiting_bytes -= entry.size
            if entry.number and entry.is_event:
                taken.append(entry)
                held += entry.size - EVENT_BYTES
            else:
                others.append((taken[-1].number if taken else 0, entry))
        if not taken:
            self._keep_in_front([entry for _, entry in others], len(self.pages))
            self._end_tail()
            return None
        page = new_page(taken)
        page.others = others
        self.pages.append(page)
        self.paged += page.count
        return page

    def _is_long(self, pages: int, messages: int, size: int) -> bool:
        tail = len(self.tail)
        return tail >= pages * messages or self.tail_bytes - EVENT_BYTES * tail >= pages * size

    def _begin_tail(self, messages: int, size: int, pages: int) -> bool:
        """Let what is to go to the first page be the tail: not what was sent, which the peer may have, and not the
        first page's worth of messages. Returns whether it may be long enough.
        """
        count = len(self.waiting)
        held = self.waiting_bytes - EVENT_BYTES * count
        if count < (pages + 1) * messages and held < (pages + 1) * size:
            return False
        kept = min(messages, count // (pages + 1))
        while len(self.waiting) > kept and not self.waiting[-1].was_sent:
            entry = self.waiting.pop()
            self.tail.appendleft(entry)
            self.tail_bytes += entry.size
        return True

    def _end_tail(self) -> None:
        """If there are no pages, let the tail wait in front again."""
        if not self.pages:
            self.waiting.extend(self.tail)
            self.tail.clear()
            self.tail_bytes = 0

    def restore_page(self, page: LinkPage) -> None:
        """Append *page*, which is on the disk. What was pushed since the last one is a page of its own in memory."""
        if self.tail:
            before = new_page(list(self.tail))
            self.waiting_bytes -= self.tail_bytes
            self.tail.clear()
            self.tail_bytes = 0
            self.pages.append(before)
            self.paged += before.count
        self.pages.append(page)
        self.paged += page.count
        self.bytes += page.bytes
        self.disk_bytes += page.bytes
        self.entered += page.count

    def page_written(self, page: LinkPage) -> None:
        """The messages of *page* are on the disk alone."""
        page.entries = None
        self.bytes += page.held_bytes - page.bytes
        page.bytes = page.held_bytes
        self.disk_bytes += page.bytes

    def page_in(self, entries: list[QueuedMessage]) -> None:
        """Let *entries*, those of the first page, wait in memory instead of it."""
        page = self.pages.popleft()
        self.disk_bytes -= page.bytes if page.entries is None else 0
        page.entries = entries
        merged = _merged(page)
        self.waiting.extend(merged)
        self.waiting_bytes += sum([entry.size for entry in merged])
        self.bytes += sum([entry.size for entry in entries])
        self._removed(page)

    def give_up(self, page: LinkPage) -> None:
        """Remove *page* with its messages."""
        at = self.pages.index(page)
        self._keep_in_front([entry for _, entry in page.others], at)
        del self.pages[at]
        self.disk_bytes -= page.bytes if page.entries is None else 0
        self.left += page.count
        self._removed(page)

    def _keep_in_front(self, entries: list[QueuedMessage], at: int) -> None:
        """Let *entries*, which are in memory, be sent before the page that is or would be number *at*."""
        if at:
            self.pages[at - 1].others += [(NEVER, entry) for entry in entries]
        else:
            self.waiting.extend(entries)
            self.waiting_bytes += sum([entry.size for entry in entries])

    def _removed(self, page: LinkPage) -> None:
        page.is_gone = True
        self.paged -= page.count
        self.bytes -= page.bytes
        self._end_tail()


def _merged(page: LinkPage) -> list[QueuedMessage]:
    """Return what *page* has in memory, in the order of sending."""
    if not page.others:
        return page.entries or []
    rows = [(entry.number, 0, entry) for entry in page.entries or ()]
    rows += [(after, 1, entry) for after, entry in page.others]
    rows.sort(key=lambda row: row[:2])
    return [entry for _, _, entry in rows]
