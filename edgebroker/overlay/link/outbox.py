"""The outbox of one link: what a peer is to be told, until it says that it has it.

Numbered messages (events of QoS 1 and 2, and everything that is no event) get the next number of their class when they
are taken. The events among them go into the journal at once; who promises something because of it waits for the disk.
What is not numbered (QoS 0) leaves when it is sent, or when the connection ends.

**Order.** An event is LIVE if the link is open and LIVE has room; else BACKLOG. Once an event of a flow (publisher and
topic) is in the BACKLOG, all later ones of that flow are too, until the peer has acknowledged them, or until they are
sent if they have no number. After a connection was lost, or when a flow goes over to the BACKLOG, what is LIVE then
may be older: BACKLOG waits until that is sent.

**Numbers over restarts.** A number may have reached the peer although the journal lost it in a power cut, and must not
be given again. So numbers are reserved in the journal, `Bounds.numbers` at a time; none is sent before its reservation
is on disk, and a new run begins behind all that was reserved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Protocol

from edgebroker.dataclasses import dataclass
from edgebroker.instants import Instant
from edgebroker.limits import KIB, MIB
from edgebroker.overlay.classes import Service
from edgebroker.overlay.messages import Forward, Message, Series
from edgebroker.records import Cause, Fate

from .bodies import alone, read_alone
from .broken import FrameBroken
from .flows import AloneWriter
from .lanes import Entry, Lane, event_of, events_of, messages_in
from .lateflows import LateFlows, flow_of
from .records import StoredLink, entry_record, reserved_record, settled_record

SERIES_BYTES: Final = 4 * KIB
"""Of payload in one item: an item costs little for so much, and a frame of 15 KiB is not much larger for it."""


class Storage(Protocol):
    """The journal, as links see it."""

    def append(self, record: bytes, waits: bool) -> int:
        """Take *record*; returns its LSN. *waits*: somebody is told as soon as it is on disk."""
        ...


@dataclass(frozen=True, slots=True)
class Bounds:
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


BOUNDS: Final = Bounds()


@dataclass(frozen=True, slots=True)
class Drop:
    """Messages that will not be sent, and why."""

    messages: tuple[Message, ...]
    cause: Cause
    fate: Fate = Fate.DROPPED
    """EXPIRED, or DROPPED because of `cause`."""


class Outbox:
    """All lanes of one link."""

    def __init__(self, peer: str, bounds: Bounds, storage: Storage | None) -> None:
        self.peer = peer
        self.lanes = {service: Lane() for service in Service}
        self._events = [lane for service, lane in self.lanes.items() if service is not Service.CONTROL]
        self.clock = 0
        """What to add to an instant for the stored clock."""
        self.is_open = False
        """Whether there is a connection."""
        self.is_overrun = False
        """CONTROL has lost something: the connection must end, and the next one is no continuation."""
        self.is_crowded = False
        """Seven eighths are used, and `relieve` was not called since with less than three quarters."""
        self.drops: list[Drop] = []
        """What was dropped since somebody looked."""
        self.delivered: list[Message] = []
        """Events that the peer has, or that were written and need no acknowledgement, since somebody looked."""
        self.dropped: dict[Cause, int] = {}
        """How many were dropped, ever, by cause."""
        self._bounds = bounds
        self._storage = storage
        self._alone = AloneWriter()
        self._late = LateFlows()
        self._bare: dict[Service, int] = dict.fromkeys(Service, 0)  # bytes without a number, waiting
        self._reserved = 0 if storage is not None else 1 << 64  # on disk: numbers up to this may be sent
        self._asked = 0  # in the journal
        self._asked_lsn = self._told_lsn = 0  # nothing is sent before the latter is on disk
        self._settled: dict[Service, int] = {}  # in this run; the record may be lost yet
        self._synced = 0  # an event of QoS 2 is sent only when it is on disk: else a crash would make it one that was
        # never taken, and its second coming a duplicate
        self._ahead = 0  # LIVE entries that go before anything in the BACKLOG

    # -- taking ---------------------------------------------------------------------------------------------------

    def take(self, message: Message, service: Service, now: Instant) -> Cause:
        """Take *message*; returns Cause.NONE, or why it is dropped."""
        if isinstance(message, Series):
            return self._take_series(message, service)
        event = message if type(message) is Forward else event_of(message)
        if event is None:
            return self._take_word(message, service)
        expires_at = None if event.expires_in_ms is None else now + event.expires_in_ms * 1_000
        if service is Service.LIVE and (not self.is_open or flow_of(event) in self._late.counts):
            service = Service.BACKLOG
        lane = self.lanes[service]
        if event.qos == 0:
            return self._take_bare(Entry(message, 0, expires_at), service)
        if service is Service.LIVE and lane.waiting_bytes >= self._bounds.live_bytes:
            self._ahead = len(lane.waiting)
            service = Service.BACKLOG
            lane = self.lanes[service]
        entry = Entry(message, lane.next_number, expires_at)
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

    def _take_word(self, message: Message, service: Service) -> Cause:
        lane = self.lanes[service]
        if len(lane) >= self._bounds.control_messages:
            self.is_overrun |= service is Service.CONTROL  # elsewhere it is events that fill the lane
            return self._drop((message,), Cause.QUEUE_FULL)
        if service is not Service.CONTROL and self._storage is not None:
            self._reserve(lane.next_number, self._storage)
        lane.push(Entry(message, lane.next_number, None))
        lane.next_number += 1
        return Cause.NONE

    def _reserve(self, number: int, storage: Storage) -> None:
        """See that *number* is, or will be, reserved on disk."""
        if number + self._bounds.numbers // 2 > self._asked:
            self._asked = max(self._asked, number) + self._bounds.numbers
            self._asked_lsn = storage.append(reserved_record(self.peer, self._asked), waits=True)

    def _take_series(self, series: Series, service: Service) -> Cause:
        """As many of its events as have room; what did not fit is told in `drops` as well."""
        if service is Service.LIVE and (not self.is_open or flow_of(series.first) in self._late.counts):
            service = Service.BACKLOG
        causes = [self._take_bare(Entry(part, 0, None), service) for part in series.parts(SERIES_BYTES)]
        return causes[-1]

    def _take_bare(self, entry: Entry, service: Service) -> Cause:
        if not self.is_open:
            return self._drop((entry.message,), Cause.OFFLINE)
        limit = self._bounds.live_bytes if service is Service.LIVE else self._bounds.bare_bytes
        if self._bare[service] + entry.size > limit:
            return self._drop((entry.message,), Cause.OUT_BUFFER_FULL)
        self._bare[service] += entry.size
        if service is Service.BACKLOG:
            self._late.add(entry)
        self.lanes[service].push(entry)
        return Cause.NONE

    def has_room(self, size: int) -> bool:
        """Whether a local client's event of so many bytes, which can be refused, is to be taken.

        The last sixteenth is for what comes from other gateways, which has been promised to somebody already.
        """
        bounds = self._bounds
        messages, octets = self._use()
        return messages < bounds.messages - bounds.messages // 16 and octets + size <= bounds.bytes - bounds.bytes // 16

    def relieve(self) -> None:
        """See whether a crowded outbox has room again."""
        messages, size = self._use()
        self.is_crowded = 4 * messages >= 3 * self._bounds.messages or 4 * size >= 3 * self._bounds.bytes

    def _is_full(self, more: int) -> bool:
        messages, size = self._use()
        size += more
        if not self.is_crowded and (8 * messages >= 7 * self._bounds.messages or 8 * size >= 7 * self._bounds.bytes):
            self.is_crowded = True
        return messages >= self._bounds.messages or size > self._bounds.bytes

    def _use(self) -> tuple[int, int]:  # events, waiting and unacknowledged, and their bytes
        messages = size = 0
        for lane in self._events:
            messages += len(lane.waiting) + len(lane.unacked)
            size += lane.bytes
        return messages, size

    def _push(self, entry: Entry, service: Service) -> None:
        lane = self.lanes[service]
        lane.push(entry)
        lane.next_number = entry.number + 1
        if service is Service.BACKLOG:
            self._late.add(entry)

    # -- sending --------------------------------------------------------------------------------------------------

    def ready(self, allowed: Collection[Service]) -> list[Service]:
        """Those of *allowed* that have something to send."""
        found = [service for service in allowed if self._may_send(service)]
        if self._ahead and Service.BACKLOG in found and Service.LIVE in allowed and self.lanes[Service.LIVE].waiting:
            found.remove(Service.BACKLOG)
        return found

    def _may_send(self, service: Service) -> bool:
        """Whether something waits that is on disk, as far as it must be. Numbers of CONTROL end with the run."""
        if not (waiting := self.lanes[service].waiting):
            return False
        entry = waiting[0]
        is_given = entry.number <= self._reserved and self._told_lsn <= self._synced
        return (is_given or service is Service.CONTROL) and entry.lsn <= self._synced

    def next(self, service: Service, now: Instant) -> Entry | None:
        """The next message of *service* to send, which leaves the queue; None: none may be sent now."""
        lane = self.lanes[service]
        while self._may_send(service):
            entry = lane.pop()
            if service is Service.LIVE and self._ahead:
                self._ahead -= 1
            if not entry.number:
                self._bare[service] -= entry.size
            if not entry.has_expired(now):
                return entry
            self._late.leave(entry)
            self.drops.append(Drop((entry.message,), Cause.NONE, Fate.EXPIRED))
        return None

    def sent(self, service: Service, entry: Entry) -> None:
        """*entry* is on its way, as a whole or its first part."""
        if entry.number:
            self.lanes[service].sent(entry)

    def written(self, entry: Entry) -> None:
        """*entry* is on its way as a whole."""
        entry.was_sent = True
        if not entry.number:
            self._late.leave(entry)
            self.delivered.append(entry.message)

    @property
    def waiting_bytes(self) -> int:
        """What waits in all lanes, in bytes of memory."""
        return sum(lane.waiting_bytes for lane in self.lanes.values())

    def unsent(self, entry: Entry) -> None:
        """*entry* was sent in part, and the connection ended: what has a number is sent again."""
        if not entry.number:
            self._late.leave(entry)
            self._drop((entry.message,), Cause.CONNECTION_LOST)

    @property
    def is_owed(self) -> bool:
        """Whether something was sent that the peer has to acknowledge."""
        return any(lane.unacked for lane in self.lanes.values())

    def acked(self, service: Service, upto: int) -> None:
        """The peer has everything of *service* up to *upto*."""
        gone = self.lanes[service].acked(upto)
        events = [entry.message for entry in gone if entry.is_event]
        for entry in gone:
            self._late.leave(entry)
        self.delivered += events
        if events and self._storage is not None:
            self._settled[service] = upto
            self._storage.append(settled_record(self.peer, service, upto), waits=False)

    # -- connections ----------------------------------------------------------------------------------------------

    def opened(self, heard: Mapping[Service, int], goes_on: bool) -> None:
        """A connection to a peer that has received so much; *goes_on*: it remembers what CONTROL has said."""
        if not goes_on or self.is_overrun:
            self._forget_words()
        for service, upto in heard.items():
            self.acked(service, upto)
        for service, upto in self._settled.items():
            if self._storage is not None and heard.get(service, 0) < upto:  # forgotten there: only we can still tell
                self._told_lsn = self._storage.append(settled_record(self.peer, service, upto), waits=True)
        self._ahead = len(self.lanes[Service.LIVE].waiting)
        self.is_open = True
        self.is_overrun = False

    def closed(self) -> None:
        """The connection ended."""
        self.is_open = False
        for service, lane in self.lanes.items():
            gone = lane.lost()
            if gone:
                self._drop_bare(gone, Cause.CONNECTION_LOST)
            self._bare[service] = 0

    def _forget_words(self) -> None:
        """Messages that are no events belong to a conversation that is over."""
        for lane in self.lanes.values():
            waiting = lane.clear()
            for entry in waiting:
                if entry.is_event:
                    lane.push(entry)
                    lane.entered -= entry.count
                    lane.left -= entry.count

    def refuse(self, services: Iterable[Service], cause: Cause) -> None:
        """Drop what waits in *services* without a number: it will not be sent for long."""
        for service in services:
            lane = self.lanes[service]
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

    def _drop_bare(self, entries: list[Entry], cause: Cause) -> None:
        for entry in entries:
            self._late.leave(entry)
        self._drop(tuple(entry.message for entry in entries), cause)

    def _drop(self, messages: tuple[Message, ...], cause: Cause) -> Cause:
        self.drops.append(Drop(messages, cause))
        self.dropped[cause] = self.dropped.get(cause, 0) + sum(map(messages_in, messages))
        return cause

    def on_disk(self, lsn: int) -> None:
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
                self._push(Entry(message, number, None if expires_at is None else expires_at - self.clock), service)
        self._asked = max(stored.reserved, *stored.last.values(), 0)
        if self._storage is not None:
            self._reserved = self._asked
        for lane in self.lanes.values():
            lane.next_number = self._asked + 1
        self._is_full(0)
        return broken

    def events(self) -> list[Forward]:
        """The events that wait or were not acknowledged."""
        entries = [entry for lane in self.lanes.values() for entry in (*lane.unacked, *lane.waiting)]
        return [event for entry in entries for event in events_of(entry.message)]

    def records(self) -> Iterable[bytes]:
        """All that the journal has to know, said again. Meanwhile others may be appended and settled."""
        given = max(lane.next_number for lane in self.lanes.values()) - 1
        asked = self._asked if self._storage is not None else max(self._asked, given)
        if asked:
            yield reserved_record(self.peer, asked)
        for service, lane in self.lanes.items():
            entries = (*lane.unacked, *lane.waiting)
            numbered = [entry for entry in entries if entry.number and event_of(entry.message)]
            last = lane.next_number - 1
            if service is not Service.CONTROL and last:
                yield settled_record(self.peer, service, numbered[0].number - 1 if numbered else last)
                for entry in numbered:
                    at = None if entry.expires_at is None else entry.expires_at + self.clock
                    yield entry_record(self.peer, service, entry.number, at, alone(entry.message, service))
