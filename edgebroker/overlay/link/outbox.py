"""The outbox of one link: messages for a peer, until the peer has acknowledged them.

Numbered messages (events of QoS 1 and 2, and everything that is no event) get the next number of their class when
they are taken. The events among them go into the journal at once; who promises something because of it waits for
the disk. What is not numbered (QoS 0) leaves when it is sent, or when the connection ends.

**Order.** An event is LIVE if the link is open and LIVE has room; else BACKLOG. Once an event of a flow (publisher
and topic) is in the BACKLOG, all later ones of that flow are too, until the peer has acknowledged them, or until
they are sent if they have no number. After a connection was lost, or when a flow goes over to the BACKLOG, what is
LIVE then may be older: BACKLOG waits until that is sent.

**Numbers over restarts.** A number may have reached the peer although the journal lost it in a power cut, and must
not be given again. So numbers are reserved in the journal, `OutboxBounds.numbers` at a time; none is sent before
its reservation is on disk, and a new run begins behind all that was reserved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Protocol

from edgebroker.dataclasses import dataclass
from edgebroker.instants import Instant
from edgebroker.limits import KIB, MIB
from edgebroker.log_schema import Cause, Fate
from edgebroker.overlay.link.class_queue import ClassQueue, QueuedMessage, event_of, events_of, messages_in
from edgebroker.overlay.link.codec.errors import FrameBroken
from edgebroker.overlay.link.codec.events import AloneWriter
from edgebroker.overlay.link.codec.messages import alone, read_alone
from edgebroker.overlay.link.journal_records import StoredLink, entry_record, reserved_record, settled_record
from edgebroker.overlay.messages import EventSeries, Forward, Message
from edgebroker.overlay.traffic_class import TrafficClass

FlowKey = tuple[str, str]
"""Publisher and topic."""


def flow_key(event: Forward) -> FlowKey:
    """The one that *event* belongs to."""
    return event.client, event.topic


class BacklogFlows:
    """Those of one link."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[FlowKey, int] = {}
        """How much of each flow is in the BACKLOG: waiting, in part on its way, or not acknowledged."""

    def add(self, entry: QueuedMessage) -> None:
        """*entry* goes into the BACKLOG."""
        event = entry.message.first if isinstance(entry.message, EventSeries) else event_of(entry.message)
        if event is not None:
            entry.flow = flow = flow_key(event)
            self.counts[flow] = self.counts.get(flow, 0) + 1

    def leave(self, entry: QueuedMessage) -> None:
        """*entry*, of any class, is acknowledged, or gone if it has no number."""
        flow = entry.flow
        if flow is not None:
            entry.flow = None
            self.counts[flow] -= 1
            if not self.counts[flow]:
                del self.counts[flow]


SERIES_BYTES: Final = 4 * KIB
"""Of payload in one item: an item costs little for so much, and a frame of 15 KiB is not much larger for it."""


class LinkStorage(Protocol):
    """The journal, as links see it."""

    def append(self, record: bytes, waits: bool) -> int:
        """Take *record*; returns its LSN. *waits*: somebody is told as soon as it is on disk."""
        ...


@dataclass(frozen=True, slots=True)
class OutboxBounds:
    """What one link may hold."""

    messages: int = 100_000
    """Events, waiting and unacknowledged: three hours of 10 messages a second."""
    bytes: int = 64 * MIB
    """The same in bytes of memory."""
    live_bytes: int = 1 * MIB
    """What waits in LIVE. Beyond it numbered events go to the BACKLOG, others are dropped."""
    bare_bytes: int = 1 * MIB
    """What waits in any other class without a number."""
    control_messages: int = 10_000
    """Messages of CONTROL; when there are more, the link begins anew and routing state is compared instead."""
    numbers: int = 1 << 20
    """Reserved at a time. A restart leaves out as many at most; while half of them are left the next are reserved: a
    minute at 10,000 a second."""


BOUNDS: Final = OutboxBounds()


@dataclass(frozen=True, slots=True)
class DroppedMessages:
    """Messages that will not be sent, and why."""

    messages: tuple[Message, ...]
    cause: Cause
    fate: Fate = Fate.DROPPED
    """EXPIRED, or DROPPED because of `cause`."""


class LinkOutbox:
    """All lanes of one link."""

    def __init__(self, peer: str, bounds: OutboxBounds, storage: LinkStorage | None) -> None:
        self.peer = peer
        self.queues = {service: ClassQueue() for service in TrafficClass}
        self._events = [lane for service, lane in self.queues.items() if service is not TrafficClass.CONTROL]
        self.clock = 0
        """What to add to an instant for the stored clock."""
        self.is_open = False
        """Whether there is a connection."""
        self.is_overrun = False
        """CONTROL has lost something: the connection must end, and the next one is no continuation."""
        self.has_backpressure = False
        """Seven eighths are used, and `relieve` was not called since with less than three quarters."""
        self.drops: list[DroppedMessages] = []
        """What was dropped since somebody looked."""
        self.delivered: list[Message] = []
        """Events that the peer has, or that were written and need no acknowledgement, since somebody looked."""
        self.dropped: dict[Cause, int] = {}
        """How many were dropped, ever, by cause."""
        self._bounds = bounds
        self._storage = storage
        self._alone = AloneWriter()
        self._backlog_flows = BacklogFlows()
        self._bare: dict[TrafficClass, int] = dict.fromkeys(TrafficClass, 0)  # bytes without a number, waiting
        self._reserved = 0 if storage is not None else 1 << 64  # on disk: numbers up to this may be sent
        self._asked = 0  # in the journal
        self._asked_lsn = self._told_lsn = 0  # nothing is sent before the latter is on disk
        self._settled: dict[TrafficClass, int] = {}  # in this run; the record may be lost yet
        self._synced = 0  # an event of QoS 2 is sent only when it is on disk: else a crash would make it one that was
        # never taken, and its second coming a duplicate
        self._ahead = 0  # LIVE entries that go before anything in the BACKLOG

    # -- taking ---------------------------------------------------------------------------------------------------

    def enqueue(self, message: Message, service: TrafficClass, now: Instant) -> Cause:
        """Take *message*; returns Cause.NONE, or why it is dropped."""
        if isinstance(message, EventSeries):
            return self._enqueue_series(message, service)
        event = message if type(message) is Forward else event_of(message)
        if event is None:
            return self._enqueue_word(message, service)
        expires_at = None if event.expires_in_ms is None else now + event.expires_in_ms * 1_000
        if service is TrafficClass.LIVE and (not self.is_open or flow_key(event) in self._backlog_flows.counts):
            service = TrafficClass.BACKLOG
        lane = self.queues[service]
        if event.qos == 0:
            return self._enqueue_bare(QueuedMessage(message, 0, expires_at), service)
        if service is TrafficClass.LIVE and lane.waiting_bytes >= self._bounds.live_bytes:
            self._ahead = len(lane.waiting)
            service = TrafficClass.BACKLOG
            lane = self.queues[service]
        entry = QueuedMessage(message, lane.next_number, expires_at)
        if self._is_full(entry.size):
            return self._drop((message,), Cause.QUEUE_FULL)
        if self._storage is not None:
            self._reserve(entry.number, self._storage)
            at = None if expires_at is None else expires_at + self.clock
            item = self._alone.write(event, int(service)) if message is event else alone(message, service)
            lsn = self._storage.append(entry_record(self.peer, service, entry.number, at, item), waits=True)
            if event.qos == 2:
                entry.lsn = lsn
        self._push(entry, service)
        return Cause.NONE

    def _enqueue_word(self, message: Message, service: TrafficClass) -> Cause:
        lane = self.queues[service]
        if len(lane) >= self._bounds.control_messages:
            self.is_overrun |= service is TrafficClass.CONTROL  # elsewhere it is events that fill the lane
            return self._drop((message,), Cause.QUEUE_FULL)
        if service is not TrafficClass.CONTROL and self._storage is not None:
            self._reserve(lane.next_number, self._storage)
        lane.push(QueuedMessage(message, lane.next_number, None))
        lane.next_number += 1
        return Cause.NONE

    def _reserve(self, number: int, storage: LinkStorage) -> None:
        """See that *number* is, or will be, reserved on disk."""
        if number + self._bounds.numbers // 2 > self._asked:
            self._asked = max(self._asked, number) + self._bounds.numbers
            self._asked_lsn = storage.append(reserved_record(self.peer, self._asked), waits=True)

    def _enqueue_series(self, series: EventSeries, service: TrafficClass) -> Cause:
        """As many of its events as have room; what did not fit is told in `drops` as well."""
        if service is TrafficClass.LIVE and (not self.is_open or flow_key(series.first) in self._backlog_flows.counts):
            service = TrafficClass.BACKLOG
        causes = [self._enqueue_bare(QueuedMessage(part, 0, None), service) for part in series.parts(SERIES_BYTES)]
        return causes[-1]

    def _enqueue_bare(self, entry: QueuedMessage, service: TrafficClass) -> Cause:
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

    def has_room(self, size: int) -> bool:
        """Whether a local client's event of so many bytes, which can be refused, is to be taken.

        The last sixteenth is for what comes from other gateways, which has been promised to somebody already.
        """
        bounds = self._bounds
        messages, octets = self._use()
        return messages < bounds.messages - bounds.messages // 16 and octets + size <= bounds.bytes - bounds.bytes // 16

    def update_backpressure(self) -> None:
        """See whether a crowded outbox has room again."""
        messages, size = self._use()
        self.has_backpressure = 4 * messages >= 3 * self._bounds.messages or 4 * size >= 3 * self._bounds.bytes

    def _is_full(self, more: int) -> bool:
        messages, size = self._use()
        size += more
        if not self.has_backpressure and (
            8 * messages >= 7 * self._bounds.messages or 8 * size >= 7 * self._bounds.bytes
        ):
            self.has_backpressure = True
        return messages >= self._bounds.messages or size > self._bounds.bytes

    def _use(self) -> tuple[int, int]:  # events, waiting and unacknowledged, and their bytes
        messages = size = 0
        for lane in self._events:
            messages += len(lane.waiting) + len(lane.unacked)
            size += lane.bytes
        return messages, size

    def _push(self, entry: QueuedMessage, service: TrafficClass) -> None:
        lane = self.queues[service]
        lane.push(entry)
        lane.next_number = entry.number + 1
        if service is TrafficClass.BACKLOG:
            self._backlog_flows.add(entry)

    # -- sending --------------------------------------------------------------------------------------------------

    def ready(self, allowed: Collection[TrafficClass]) -> list[TrafficClass]:
        """Those of *allowed* that have something to send."""
        found = [service for service in allowed if self._may_send(service)]
        if (
            self._ahead
            and TrafficClass.BACKLOG in found
            and TrafficClass.LIVE in allowed
            and self.queues[TrafficClass.LIVE].waiting
        ):
            found.remove(TrafficClass.BACKLOG)
        return found

    def _may_send(self, service: TrafficClass) -> bool:
        """Whether something waits that is on disk, as far as it must be. Numbers of CONTROL end with the run."""
        if not (waiting := self.queues[service].waiting):
            return False
        entry = waiting[0]
        is_given = entry.number <= self._reserved and self._told_lsn <= self._synced
        return (is_given or service is TrafficClass.CONTROL) and entry.lsn <= self._synced

    def dequeue(self, service: TrafficClass, now: Instant) -> QueuedMessage | None:
        """The next message of *service* to send, which leaves the queue; None: none may be sent now."""
        lane = self.queues[service]
        while self._may_send(service):
            entry = lane.pop()
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
        """*entry* is on its way, as a whole or its first part."""
        if entry.number:
            self.queues[service].sent(entry)

    def written(self, entry: QueuedMessage) -> None:
        """*entry* is on its way as a whole."""
        entry.was_sent = True
        if not entry.number:
            self._backlog_flows.leave(entry)
            self.delivered.append(entry.message)

    @property
    def waiting_bytes(self) -> int:
        """What waits in all lanes, in bytes of memory."""
        return sum(lane.waiting_bytes for lane in self.queues.values())

    def requeue(self, entry: QueuedMessage) -> None:
        """*entry* was sent in part, and the connection ended: what has a number is sent again."""
        if not entry.number:
            self._backlog_flows.leave(entry)
            self._drop((entry.message,), Cause.CONNECTION_LOST)

    @property
    def awaits_ack(self) -> bool:
        """Whether something was sent that the peer has to acknowledge."""
        return any(lane.unacked for lane in self.queues.values())

    def acked(self, service: TrafficClass, upto: int) -> None:
        """The peer has everything of *service* up to *upto*."""
        gone = self.queues[service].acked(upto)
        events = [entry.message for entry in gone if entry.is_event]
        for entry in gone:
            self._backlog_flows.leave(entry)
        self.delivered += events
        if events and self._storage is not None:
            self._settled[service] = upto
            self._storage.append(settled_record(self.peer, service, upto), waits=False)

    # -- connections ----------------------------------------------------------------------------------------------

    def opened(self, heard: Mapping[TrafficClass, int], goes_on: bool) -> None:
        """A connection to a peer that has received so much; *goes_on*: it remembers what CONTROL has said."""
        if not goes_on or self.is_overrun:
            self._forget_words()
        for service, upto in heard.items():
            self.acked(service, upto)
        for service, upto in self._settled.items():
            if self._storage is not None and heard.get(service, 0) < upto:  # forgotten there: only we can still tell
                self._told_lsn = self._storage.append(settled_record(self.peer, service, upto), waits=True)
        self._ahead = len(self.queues[TrafficClass.LIVE].waiting)
        self.is_open = True
        self.is_overrun = False

    def closed(self) -> None:
        """The connection ended."""
        self.is_open = False
        for service, lane in self.queues.items():
            gone = lane.lost()
            if gone:
                self._drop_bare(gone, Cause.CONNECTION_LOST)
            self._bare[service] = 0

    def _forget_words(self) -> None:
        """Messages that are no events belong to a conversation that is over."""
        for lane in self.queues.values():
            waiting = lane.clear()
            for entry in waiting:
                if entry.is_event:
                    lane.push(entry)
                    lane.entered -= entry.count
                    lane.left -= entry.count

    def refuse(self, services: Iterable[TrafficClass], cause: Cause) -> None:
        """Drop what waits in *services* without a number: it will not be sent for long."""
        for service in services:
            lane = self.queues[service]
            if self._bare[service]:
                bare = [entry for entry in lane.waiting if not entry.number]
                kept = [entry for entry in lane.waiting if entry.number]
                lane.left += sum(entry.count for entry in bare)
                lane.waiting.clear()
                lane.waiting.extend(kept)
                size = sum(entry.size for entry in bare)
                lane.waiting_bytes -= size
                lane.bytes -= size
                self._bare[service] = 0
                self._drop_bare(bare, cause)

    def _drop_bare(self, entries: list[QueuedMessage], cause: Cause) -> None:
        for entry in entries:
            self._backlog_flows.leave(entry)
        self._drop(tuple(entry.message for entry in entries), cause)

    def _drop(self, messages: tuple[Message, ...], cause: Cause) -> Cause:
        self.drops.append(DroppedMessages(messages, cause))
        self.dropped[cause] = self.dropped.get(cause, 0) + sum(map(messages_in, messages))
        return cause

    def synced(self, lsn: int) -> None:
        """The journal is on disk up to *lsn*."""
        self._synced = lsn
        if lsn >= self._asked_lsn:
            self._reserved = max(self._reserved, self._asked)

    # -- the journal ----------------------------------------------------------------------------------------------

    def restore(self, stored: StoredLink) -> int:
        """Begin with what an earlier run left; `clock` is set. Returns how many entries could not be read."""
        broken = 0
        for service, entries in stored.entries.items():
            settled = stored.settled.get(service, 0)
            for number, (expires_at, item) in sorted(entries.items()):
                if number <= settled:  # said again in a snapshot before what came later
                    continue
                try:
                    message, _ = read_alone(item)
                    event = event_of(message)
                except FrameBroken:
                    event = None
                if event is None or event.qos == 0:
                    broken += 1
                    continue
                self._push(
                    QueuedMessage(message, number, None if expires_at is None else expires_at - self.clock), service
                )
        self._asked = max(stored.reserved, *stored.last.values(), 0)
        if self._storage is not None:
            self._reserved = self._asked
        for lane in self.queues.values():
            lane.next_number = self._asked + 1
        self._is_full(0)
        return broken

    def events(self) -> list[Forward]:
        """The events that wait or were not acknowledged."""
        entries = [entry for lane in self.queues.values() for entry in (*lane.unacked, *lane.waiting)]
        return [event for entry in entries for event in events_of(entry.message)]

    def records(self) -> Iterable[bytes]:
        """All that the journal has to know, said again. Meanwhile others may be appended and settled."""
        given = max(lane.next_number for lane in self.queues.values()) - 1
        asked = self._asked if self._storage is not None else max(self._asked, given)
        if asked:
            yield reserved_record(self.peer, asked)
        for service, lane in self.queues.items():
            entries = (*lane.unacked, *lane.waiting)
            numbered = [entry for entry in entries if entry.number and event_of(entry.message)]
            last = lane.next_number - 1
            if service is not TrafficClass.CONTROL and last:
                yield settled_record(self.peer, service, numbered[0].number - 1 if numbered else last)
                for entry in numbered:
                    at = None if entry.expires_at is None else entry.expires_at + self.clock
                    yield entry_record(self.peer, service, entry.number, at, alone(entry.message, service))
