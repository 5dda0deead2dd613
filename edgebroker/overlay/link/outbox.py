"""The outbox of one link: messages for a peer, until the peer has acknowledged them. LinkSender encodes them as frames.

Numbered messages (events of QoS 1 and 2, and all messages that are not events) get the next number of their class when
they are accepted. Events among them are appended to the journal at once; a publisher is acknowledged after the sync. A
message without number (QoS 0) leaves the outbox when it is sent, or when the connection ends.

**Order.** An event is LIVE if the link is open and LIVE has room; else BACKLOG. Once an event of a flow (publisher and
topic) is in the BACKLOG, all later ones of that flow go there too, until the peer has acknowledged them, or until they
are sent if they have no number. After a connection was lost, or when a flow moves to the BACKLOG, the events in LIVE at
that moment may be older: BACKLOG waits until they are sent.

**Numbers across restarts.** A number may have reached the peer although the journal lost it in a power cut, and must
not be used again. So numbers are reserved in the journal, `OutboxBounds.numbers` at a time; none is sent before its
reservation is on disk, and a new run begins behind all reserved numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.instants import Instant
from edgebroker.limits import KIB, MIB, QUEUE_BYTES_MAX, QUEUE_MESSAGES_MAX
from edgebroker.log_schema import Cause, Fate
from edgebroker.overlay.link.backlog import (
    BacklogFlows,
    PageRow,
    encode_rows,
    flow_key,
    page_flows,
    read_entry,
)
from edgebroker.overlay.link.budget import OutboxFull
from edgebroker.overlay.link.class_queue import (
    ClassQueue,
    LinkPage,
    QueuedMessage,
    event_of,
    events_of,
    messages_in,
)
from edgebroker.overlay.link.codec.events import RELIABLE_SERIES_MAX, AloneWriter
from edgebroker.overlay.link.codec.messages import alone
from edgebroker.overlay.link.journal_entries import LinkStorage, RepeatedEntries, SharedEntry
from edgebroker.overlay.link.journal_records import (
    StoredLink,
    entry_record,
    paged_record,
    reserved_record,
    settled_record,
    unpaged_record,
)
from edgebroker.overlay.messages import EventSeries, Forward, Message
from edgebroker.overlay.traffic_class import TrafficClass

SERIES_BYTES: Final = 4 * KIB
"""The payload bytes of a series in one item: an item's overhead is small for this size, and a frame of 15 KiB grows
little.
"""


@dataclass(frozen=True, slots=True)
class OutboxBounds:
    """The limits of one link's outbox."""

    messages: int = QUEUE_MESSAGES_MAX
    """Events, waiting and unacknowledged. The middle of a long BACKLOG is on the disk."""
    memory_messages: int = 100_000
    """The same without a journal: three hours of 10 messages a second."""
    bytes: int = QUEUE_BYTES_MAX
    """The memory of these events, and the topics and payloads of those that are on the disk alone."""
    is_by_disk: bool = False
    """Whether `LinkOutbox.bytes_max` grows beyond `bytes` with what is free on the disk."""
    memory_bytes: int = QUEUE_BYTES_MAX
    """The memory of these events; reached while they cannot be moved to the disk as fast as they arrive."""
    policy: OutboxFull = OutboxFull.REFUSE
    live_bytes: int = 1 * MIB
    """The memory of messages waiting in LIVE. Beyond it numbered events go to the BACKLOG, others are dropped."""
    bare_bytes: int = 1 * MIB
    """The memory of messages without number that wait in any other class."""
    control_messages: int = 10_000
    """Messages of CONTROL; beyond it the connection is closed, and routing state is compared after the next one
    opens.
    """
    numbers: int = 1 << 20
    """Numbers reserved at a time. A restart skips at most so many. More are reserved when half of them are used: in a
    minute at 10,000 a second.
    """


BOUNDS: Final = OutboxBounds()
RESERVE: Final = 2
"""With a disk, as many times the bounds are filled before events are refused that the peer may not even want."""


def reliable_parts(series: EventSeries) -> Iterator[EventSeries | Forward]:
    """Iterate over *series*, of QoS 1, in parts that are one item and one record each."""
    return series.parts(min(SERIES_BYTES, RELIABLE_SERIES_MAX * (len(series.first.payload) // series.count)))


@dataclass(frozen=True, slots=True)
class DroppedMessages:
    """Messages that were dropped, and why."""

    messages: tuple[Message, ...]
    cause: Cause
    fate: Fate = Fate.DROPPED
    """EXPIRED, or DROPPED because of `cause`."""


class LinkOutbox:
    """The queues of all classes of one link."""

    def __init__(self, peer: str, bounds: OutboxBounds, storage: LinkStorage | None) -> None:
        self.peer = peer
        self.queues = {service: ClassQueue() for service in TrafficClass}
        self.backlog = self.queues[TrafficClass.BACKLOG]
        self._events = [queue for service, queue in self.queues.items() if service is not TrafficClass.CONTROL]
        self.clock = 0
        """The difference between the stored clock and instants."""
        self.is_open = False
        """Whether there is a connection."""
        self.is_overrun = False
        """Whether a CONTROL message was dropped: the connection must end, and routing state must be compared."""
        self.has_backpressure = False
        """Whether seven eighths are used, until `update_backpressure` finds less than three quarters."""
        self.bytes_max = bounds.bytes
        """The events that local clients may add, in bytes: `OutboxBounds.bytes`, or more if the disk has room."""
        self.drops: list[DroppedMessages] = []
        """Dropped messages since `Link.take_events`."""
        self.delivered: list[Message] = []
        """Events that the peer has, or QoS 0 events that were written, since `Link.take_events`."""
        self.dropped: dict[Cause, int] = {}
        """Cause -> total number of dropped messages."""
        self._bounds = bounds
        self._messages_max = min(bounds.messages, bounds.memory_messages) if storage is None else bounds.messages
        # Events of other gateways were acknowledged to their publishers. So with a disk they are accepted as long as
        # the journal takes them: backpressure has told all gateways to send no more.
        self._used_max = inf if storage is not None and bounds.policy is OutboxFull.REFUSE else 1
        self._memory_max = bounds.memory_bytes
        self._storage = storage
        self._alone = AloneWriter()
        self._backlog_flows = BacklogFlows()
        self._bare: dict[TrafficClass, int] = dict.fromkeys(TrafficClass, 0)  # waiting bytes without a number
        self._reserved = 0 if storage is not None else 1 << 64  # reservation on disk: numbers up to it may be sent
        self._requested = 0  # reservation appended to the journal
        self._requested_lsn = self._settled_lsn = 0  # no message is sent before the latter is on disk
        self._settled: dict[TrafficClass, int] = {}  # in this run; a crash may still lose the record
        # An event of QoS 2 is sent only when it is on disk: otherwise, after a crash, its publisher would send it
        # again as a new event, and the peer would get a duplicate.
        self._synced = 0
        self._ahead = 0  # entries of LIVE that must be sent before the BACKLOG

    # -- enqueueing -----------------------------------------------------------------------------------------------

    def enqueue(
        self, message: Message, service: TrafficClass, now: Instant, shared: SharedEntry | None = None
    ) -> Cause:
        """Accept *message*; returns Cause.NONE, or why it is dropped. *shared*: if it is numbered, its record is there,
        with the copies for other links.
        """
        if isinstance(message, EventSeries):
            if message.first.qos:
                return self._enqueue_reliable_series(message, service, now, shared)
            return self._enqueue_series(message, service)
        event = message if type(message) is Forward else event_of(message)
        if event is None:
            return self._enqueue_other(message, service)
        expires_at = None if event.expires_in_ms is None else now + event.expires_in_ms * 1_000
        flows = self._backlog_flows
        if service is TrafficClass.LIVE and (
            not self.is_open or flow_key(event) in flows.counts or (flows.paged and flows.is_paged(event))
        ):
            service = TrafficClass.BACKLOG
        queue = self.queues[service]
        if event.qos == 0:
            return self._enqueue_bare(QueuedMessage(message, 0, expires_at), service)
        if service is TrafficClass.LIVE and queue.waiting_bytes >= self._bounds.live_bytes:
            self._ahead = len(queue.waiting)
            service = TrafficClass.BACKLOG
            queue = self.queues[service]
        entry = QueuedMessage(message, queue.next_number, expires_at)
        if self._is_full(entry.size):
            return self._drop((message,), Cause.QUEUE_FULL)
        if self._storage is not None:
            self._reserve(entry.number, self._storage)
            at = None if expires_at is None else expires_at + self.clock
            if shared is not None:
                shared.add(self.peer, service, entry, event, at, self._alone)
            else:
                item = self._alone.write(event, int(service)) if message is event else alone(message, service)
                lsn = self._storage.append(entry_record(self.peer, service, entry.number, at, item), waits=True)
                if event.qos == 2:
                    entry.lsn = lsn
        self._push(entry, service)
        return Cause.NONE

    def _enqueue_other(self, message: Message, service: TrafficClass) -> Cause:
        """Accept a message that is not an event."""
        queue = self.queues[service]
        if len(queue) >= self._bounds.control_messages:
            self.is_overrun |= service is TrafficClass.CONTROL  # other queues are full of events
            return self._drop((message,), Cause.QUEUE_FULL)
        if service is not TrafficClass.CONTROL and self._storage is not None:
            self._reserve(queue.next_number, self._storage)
        queue.push(QueuedMessage(message, queue.next_number, None))
        queue.next_number += 1
        return Cause.NONE

    def _reserve(self, number: int, storage: LinkStorage) -> None:
        """Ensure that *number* is covered by a reservation on disk, or by one on its way there."""
        if number + self._bounds.numbers // 2 > self._requested:
            self._requested = max(self._requested, number) + self._bounds.numbers
            self._requested_lsn = storage.append(reserved_record(self.peer, self._requested), waits=True)

    def _enqueue_series(self, series: EventSeries, service: TrafficClass) -> Cause:
        """Accept as many events of the series as fit; the others are added to `drops` too."""
        flows, event = self._backlog_flows, series.first
        if service is TrafficClass.LIVE and (
            not self.is_open or flow_key(event) in flows.counts or (flows.paged and flows.is_paged(event))
        ):
            service = TrafficClass.BACKLOG
        causes = [self._enqueue_bare(QueuedMessage(part, 0, None), service) for part in series.parts(SERIES_BYTES)]
        return causes[-1]

    def _enqueue_reliable_series(
        self, series: EventSeries, service: TrafficClass, now: Instant, shared: SharedEntry | None
    ) -> Cause:
        """Accept the events of *series*, which are of QoS 1 and do not expire. *shared*: as in `enqueue`,
        if *series* is one of `reliable_parts`.

        They stay together in LIVE only, and only as long as the connection lasts: all else finds single events in the
        queues. Returns what `enqueue` returns for the last of them.
        """
        event, queue, cause = series.first, self.queues[service], Cause.NONE
        are_short = len(event.topic) + len(event.client) <= SERIES_BYTES and service is TrafficClass.LIVE
        for part in reliable_parts(series):
            entry = QueuedMessage(part, queue.next_number + messages_in(part) - 1, None)
            stays_whole = are_short and self.is_open and queue.waiting_bytes < self._bounds.live_bytes
            if (
                not stays_whole
                or self._backlog_flows.paged
                or flow_key(event) in self._backlog_flows.counts
                or self._is_full(entry.size, entry.count)
            ):
                for each in events_of(part):
                    cause = self.enqueue(each, service, now)
                continue
            if self._storage is not None:
                self._reserve(entry.number, self._storage)
                if shared is not None:
                    shared.add(self.peer, service, entry, part, None, self._alone)
                else:
                    record = entry_record(self.peer, service, entry.number, None, alone(part, service))
                    self._storage.append(record, waits=True)
            self._push(entry, service)
            cause = Cause.NONE
        return cause

    def _enqueue_bare(self, entry: QueuedMessage, service: TrafficClass) -> Cause:
        """Accept a message without a number."""
        if not self.is_open:
            return self._drop((entry.message,), Cause.OFFLINE)
        limit = self._bounds.live_bytes if service is TrafficClass.LIVE else self._bounds.bare_bytes
        if self._bare[service] + entry.size > limit:
            return self._drop((entry.message,), Cause.OUT_BUFFER_FULL)
        self._bare[service] += entry.size
        if service is TrafficClass.BACKLOG:
            self._backlog_flows.add(entry)
        self.queues[service].push(entry)
        return Cause.NONE

    @property
    def messages_max(self) -> int:
        """The events that may wait."""
        return self._messages_max

    def grow(self, size: int) -> None:
        """Let *size* bytes be the limit if it is the disk that sets it, and they are more than is always allowed."""
        if self._bounds.is_by_disk:
            self.bytes_max = max(self._bounds.bytes, size)

    def has_room(self, size: int, count: int = 1) -> bool:
        """Return whether to accept *count* events of a local client, of *size* bytes, which can be refused.

        The last sixteenth is reserved for events of other gateways, which have been acknowledged to their publishers.
        """
        return self._used(size, count) <= 15 / 16 or not self.refuses

    def has_reserve(self, size: int) -> bool:
        """Return whether to accept a local client's event of *size* bytes for a peer that may want it or not."""
        return self._used(size) <= min(self._used_max, RESERVE) - 1 / 16 or not self.refuses

    @property
    def refuses(self) -> bool:
        """Whether publishers are refused when it is full."""
        return self._bounds.policy is OutboxFull.REFUSE

    def waiting_room(self) -> tuple[int, int]:
        """Return how many events of local clients, and how many bytes of them, may wait before they are given to this
        outbox, so that they find room then: half of what is reserved.
        """
        return self._messages_max // 32, self._bounds.bytes // 32

    @property
    def is_nearly_full(self) -> bool:
        """Whether seven eighths of the messages or bytes are used: soon events for the peer are refused, or dropped."""
        return self._used(0) >= 7 / 8

    def update_backpressure(self) -> None:
        """End backpressure if the outbox has room again."""
        self.has_backpressure = self._used(0) >= 3 / 4

    def _is_full(self, more: int, count: int = 1) -> bool:
        """Return whether *count* events of *more* bytes would exceed the limits; begins backpressure if it is nearly
        so.
        """
        used = self._used(more, count)
        if used >= 7 / 8:
            self.has_backpressure = True
        return used > self._used_max

    def _used(self, more: int, count: int = 1) -> float:
        """Return the share of the outbox that is used with *count* more events of *more* bytes in all; without them for
        the size of 0.
        """
        messages = count if more else 0  # not by `use` and `max`: this runs twice for every event
        size = more
        for queue in self._events:
            messages += len(queue.waiting) + len(queue.unacked) + queue.followers
            size += queue.bytes
        backlog = self.backlog
        if backlog.pages:
            messages += backlog.paged + len(backlog.tail)
        used = messages / self._messages_max
        share = size / self.bytes_max
        if share > used:
            used = share
        share = (size - backlog.disk_bytes) / self._memory_max
        return share if share > used else used

    @property
    def use(self) -> tuple[int, int, int]:
        """The events, waiting and unacknowledged, their bytes, and those of them that are in memory."""
        messages = size = 0
        for queue in self._events:
            messages += len(queue.waiting) + len(queue.unacked) + queue.followers
            size += queue.bytes
        if self.backlog.pages:
            messages += self.backlog.paged + len(self.backlog.tail)
        return messages, size, size - self.backlog.disk_bytes

    def _push(self, entry: QueuedMessage, service: TrafficClass) -> None:
        queue = self.queues[service]
        queue.push(entry)
        queue.next_number = entry.number + 1
        if service is TrafficClass.BACKLOG:
            self._backlog_flows.add(entry)

    # -- sending --------------------------------------------------------------------------------------------------

    def ready(self, allowed: Collection[TrafficClass]) -> list[TrafficClass]:
        """Return those of *allowed* that may send."""
        ready_services = [service for service in allowed if self._may_send(service)]
        if (
            self._ahead
            and TrafficClass.BACKLOG in ready_services
            and TrafficClass.LIVE in allowed
            and self.queues[TrafficClass.LIVE].waiting
        ):
            ready_services.remove(TrafficClass.BACKLOG)
        return ready_services

    def _may_send(self, service: TrafficClass) -> bool:
        """Return whether the first waiting message is on disk, if it has to be. Numbers of CONTROL are not durable."""
        if not (waiting := self.queues[service].waiting):
            return False
        entry = waiting[0]
        is_given = entry.number <= self._reserved and self._settled_lsn <= self._synced
        return (is_given or service is TrafficClass.CONTROL) and entry.lsn <= self._synced

    def dequeue(self, service: TrafficClass, now: Instant) -> QueuedMessage | None:
        """Remove and return the next message of *service* to send; None if none may be sent now."""
        queue = self.queues[service]
        while self._may_send(service):
            entry = queue.pop()
            if service is TrafficClass.LIVE and self._ahead:
                self._ahead -= 1
            if not entry.number:
                self._bare[service] -= entry.size
            if not entry.has_expired(now):
                return entry
            self._backlog_flows.leave(entry)
            self.drops.append(DroppedMessages((entry.message,), Cause.NONE, Fate.EXPIRED))
        return None

    def sent(self, service: TrafficClass, entry: QueuedMessage) -> None:
        """Record that *entry*, or its first part, is sent."""
        if entry.number:
            self.queues[service].sent(entry)

    def written(self, entry: QueuedMessage) -> None:
        """Record that all of *entry* is sent."""
        entry.was_sent = True
        if not entry.number:
            self._backlog_flows.leave(entry)
            self.delivered.append(entry.message)

    @property
    def waiting_bytes(self) -> int:
        """The memory of waiting messages in all queues, in bytes."""
        return sum(queue.waiting_bytes for queue in self.queues.values())

    def requeue(self, entry: QueuedMessage) -> None:
        """Handle a partly sent *entry* after the connection ended: a numbered one is sent again, any other is
        dropped.
        """
        if not entry.number:
            self._backlog_flows.leave(entry)
            self._drop((entry.message,), Cause.CONNECTION_LOST)

    @property
    def awaits_ack(self) -> bool:
        """Whether the peer owes an acknowledgement."""
        return any(queue.unacked for queue in self.queues.values())

    def last_sent(self) -> dict[TrafficClass, int]:
        """Return class -> the number of the last event that was sent and is not acknowledged."""
        return {
            service: queue.unacked[-1].number
            for service, queue in self.queues.items()
            if queue.unacked and service is not TrafficClass.CONTROL
        }

    def unacked_upto(self, numbers: Mapping[TrafficClass, int]) -> int:
        """Return how many messages up to *numbers*, class -> number, were sent and are not acknowledged."""
        count = 0
        for service, upto in numbers.items():
            queue = self.queues[service]
            if queue.unacked and (first := queue.unacked[0].number - queue.unacked[0].count + 1) <= upto:
                # Their numbers follow each other but for a restart.
                count += min(len(queue.unacked) + queue.followers, upto - first + 1)
        return count

    def acked(self, service: TrafficClass, upto: int) -> None:
        """Handle an acknowledgement of all numbers of *service* up to *upto*."""
        acknowledged = self.queues[service].acked(upto)
        events = [entry.message for entry in acknowledged if entry.is_event]
        for entry in acknowledged:
            self._backlog_flows.leave(entry)
        self.delivered += events
        if events and self._storage is not None:
            self._settled[service] = upto
            self._storage.append(settled_record(self.peer, service, upto), waits=False)

    # -- connections ----------------------------------------------------------------------------------------------

    def opened(self, received: Mapping[TrafficClass, int], goes_on: bool) -> None:
        """Begin a connection to a peer that has *received* these numbers; *goes_on*: it has all CONTROL messages so
        far.
        """
        if not goes_on or self.is_overrun:
            self._clear_others()
        for service, upto in received.items():
            self.acked(service, upto)
        for service, upto in self._settled.items():
            if self._storage is not None and received.get(service, 0) < upto:  # the peer has lost these numbers
                self._settled_lsn = self._storage.append(settled_record(self.peer, service, upto), waits=True)
        self._ahead = len(self.queues[TrafficClass.LIVE].waiting)
        self.is_open = True
        self.is_overrun = False

    def closed(self) -> None:
        """End the connection."""
        self.is_open = False
        for service, queue in self.queues.items():
            dropped = queue.lost()
            if dropped:
                self._drop_bare(dropped, Cause.CONNECTION_LOST)
            self._bare[service] = 0

    def _clear_others(self) -> None:
        """Remove all messages that are not events; they are meaningless for a peer that lost its state."""
        for queue in self.queues.values():
            queue.remove_others()

    def refuse(self, services: Iterable[TrafficClass], cause: Cause) -> None:
        """Drop messages of *services* that wait without a number, because they cannot be sent for a long time."""
        for service in services:
            queue = self.queues[service]
            if self._bare[service]:
                self._bare[service] = 0
                self._drop_bare(queue.take_bare(), cause)

    def discard(self, cause: Cause) -> int:
        """Drop all events that wait in memory, because of *cause*; there is no connection. Returns their number."""
        dropped: list[QueuedMessage] = []
        for service, queue in self.queues.items():
            events = queue.take_events()
            dropped += events
            if service is not TrafficClass.CONTROL and events and self._storage is not None:
                self._settled[service] = queue.next_number - 1
                self._storage.append(settled_record(self.peer, service, queue.next_number - 1), waits=True)
        self._drop_bare(dropped, cause)
        self._ahead = 0
        return sum([entry.count for entry in dropped])

    def take_marks(self, now: Instant) -> list[Forward]:
        """Return the events in memory that are for other clusters than the peer's too; here they wait for its own only.

        Events of QoS 2 that the peer may have are not among them: it may have handed them on.
        """
        marked = []
        for service, queue in self.queues.items():
            for entry in queue.in_memory():
                event = entry.message
                if type(event) is not Forward or not event.header.civ or not entry.number or entry.has_expired(now):
                    continue
                if event.qos == 2 and (entry.was_sent or entry.number <= queue.sent_before):
                    continue
                marked.append(replace(event, expires_in_ms=entry.expires_in_ms(now)))
                entry.message = event = replace(event, header=replace(event.header, civ=0))
                if self._storage is not None:
                    at = None if entry.expires_at is None else entry.expires_at + self.clock
                    record = entry_record(self.peer, service, entry.number, at, alone(event, service))
                    entry.lsn = self._storage.append(record, waits=True)
        return marked

    def _drop_bare(self, entries: list[QueuedMessage], cause: Cause) -> None:
        for entry in entries:
            self._backlog_flows.leave(entry)
        self._drop(tuple(entry.message for entry in entries), cause)

    def _drop(self, messages: tuple[Message, ...], cause: Cause) -> Cause:
        self.drops.append(DroppedMessages(messages, cause))
        self.dropped[cause] = self.dropped.get(cause, 0) + sum(map(messages_in, messages))
        return cause

    def synced(self, lsn: int) -> None:
        """Handle a sync of the journal up to *lsn*."""
        self._synced = lsn
        if lsn >= self._requested_lsn:
            self._reserved = max(self._reserved, self._requested)

    # -- the journal ----------------------------------------------------------------------------------------------

    def restore(self, stored: StoredLink) -> int:
        """Restore the state of an earlier run; `clock` must be set. Returns how many entries could not be decoded."""
        broken = 0
        settled = stored.settled.get(TrafficClass.BACKLOG, 0)
        pages = deque(
            sorted([page for page in stored.pages.values() if page.last > settled], key=lambda page: page.first)
        )
        for service, entries in stored.entries.items():
            settled = stored.settled.get(service, 0)
            for number, (expires_at, item) in sorted(entries.items()):
                if number <= settled:  # a snapshot repeated it before it was settled
                    continue
                while service is TrafficClass.BACKLOG and pages and pages[0].first < number:
                    self._restore_page(pages.popleft())
                at = None if expires_at is None else expires_at - self.clock
                entry = read_entry(number, at, item, stored.messages)
                if entry is None:
                    broken += 1
                    continue
                for part in entry.parts():
                    if part.number > settled:
                        self._push(part, service)
        for page in pages:
            self._restore_page(page)
        self._requested = max(stored.reserved, *stored.last.values(), 0)
        if self._storage is not None:
            self._reserved = self._requested
        for queue in self.queues.values():
            queue.next_number = self._requested + 1
            queue.sent_before = self._requested  # the earlier run may have sent all of them
        self._is_full(0)
        return broken

    def _restore_page(self, page: LinkPage) -> None:
        page.written_at -= self.clock
        page.expires_at = None if page.expires_at is None else page.expires_at - self.clock
        self.backlog.restore_page(page)
        self._backlog_flows.add_page(page)

    def events(self) -> list[Forward]:
        """Return the events in memory that wait or are not acknowledged."""
        entries = [entry for queue in self.queues.values() for entry in queue.in_memory()]
        return [event for entry in entries for event in events_of(entry.message)]

    def records(self, repeated: RepeatedEntries) -> Iterable[bytes]:
        """Iterate over the records that restore this outbox, for a snapshot; its messages are added to *repeated*, the
        records of which must follow. Others may be appended and settled meanwhile.
        """
        used = max(queue.next_number for queue in self.queues.values()) - 1
        reserved = self._requested if self._storage is not None else max(self._requested, used)
        if reserved:
            yield reserved_record(self.peer, reserved)
        for service, queue in self.queues.items():
            last = queue.next_number - 1
            if service is TrafficClass.CONTROL or not last:
                continue
            numbered = [entry for entry in queue.in_memory() if entry.number and entry.is_event]
            pages = [page for page in queue.pages if page.entries is None]
            firsts = [entry.number - entry.count + 1 for entry in numbered[:1]] + [page.first for page in pages[:1]]
            yield settled_record(self.peer, service, min(firsts) - 1 if firsts else last)
            for entry in numbered:
                at = None if entry.expires_at is None else entry.expires_at + self.clock
                repeated.add(self.peer, service, entry, at)
            for page in pages:
                if not page.is_gone:
                    yield paged_record(self.peer, page, self.clock)

    # -- pages ----------------------------------------------------------------------------------------------------

    def page_content(self, page: LinkPage, accounts: Sequence[int], now: Instant) -> bytes:
        """Return what to write for *page*; *accounts*: the numbers of its messages in the accounts, none if they have
        none.
        """
        rows = []
        page.written_at = now
        page.flows = page_flows(page.entries or ())
        for at, entry in enumerate(page.entries or ()):
            message, service = entry.message, TrafficClass.BACKLOG
            item = self._alone.write(message, service) if isinstance(message, Forward) else alone(message, service)
            expires_in = None if entry.expires_at is None else max(0, entry.expires_at - now)
            rows.append(PageRow(entry.number, accounts[at] if accounts else 0, expires_in, item))
        return encode_rows(rows)

    def page_written(self, page: LinkPage) -> list[Message]:
        """Handle that *page* is on the disk: memory is rid of its messages. Returns them."""
        entries = page.entries or []
        if self._storage is not None:
            self._storage.append(paged_record(self.peer, page, self.clock), waits=False)
        for entry in entries:
            self._backlog_flows.leave(entry)
            entry.number = 0  # a snapshot under way passes over it
        self._backlog_flows.add_page(page)
        self.backlog.page_written(page)
        return [entry.message for entry in entries]

    def page_in(self, page: LinkPage, entries: list[QueuedMessage], content: bytes) -> int:
        """Let the *entries* of *page*, the first one, wait in memory again. Returns the record that says so."""
        lsn = 0
        if self._storage is not None:
            record = unpaged_record(self.peer, page.number, page.written_at + self.clock, content)
            lsn = self._storage.append(record, waits=False)
        self._backlog_flows.remove_page(page)
        for entry in entries:
            self._backlog_flows.add(entry)
        self.keep_in_memory(entries)
        return lsn

    def keep_in_memory(self, entries: list[QueuedMessage]) -> None:
        """Let *entries*, those of the first page, wait in memory, where they may have been all the time."""
        self.backlog.page_in(entries)
        self._forget_acked()

    def drop_page(self, page: LinkPage, entries: list[QueuedMessage], cause: Cause = Cause.NONE) -> int:
        """Drop *page*, of which *entries* could be read: they have expired, or *cause* says why. Returns the record
        that says so.
        """
        lsn = 0
        if self._storage is not None:
            lsn = self._storage.append(unpaged_record(self.peer, page.number, 0, b""), waits=False)
        self._backlog_flows.remove_page(page)
        self.backlog.give_up(page)
        upto = self.backlog.acked_upto
        self.delivered += [entry.message for entry in entries if entry.number <= upto]
        expired = tuple(entry.message for entry in entries if entry.number > upto)
        if expired:
            self.drops.append(DroppedMessages(expired, Cause.NONE, Fate.EXPIRED))
        if cause is not Cause.NONE:
            self.dropped[cause] = self.dropped.get(cause, 0) + page.count
        self._forget_acked()
        return lsn

    def _forget_acked(self) -> None:
        """Remove what the peer acknowledged before it was in memory again."""
        waiting, upto = self.backlog.waiting, self.backlog.acked_upto
        if waiting and 0 < waiting[0].number <= upto:
            self.acked(TrafficClass.BACKLOG, upto)
