"""A gateway that consists of links, a journal and a list of received messages: it tests the links alone.

The disk worker does on virtual time what the worker of a real journal does on files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from struct import Struct
from typing import Final, Protocol

from edgebroker.cbor import read_cbor
from edgebroker.federation.link_pager import LinkPager
from edgebroker.instants import NEVER, Instant
from edgebroker.limits import KIB, MIB
from edgebroker.log_schema import Cause
from edgebroker.overlay.link.class_queue import event_of
from edgebroker.overlay.link.connection import LinkConnection
from edgebroker.overlay.link.events import (
    DialRequest,
    DropEvent,
    LinkDown,
    LinkEvent,
    LinkRefusal,
    LinkUp,
    ReceiveEvent,
)
from edgebroker.overlay.link.handshake import GatewayIdentity
from edgebroker.overlay.link.journal_entries import RepeatedEntries
from edgebroker.overlay.link.journal_records import LinkRecordKind, StoredLinks
from edgebroker.overlay.link.link import Link, LinkTable
from edgebroker.overlay.link.options import LAN_OPTIONS, LinkOptions
from edgebroker.overlay.messages import EventSeries, Message
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.storage.journal.journal import Journal
from edgebroker.storage.journal.options import JournalOptions
from edgebroker.storage.journal.recovery import recover
from edgebroker.storage.journal.work import DiskWork
from edgelab.simworld.disk import Disk, DiskFailed
from edgelab.simworld.roads import Road, Wire
from edgelab.simworld.simulation import Simulation


def nothing() -> None:
    """Do nothing, where no callback is given."""


def _numbered_parts(message: Message) -> Iterable[Message]:
    """Return the events of a series of QoS 1; any other message is one part."""
    return message.events() if isinstance(message, EventSeries) and message.first.qos else (message,)


class DiskWorker:
    """Takes work from a journal when it is due, executes it on a disk, and reports the end to the journal.

    Call `poll` after everything that may have appended records. `on_done` is called after each piece of work.
    """

    def __init__(
        self, simulation: Simulation, journal: Journal, disk: Disk, on_done: Callable[[], None] = nothing
    ) -> None:
        self.simulation = simulation
        self.journal = journal
        self.disk = disk
        self.is_stopped = False
        """The process was killed: no work is taken any more, and nothing is reported."""
        self._on_done = on_done
        self._planned: Instant | None = None

    def poll(self) -> None:
        """Take the work that is due, or set a timer for it."""
        if self.is_stopped:
            return
        now, due = self.simulation.now, self.journal.due()
        if due is None:
            return
        if due > now:
            if self._planned is None or due < self._planned:
                self._planned = due
                self.simulation.at(due, self._on_timer)
            return
        work = self.journal.next_work(now)
        if work is not None:
            self._continue(work, 0)

    def _on_timer(self) -> None:
        if self._planned is not None and self._planned <= self.simulation.now:
            self._planned = None
        self.poll()

    def _continue(self, work: DiskWork, index: int) -> None:
        """Execute the operation *index* of *work* when its duration is over, and then the next."""
        if self.is_stopped:
            return
        if index == len(work.operations):
            self._end(work, "")
        else:
            duration = self.disk.time_for(work.operations[index])
            self.simulation.after(duration, lambda: self._do(work, index))

    def _do(self, work: DiskWork, index: int) -> None:
        if self.is_stopped:
            return
        try:
            self.disk.do(work.operations[index], work.read_data)
        except DiskFailed as error:
            self._end(work, str(error))
        else:
            self._continue(work, index + 1)

    def _end(self, work: DiskWork, reason: str) -> None:
        self.journal.space.disk_bytes = self.disk.bytes_left
        if reason:
            self.journal.failed(work, reason, self.simulation.now)
        else:
            self.journal.done(work, self.simulation.now)
        self._on_done()
        self.poll()


OPTIONS: Final = JournalOptions(segment_bytes=16 * KIB, snapshot_min_bytes=16 * KIB, bytes_max=64 * MIB)
"""Small, so that segments and snapshots change often."""
KEPT: Final = Struct(">BII")
"""A record of this gateway itself: kind, publisher, sequence."""
KEPT_KIND: Final = 0x7F
WALL: Final = 1_800_000_000_000_000
"""The wall clock at the start of virtual time."""
Eid = tuple[int, int]


class WireHolder(Protocol):
    """The owner of ends of connections."""

    simulation: Simulation
    plugs: dict[LinkConnection, GatewayEnd]
    """The ends by their link connections."""
    records_sent: int
    bytes_sent: int

    def turn(self) -> None:
        """Process what has arrived."""


class GatewayEnd:
    """A gateway's end of one connection."""

    def __init__(self, gateway: WireHolder, wire: Wire, number: int, stream: LinkConnection) -> None:
        self._gateway = gateway
        self.wire = wire
        self._number = number
        self.stream = stream

    def data_received(self, chunk: bytes) -> None:
        """Feed the bytes to the link connection."""
        self.stream.feed(chunk, self._gateway.simulation.now)
        self._gateway.turn()
        while self.stream.has_more:
            self.stream.feed(b"", self._gateway.simulation.now)
            self._gateway.turn()

    def resume_writing(self) -> None:
        """Continue to write: the buffer has space again."""
        if self.stream.paused:
            self.stream.paused = False
            self._gateway.turn()

    def connection_lost(self) -> None:
        """Report the end of the connection to the link."""
        self._gateway.plugs.pop(self.stream, None)
        self.stream.lost(self._gateway.simulation.now)
        self._gateway.turn()

    def flush(self) -> None:
        """Write the output as far as the buffer has space."""
        lane = self.wire.lanes[self._number]
        stream, now = self.stream, self._gateway.simulation.now
        space = lane.room
        while space > 0 and (data := stream.flush(now, space)):
            self._gateway.records_sent += 1
            self._gateway.bytes_sent += len(data)
            lane.write(data)
            space = lane.room
        stream.paused = space <= 0
        if stream.is_over and not stream.out:
            self.disconnect()

    def disconnect(self, is_silent: bool = False) -> None:
        """Close the connection; *is_silent*: without notifying the peer."""
        self._gateway.plugs.pop(self.stream, None)
        if is_silent:
            self.wire.vanish(self._number)
        else:
            self.wire.close(self._number)


class LinkedGateway:
    """One gateway. `roads` and `others` are the paths to its peers, and the peers."""

    def __init__(
        self,
        simulation: Simulation,
        name: str,
        numbers: Mapping[str, int],
        options: LinkOptions = LAN_OPTIONS,
        journal_options: JournalOptions = OPTIONS,
    ) -> None:
        self.simulation = simulation
        self.name = name
        self.roads: dict[str, Road] = {}
        self.others: dict[str, LinkedGateway] = {}
        self.disk = Disk(simulation.random)
        self.kept: list[Eid] = []
        """Numbered events that it received, in order; after a crash, those that are on disk."""
        self.reached: list[Message] = []
        """All messages that it received, numbered or not, in all its runs."""
        self.events: list[LinkEvent] = []
        """Events of its links other than messages, in this run."""
        self.promised: set[Eid] = set()
        """Acknowledged events of its publishers: they are on disk."""
        self.records_sent = 0
        self.bytes_sent = 0
        self.is_off = False
        self.watch: Callable[[LinkedGateway], None] | None = None
        """Called after each turn: a checker."""
        self._numbers = numbers
        self._options = options
        self._journal_options = journal_options
        self.safe: set[Eid] = set()
        self.boot()

    def boot(self) -> None:
        """Start a run with the content of the disk."""
        simulation, now = self.simulation, self.simulation.now
        stored = StoredLinks()
        kept: dict[Eid, int] = {}

        def apply(lsn: int, record: bytes) -> None:
            if not stored.apply(record):
                kept[KEPT.unpack(record)[1:]] = lsn

        report = recover(self.disk, apply)
        store = b"" if report is None else report.store
        # the damaged part may have been the only one with the journal's name
        store = store or simulation.random.randbytes(16)
        skip = simulation.random.randrange(1 << 16)
        self.reserved = {peer: link.reserved for peer, link in stored.links.items()}
        """Peer -> the last number for it that is reserved on disk."""
        self._reserving: list[tuple[int, str, int]] = []
        self.journal = Journal(store, self._journal_options, report, skip)
        self.journal.pages.found = self.disk.page_sizes()
        self.journal.pages.last_number = max([stored.last_page, *self.journal.pages.found])
        self.worker = DiskWorker(simulation, self.journal, self.disk, self._synced)
        self.kept = list(kept)
        self.known = set(kept)
        self.safe = {eid for eid, lsn in kept.items() if lsn <= self.journal.synced or eid in self.safe}
        """The events of `kept` that are on disk. After a kill the last ones may be in the cache alone."""
        self.again: list[Eid] = []
        """Numbered events that its links delivered twice in this run."""
        self._received_eids: set[Eid] = set()
        self._unsynced_events = [(lsn, eid) for eid, lsn in kept.items() if eid not in self.safe]
        self._recovered_lsn = self.journal.lsn
        self._has_started = False
        self.events = []
        self.plugs: dict[LinkConnection, GatewayEnd] = {}
        self._unsynced_publications: list[tuple[int, Eid]] = []
        self._woken_at: Instant | None = None
        run = simulation.random.randbytes(8)
        peers = {peer: number for peer, number in self._numbers.items() if peer != self.name}
        identity = GatewayIdentity(
            "federation", self.name, self._numbers[self.name], {"topology": b"same"}, peers, run, store[:8]
        )
        self.links = LinkTable(
            identity,
            [
                Link(
                    peer,
                    identity,
                    now,
                    simulation.random.random,
                    self._options,
                    self,
                    stored.links.get(peer),
                    WALL,
                )
                for peer in peers
            ],
        )

        self.pager = LinkPager(self.links, self.journal)
        self.pager.check_files()
        for number, size in self.journal.pages.found.items():
            self.journal.pages.bytes += size
            self.journal.pages.remove(number, size)

    def start(self) -> None:
        """Start to dial, once all recovered records are certainly on disk, because peers are told about them."""
        self.is_off = False
        self._start_links()
        self.turn()

    def _start_links(self) -> None:
        if not self._has_started and self.journal.synced >= self._recovered_lsn:
            self._has_started = True
            for link in self.links:
                link.start(self.simulation.now)

    def crash(self, is_power_cut: bool) -> None:
        """Kill the process, or cut the power. The path decides what its peers notice."""
        self.is_off = True
        self.worker.is_stopped = True
        old_disk = self.disk
        self.disk = old_disk.crash() if is_power_cut else old_disk.killed()
        self.disk.sync_fails, self.disk.write_fails = old_disk.sync_fails, old_disk.write_fails
        for plug in list(self.plugs.values()):
            plug.disconnect(is_power_cut)

    def append(self, record: bytes, waits: bool) -> int:
        """Append a record of its links to the journal."""
        lsn = self.journal.append(record, self.simulation.now)
        if record[0] == LinkRecordKind.RESERVED:
            self._reserving.append((lsn, *read_cbor(record[1:])))
        return lsn

    def lose_disk(self) -> None:
        """Replace the disk by an empty one while the gateway is off."""
        old_disk, self.disk = self.disk, Disk(self.simulation.random)
        self.disk.sync_us, self.disk.sync_fails = old_disk.sync_us, old_disk.sync_fails
        self.disk.write_fails = old_disk.write_fails

    # -- publishers and readers -----------------------------------------------------------------------------------

    def publish(self, peer: str, message: Message, service: TrafficClass = TrafficClass.LIVE) -> Cause:
        """Send an event of a publisher, or a message of the routing, to *peer*."""
        cause = self.links[peer].send(message, service, self.simulation.now)
        for event in map(event_of, _numbered_parts(message)):
            if cause is Cause.NONE and event is not None and event.qos:
                self._unsynced_publications.append((self.journal.lsn, event.header.eid))
        return cause

    def _handle_messages(self, messages: list[Message]) -> None:
        now = self.simulation.now
        for message in chain.from_iterable(map(_numbered_parts, messages)):
            event = event_of(message)
            if event is not None and event.qos:
                if event.header.eid in self._received_eids:
                    self.again.append(event.header.eid)
                self._received_eids.add(event.header.eid)
                if event.header.eid in self.known:
                    continue
                self.known.add(event.header.eid)
                self.kept.append(event.header.eid)
                lsn = self.journal.append(KEPT.pack(KEPT_KIND, *event.header.eid), now)
                self._unsynced_events.append((lsn, event.header.eid))
            self.reached.append(message)

    # -- turns ----------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Process what has happened, and set the next timer."""
        if self.is_off:
            return
        self._process_events()
        while any(link.has_events for link in self.links):
            self._process_events()
        now = self.simulation.now
        if self.watch is not None:
            self.watch(self)
        due = min([link.due() for link in self.links], default=NEVER)
        due = due if self.pager.due is None else min(due, self.pager.due)
        if due < NEVER and (self._woken_at is None or due < self._woken_at or self._woken_at <= now):
            self._woken_at = max(due, now + 1)
            self.simulation.at(self._woken_at, self._on_timer)

    def _process_events(self) -> None:
        for link in self.links:
            for event in link.take_events():
                self._handle_event(link, event)
        self._write_snapshot()
        for stream, plug in list(self.plugs.items()):
            if stream in self.plugs:
                plug.flush()
        if self.pager.paged:
            self.pager.prepare(self.simulation.now)
        self.worker.poll()

    def _handle_event(self, link: Link, event: LinkEvent) -> None:
        match event:
            case ReceiveEvent(_, messages):
                self._handle_messages(messages)
                link.handled(self.simulation.now)
            case DialRequest(peer):
                run = self.journal
                self.roads[peer].connect(
                    lambda wire: self._dialled(wire, link, run),
                    lambda wire: self.others[peer]._accept(wire),
                    lambda: self._dial_failed(link, run),
                )
            case LinkUp() | LinkDown() | LinkRefusal() | DropEvent():
                self.events.append(event)

    def _plug(self, wire: Wire, number: int, stream: LinkConnection) -> GatewayEnd:
        plug = GatewayEnd(self, wire, number, stream)
        self.plugs[stream] = plug
        self.simulation.after(0, self.turn)
        return plug

    def _dialled(self, wire: Wire, link: Link, run: Journal) -> GatewayEnd:
        stream = link.dialled(self.simulation.now)
        if run is not self.journal or self.is_off:  # the run that dialled has ended
            stream.end("too late", self.simulation.now)
        return self._plug(wire, 0, stream)

    def _accept(self, wire: Wire) -> GatewayEnd | None:
        is_there = self._has_started and not self.is_off
        return self._plug(wire, 1, self.links.accept(self.simulation.now)) if is_there else None

    def _dial_failed(self, link: Link, run: Journal) -> None:
        if run is self.journal and not self.is_off:
            link.dial_failed(self.simulation.now)
            self.turn()

    def _on_timer(self) -> None:
        if self.is_off:
            return
        for link in self.links:
            link.fire(self.simulation.now)
        for stream in list(self.plugs):
            stream.fire(self.simulation.now)
        self.pager.fire(self.simulation.now)
        self.turn()

    def _synced(self) -> None:
        lsn = self.journal.synced
        while self._unsynced_publications and self._unsynced_publications[0][0] <= lsn:
            self.promised.add(self._unsynced_publications.pop(0)[1])
        while self._unsynced_events and self._unsynced_events[0][0] <= lsn:
            self.safe.add(self._unsynced_events.pop(0)[1])
        while self._reserving and self._reserving[0][0] <= lsn:
            _, peer, self.reserved[peer] = self._reserving.pop(0)
        self._start_links()
        self.pager.collect(self.simulation.now)
        for link in self.links:
            link.synced(lsn, self.simulation.now)
        self.simulation.after(0, self.turn)

    def _write_snapshot(self) -> None:
        now = self.simulation.now
        if self.journal.wants_snapshot:
            self.journal.begin_snapshot(now)
            for eid in self.kept:
                self.journal.append(KEPT.pack(KEPT_KIND, *eid), now)
            for link in self.links:
                repeated = RepeatedEntries()
                for record in (*link.records(repeated), *repeated.records()):
                    self.journal.append(record, now)
            self.journal.end_snapshot(now)
