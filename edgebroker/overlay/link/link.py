"""The link to one peer: connections open and close, and every message that the link has accepted is delivered or
reported as dropped. LinkTable has all links of a gateway.

How a gateway uses a link (`LinkTable` has all of them):

    link.start(now), link.dial_soon(now)  begins to dial, if this end does; dials before the back-off ends
    link.send(message, service, now)     -> Cause.NONE, or why the message is dropped
    link.handled(now)                    the last ReceiveEvent is handled and its effects are appended
    link.synced(lsn, now)                the journal is on disk up to lsn: acknowledgements are released
    link.due(), link.fire(now)           deadlines
    for event in link.take_events():     after each of these: one of the LinkEvents
    link.figures(service), link.outbox   queue counts, for the congestion measure and for display

After a DialRequest the runtime opens a connection and calls `connection = link.dialled(now)` or
`link.dial_failed(now)`. For an incoming connection it calls `links.accept(now)`. `connection` describes its use; after
any of the calls above, the open one must be flushed.

Without a *storage* nothing is durable. With one, a numbered event is in the journal before `send` returns, and on disk
when the journal reports it. Received messages are acknowledged to the peer when the record of their numbers is on disk.
`handled` appends that record behind all effects of the messages. So after a crash a message whose effects are durable
and whose record is not arrives again, and is recognised by its event id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from edgebroker.instants import MILLISECOND, NEVER, SECOND, Duration, Instant
from edgebroker.log_schema import Cause
from edgebroker.overlay.link.budget import LinkBudget
from edgebroker.overlay.link.class_queue import QueuedMessage, QueueFigures
from edgebroker.overlay.link.codec.errors import FrameBroken
from edgebroker.overlay.link.codec.frames import LinkSignal, SignalCode
from edgebroker.overlay.link.connection import LinkConnection
from edgebroker.overlay.link.events import (
    DeliveryEvent,
    DialRequest,
    DropEvent,
    LinkDown,
    LinkEvent,
    LinkRefusal,
    LinkUp,
    ReceiveEvent,
)
from edgebroker.overlay.link.handshake import (
    TOPOLOGY_CAPABILITY,
    GatewayIdentity,
    Hello,
    HelloRefused,
    ReceiveState,
    RefusalCode,
    encode_hello,
)
from edgebroker.overlay.link.heartbeat import ASSURANCE, LinkHeartbeat
from edgebroker.overlay.link.journal_entries import LinkStorage, RepeatedEntries, SharedEntry
from edgebroker.overlay.link.journal_records import StoredLink, spent_record
from edgebroker.overlay.link.options import LAN_OPTIONS, TLS_DATA_BYTES, LinkOptions
from edgebroker.overlay.link.outbox import LinkOutbox
from edgebroker.overlay.link.peer_boots import PeerBoots, at
from edgebroker.overlay.link.receiver import AckTracker, LinkReceiver, ReceivePositions
from edgebroker.overlay.link.sender import RELIABLE_SERIES_CAPABILITY, SERIES_CAPABILITY, AckProgress, LinkSender
from edgebroker.overlay.messages import CAPABILITY_MESSAGES, Message
from edgebroker.overlay.traffic_class import SHARED, TrafficClass

DELAY_MIN: Final[Duration] = 500 * MILLISECOND
"""A peer that restarts listens again after 250 ms."""
DELAY_MAX: Final[Duration] = 60 * SECOND
"""A site whose uplink was down all night is connected a minute after it is back, at the latest."""
HURRY: Final[Duration] = 200 * MILLISECOND
"""The random delay before dialling a peer that is reachable again, so that not all gateways dial at once."""
STEADY: Final[Duration] = 30 * SECOND
"""A connection that lasted this long resets the back-off; a flapping one does not."""


OFFLINE_DELAY: Final[Duration] = 2 * SECOND
"""The longest delay while this gateway has no network, so that no packet leaves."""


class BackOff:
    """The dial delays of one link.

    A delay is random between half and all of its maximum, so that the gateways of a site do not dial in step after an
    uplink failure. From the eighth failure in a row on, a link dials at most twice a minute. The delays begin anew with
    every sign of a network: a gateway that moves may have one for half a minute only. While there is none, a dial costs
    nothing, and the delays stay short.
    """

    __slots__ = ("_failures", "_is_offline")

    def __init__(self) -> None:
        self._failures = 0
        self._is_offline = False

    def next_delay(self, chance: float, is_offline: bool = False) -> Duration:
        """Return the next delay. *chance* is a random number from 0 to 1; *is_offline*: the last dial failed because
        this gateway has no network.
        """
        if self._is_offline and not is_offline:
            self._failures = 0
        self._is_offline = is_offline
        whole = min(DELAY_MAX, DELAY_MIN << min(self._failures, 7))
        if is_offline:
            whole = min(whole, OFFLINE_DELAY)
        self._failures += 1
        return whole // 2 + int(whole // 2 * chance)

    def network_seen(self) -> None:
        """Begin anew, because there is a sign of a network."""
        self._failures = 0

    def ended(self, opened_at: Instant, now: Instant) -> None:
        """Handle the end of a connection that was opened at *opened_at*."""
        if now - opened_at >= STEADY:
            self._failures = 0


EMPTIED_AFTER: Final[Duration] = SECOND
"""How old a connection must be if the peer says that it is broken: it may mean an earlier one."""
LATE: Final[Duration] = SECOND
"""An acknowledgement that takes longer than this, or than four of the shortest round trips, is late: the peer syncs its
disk before, which takes a tenth of it, or the message stands in a queue on the way.
"""
STALLED_PATIENCES: Final = 3
"""Patiences without progress after which a link is stalled, although its peer answers pings."""


DEFLATE_CAPABILITY: Final = "deflate"
CAPABILITIES: Final = (*CAPABILITY_MESSAGES, SERIES_CAPABILITY, RELIABLE_SERIES_CAPABILITY)
STOPPING: Final = "the gateway stops"


class Link:
    """The link of one gateway to one peer. *chance* returns random numbers from 0 to 1."""

    def __init__(
        self,
        peer: str,
        identity: GatewayIdentity,
        now: Instant,
        chance: Callable[[], float],
        options: LinkOptions = LAN_OPTIONS,
        storage: LinkStorage | None = None,
        stored: StoredLink | None = None,
        clock: int = 0,
    ) -> None:
        """*stored*: the state left by an earlier run; *clock*: the difference between microseconds since 1970 and
        instants.
        """
        stored = StoredLink() if stored is None else stored
        self.peer = peer
        self.identity = identity
        self.options = options
        self.outbox = LinkOutbox(peer, options.bounds, storage)
        self.outbox.clock = clock
        self.misread = self.outbox.restore(stored)
        """The number of stored messages that could not be decoded."""
        self.budget = LinkBudget(options.bytes_per_s, options.bytes_per_day, now, clock)
        self.budget.resume(stored.day, stored.spent)
        self.heartbeat = LinkHeartbeat(options.heartbeat, now, False, options.patience)
        self.connection: LinkConnection | None = None
        """The open connection."""
        self.acks = AckTracker(peer, ReceivePositions(stored.store, stored.received), storage)
        self.boots = PeerBoots()
        self.false_acks = 0
        """Acknowledgements of numbers that were never sent. Each ended its connection, or refused its hello."""
        self._chance = chance
        self._storage = storage
        self._clock = clock
        self._events: list[LinkEvent] = []
        self._backoff = BackOff()
        self._dialling: LinkConnection | None = None
        self._is_dialling = False
        self._dial_at: Instant | None = None
        self._opened_at: Instant = 0
        self._hellos = 0
        self._receiver = LinkReceiver(False, self.acks.positions)
        self._sender = LinkSender(False)
        self._send_by: Instant = NEVER  # deadline of the present batch
        self._sent_at: Instant = -NEVER  # when the last batch was sent
        self._progress = AckProgress()
        self._pinged: int | None = None
        self._is_stopped = False

    # -- used by the gateway --------------------------------------------------------------------------------------

    def start(self, now: Instant) -> None:
        """Begin to dial, if this end does."""
        if self.options.dials:
            self._dial_at = now
            self.fire(now)

    def stop(self, now: Instant, why: str = STOPPING) -> None:
        """Stop dialling, and close the connection with *why* as the reason."""
        self._is_stopped = True
        self._dial_at = None
        if self._dialling is not None:
            self._dialling.end(why, now)
        self._close(why, now)

    def _close(self, why: str, now: Instant) -> None:
        if self.connection is not None:
            self._sender.add_signal(SignalCode.BYE, 0, why)
            self.connection.out += self._sender.take_signals()
            self.connection.end(why, now)

    @property
    def has_events(self) -> bool:
        """Whether `take_events` would return any."""
        return bool(self._events or self.outbox.drops or self.outbox.delivered)

    def take_events(self) -> list[LinkEvent]:
        """Return the events since the last call."""
        if self.outbox.drops:
            drops, self.outbox.drops = self.outbox.drops, []
            self._events += [DropEvent(self.peer, drop.messages, drop.cause, drop.fate) for drop in drops]
        if self.outbox.delivered:
            delivered, self.outbox.delivered = self.outbox.delivered, []
            self._events.append(DeliveryEvent(self.peer, delivered))
        events, self._events = self._events, []
        return events

    def send(self, message: Message, service: TrafficClass, now: Instant, shared: SharedEntry | None = None) -> Cause:
        """Accept *message* for the peer: a numbered one is kept until the peer has it, any other while a connection is
        open. *shared*: where its record is to be, with those of other links.

        Returns Cause.NONE, or why the message is dropped.
        """
        cause = self.outbox.enqueue(message, service, now, shared)
        if self._send_by > now:
            urgent = service is TrafficClass.CONTROL or self.outbox.waiting_bytes >= self.options.batch_bytes
            self._send_after(-NEVER if urgent else self._sent_at, now)
        return cause

    def handled(self, now: Instant) -> None:
        """Acknowledge the received messages, whose effects have been appended to the journal."""
        if self.acks.handled():
            self._send_after(now, now)

    def synced(self, lsn: int, now: Instant) -> None:
        """Release messages and acknowledgements that waited for the journal to be on disk up to *lsn*."""
        self.outbox.synced(lsn)
        may_ack = self.acks.synced(lsn)
        if may_ack or self.outbox.waiting_bytes:
            self._send_after(self._sent_at if self.outbox.waiting_bytes else now, now)

    def paged_in(self, now: Instant) -> None:
        """Send soon: messages that were on the disk may be in memory again."""
        if self.outbox.waiting_bytes:
            self._send_after(now, now)

    def set_clock(self, clock: int) -> None:
        """Change the stored clock: *clock* is the difference to instants from now on."""
        self._clock = self.outbox.clock = self.budget.clock = clock
        self.heartbeat.clock_changed()

    def records(self, repeated: RepeatedEntries) -> Iterator[bytes]:
        """Iterate over the records that restore this link, for a snapshot, but for its messages: they are added to
        *repeated*.
        """
        yield from self.outbox.records(repeated)
        yield from self.acks.records()
        yield spent_record(self.peer, self.budget.day, self.budget.spent)

    def figures(self, service: TrafficClass) -> QueueFigures:
        """Return the queue counts of one class."""
        return self.outbox.queues[service].figures

    def is_held_up(self, now: Instant) -> bool:
        """Return whether messages wait because the socket is full or the link's rate is exceeded."""
        is_slow = self.connection is not None and (self.connection.paused or now < self.budget.owed_until)
        return is_slow and self.outbox.waiting_bytes > 0

    def is_stalled(self, now: Instant) -> bool:
        """Return whether the peer has acknowledged nothing for three patiences although it owes it: its disk takes
        nothing, or what was sent stands in a queue on the way.
        """
        return self._progress.waits_longer_than(STALLED_PATIENCES * self.heartbeat.patience_min, now)

    def late(self, now: Instant) -> int:
        """Return the number of events that the peer should have acknowledged by now."""
        self._progress.update_late(max(LATE, 4 * self.heartbeat.round_trip_min), now)
        return self.outbox.unacked_upto(self._progress.late_upto)

    def _send_after(self, since: Instant, now: Instant) -> None:
        self._send_by = min(self._send_by, max(now, since + self.options.batch))

    # -- deadlines ------------------------------------------------------------------------------------------------

    def due(self) -> Instant:
        """Return the next deadline for `fire`; NEVER if there is none. Flush the connection after `fire`."""
        deadline = NEVER if self._dial_at is None else self._dial_at
        if self._dialling is not None:
            deadline = min(deadline, self._dialling.due() or NEVER)
        if self.connection is not None:
            deadline = min(deadline, self.heartbeat.due(), NEVER if self.connection.paused else self._send_by)
        return deadline

    def fire(self, now: Instant) -> None:
        """Handle all deadlines that have passed."""
        if self._dialling is not None:
            self._dialling.fire(now)
        if self._dial_at is not None and now >= self._dial_at:
            self._dial_at = None
            self._is_dialling = True
            self._events.append(DialRequest(self.peer))
        if self.connection is None:
            return
        if self.heartbeat.is_dead(now):
            self.connection.end("the peer is silent", now)
        elif self.heartbeat.needs_ping(now):
            self._ping(now)

    def _ping(self, now: Instant) -> None:
        self._signal(SignalCode.PING, self.heartbeat.ping(now, self._clock))

    def _signal(self, code: SignalCode, *values: object) -> None:
        self._sender.add_signal(code, *values)
        self._send_by = 0

    # -- dialling and accepting -----------------------------------------------------------------------------------

    def dialled(self, now: Instant, certified: str | None = None) -> LinkConnection:
        """Return the connection for the socket that a DialRequest opened; *certified* is the name in the peer's
        certificate.
        """
        connection = LinkConnection(self._answered, self, now, self.identity.topologies)
        connection.certified = certified
        if not self._is_dialling or self._dialling is not None or self.connection is not None:
            self._is_dialling = self._dialling is not None
            connection.end("not wanted any more", now)
            return connection
        self._dialling = connection
        topologies = self.identity.topologies
        if self.peer in topologies.older:
            topologies.older.discard(self.peer)
            connection.out += topologies.offer(self.peer)
        connection.out += encode_hello(self._hello())
        return connection

    def dial_failed(self, now: Instant, is_offline: bool = False) -> None:
        """Handle a DialRequest that failed. *is_offline*: because this gateway has no network."""
        if self._is_dialling and self._dialling is None:
            self._is_dialling = False
            self._dial_later(now, is_offline)

    def network_seen(self, now: Instant) -> None:
        """Handle a sign that this gateway has a network: dial soon, and with short delays again."""
        self._backoff.network_seen()
        self.dial_soon(now)

    def offered(self, connection: LinkConnection, hello: Hello, now: Instant) -> None:
        """Accept an incoming connection with *hello* of the peer. Raises HelloRefused."""
        self.boots.check(hello, connection, self.connection, now)
        self._check_received(hello)
        if self._dialling is not None:
            # Both dialled. Both ends decide alike: the connection dialled by the lower number stays.
            if self.identity.number < hello.number:
                raise HelloRefused(RefusalCode.CROSSED, f"{self.identity.name} dialled {hello.name} at the same time")
            self._dialling.end("the peer dialled too", now)
        # The old process has ended; or there are two of this name, and the other one must be notified.
        self._close(f"{hello.name} came anew{at(connection.address)}", now)
        if self.identity.topologies.has_older(hello):
            connection.out += self.identity.topologies.offer(self.peer)
        connection.out += encode_hello(self._hello())
        self._open(connection, hello, now, False)

    def _answered(self, connection: LinkConnection, hello: Hello, now: Instant) -> Link:
        """Handle the hello of the peer that was dialled."""
        if hello.name != self.peer:
            raise HelloRefused(RefusalCode.MISDIRECTED, f"{hello.name!r} answers where {self.peer!r} was dialled")
        self.identity.check(hello, connection.certified)
        self.boots.check(hello, connection, None, now)
        self._check_received(hello)
        if self.identity.topologies.has_older(hello):
            self.identity.topologies.older.add(self.peer)
            raise HelloRefused(
                RefusalCode.CROSSED, f"{self.peer} has an older signed topology, and gets this one first"
            )
        self._dialling = None
        self._is_dialling = False
        self._open(connection, hello, now, True)
        return self

    def refused(self, refused: HelloRefused) -> None:
        """Report a refused connection to or from the peer."""
        topologies = self.identity.topologies
        is_older = 0 < refused.topology_version < topologies.version
        if refused.code is RefusalCode.TOPOLOGY and is_older and topologies.may_offer(self.peer):
            topologies.older.add(self.peer)
        self._events.append(LinkRefusal(self.peer, refused.code, str(refused)))

    def _hello(self) -> Hello:
        identity = self.identity
        self._hellos += 1
        deflates, takes_files = self.options.deflates, identity.topologies.takes_files
        optional = {DEFLATE_CAPABILITY: deflates, TOPOLOGY_CAPABILITY: takes_files}
        capabilities = frozenset((*CAPABILITIES, *(name for name, is_offered in optional.items() if is_offered)))
        received = self.acks.receive_state()
        return Hello(
            identity.federation,
            identity.name,
            identity.number,
            identity.topology,
            identity.run,
            identity.store,
            self._hellos,
            self.peer,
            received,
            capabilities,
            topology_version=identity.topologies.version,
            sections=identity.sections,
        )

    def _open(self, connection: LinkConnection, hello: Hello, now: Instant, leads: bool) -> None:
        self.connection = connection
        self._dial_at = None
        self._opened_at = now
        upto, goes_on = self._received(hello)
        self.boots.record(hello)
        self.acks.open(hello.run, hello.store)
        deflates = self.options.deflates and DEFLATE_CAPABILITY in hello.capabilities
        self._receiver = LinkReceiver(deflates, self.acks.positions)
        self._sender = LinkSender(deflates, hello.capabilities)
        self._progress = AckProgress()
        self.outbox.opened(upto, goes_on)
        self.heartbeat = LinkHeartbeat(self.options.heartbeat, now, leads, self.options.patience)
        self._events.append(LinkUp(self.peer, goes_on, hello.capabilities))
        self._ping(now)

    def _received(self, hello: Hello) -> tuple[dict[TrafficClass, int], bool]:
        """Return which of this gateway's numbers the peer has received, and whether it has all of CONTROL so far."""
        received = hello.received
        # Both ends must be the same processes as before, or CONTROL messages were lost.
        is_same_boot = hello.run == self.boots.latest and received.run == self.identity.run
        goes_on = is_same_boot and not self.outbox.is_overrun
        upto = {
            service: number
            for service, number in received.upto.items()
            if (goes_on if service is TrafficClass.CONTROL else received.store == self.identity.store)
        }
        return upto, goes_on

    def _check_received(self, hello: Hello) -> None:
        """Check that *hello* acknowledges nothing that was never sent: messages that wait would be deleted. Raises
        HelloRefused.
        """
        for service, number in self._received(hello)[0].items():
            if reason := self._never_sent(service, number):
                raise HelloRefused(RefusalCode.UNSENT, reason)

    def receive_state(self) -> ReceiveState:
        """Return what this end has received from the peer."""
        return self.acks.receive_state()

    def empty(self, store: bytes, received: Mapping[TrafficClass, int], now: Instant) -> list[QueuedMessage]:
        """End the connection, which is broken at the peer's end, and take all events out of the outbox that the peer
        has not *received* from this gateway's journal *store*. Returns nothing if the connection is new, or if events
        are on the disk: then they wait for the next connection.
        """
        if self.outbox.backlog.pages or (self.connection is not None and now < self._opened_at + EMPTIED_AFTER):
            return []
        if self.connection is not None:
            self.connection.end("the peer asks for what waits on other paths", now)
        for service, upto in received.items():
            if store == self.identity.store and not self._never_sent(service, upto):
                self.outbox.acked(service, upto)
        entries = [entry for queue in self.outbox.queues.values() for entry in queue.in_memory() if entry.is_event]
        self.outbox.discard(Cause.HANDED_OVER)
        return entries

    def _never_sent(self, service: TrafficClass, number: int) -> str:
        """Return why the acknowledgement of *number* is false; empty if it may be true."""
        upto = self.outbox.queues[service].sent_upto
        if number <= upto:
            return ""
        self.false_acks += 1
        return (
            f"{self.peer} acknowledges number {number} of {service.name}, and {self.identity.name} has sent it none"
            f" above {upto}: either somebody else uses its name, or the data of {self.identity.name} is an older copy"
            " and its clock is behind"
        )

    def dial_soon(self, now: Instant) -> None:
        """Dial within HURRY if a dial is scheduled, because the peer is reported as reachable. A failure counts as
        usual.
        """
        if self._dial_at is not None:
            self._dial_at = min(self._dial_at, now + int(HURRY * self._chance()))

    def _dial_later(self, now: Instant, is_offline: bool = False) -> None:
        if self.options.dials and not self._is_stopped and self.connection is None:
            self._dial_at = now + self._backoff.next_delay(self._chance(), is_offline)

    # -- the connection -------------------------------------------------------------------------------------------

    def fed(self, chunk: bytes, now: Instant) -> bool:
        """Decode received bytes. Returns whether there is more to decode in another turn. Raises FrameBroken."""
        self.heartbeat.received(now)
        messages: list[Message] = []
        try:
            signals = self._receiver.feed(chunk, messages, now)
        finally:  # messages before a malformed item count as received
            if messages:
                self._events.append(ReceiveEvent(self.peer, messages))
        for each in signals:
            self._receive_signal(each, now)
        if self._pinged is not None:  # of several pings only the last is answered
            self._signal(SignalCode.PONG, self._pinged, now + self._clock, 0)
            self._pinged = None
        if self._receiver.is_amid and self._send_by > 0 and now >= self._sent_at + ASSURANCE:
            self._signal(SignalCode.ACK)  # an empty one shows the sender of a long message that this end is alive
        return self._receiver.has_more

    def _receive_signal(self, signal: LinkSignal, now: Instant) -> None:
        values = signal.values
        if signal.code is SignalCode.ACK:
            before = len(self.outbox.delivered)
            for service, upto in zip(values[::2], values[1::2], strict=True):
                if reason := self._never_sent(TrafficClass(service), upto):
                    raise FrameBroken(reason)
                self.outbox.acked(TrafficClass(service), upto)
            is_owed = self.outbox.awaits_ack
            self.heartbeat.set_owed(is_owed, now)
            self._progress.acked(len(self.outbox.delivered) > before, is_owed, now)
        elif signal.code is SignalCode.PING:
            self.heartbeat.ping_received()
            self._pinged = values[0]
        elif signal.code is SignalCode.PONG:
            number, t2, took = values
            self.heartbeat.pong_received(number, t2, took, now + self._clock)
        elif self.connection is not None:
            self.connection.end(f"the peer says: {values[1][:200]}", now)

    def pull(self, now: Instant, room: int) -> bytes:
        """Return frames to write, at most about *room* bytes; nothing before a batch is full or its deadline has
        passed.
        """
        if now < self._send_by:
            return b""
        if self.outbox.is_overrun and self.connection is not None:
            self.connection.end("too many messages of CONTROL wait", now)
            return b""
        acks = self.acks.take_acks()
        if acks:
            self._sender.add_signal(SignalCode.ACK, *acks)
        allowed = self.budget.allowed(now)
        is_bounded = self.budget.bytes_per_day > 0
        spent = [service for service in SHARED if self.budget.is_spent(service, now)] if is_bounded else []
        if spent:
            self.outbox.refuse(spent, Cause.BUDGET_SPENT)
        delivered_before = len(self.outbox.delivered)
        data = self._sender.pull(self.outbox, allowed, min(room, self.budget.room), now)
        if data:
            self._sent_at = now
            self._charge(len(data), now)
            self.heartbeat.sent(self.outbox.awaits_ack, len(self.outbox.delivered) > delivered_before, now)
            self._progress.sent(self.outbox, now)
        self._send_by = self._next_send(bool(data), bool(spent), now)
        return data

    def _charge(self, octets: int, now: Instant) -> None:
        if self.connection is not None and self.connection.certified is not None:  # the connection uses TLS
            octets += self.options.record_bytes * -(-octets // TLS_DATA_BYTES)
        self.budget.charge(octets, now)
        if self._storage is not None and (record := self.budget.take_record()) is not None:
            self._storage.append(spent_record(self.peer, *record), waits=False)

    def _next_send(self, has_sent: bool, is_spent: bool, now: Instant) -> Instant:
        """Return the next time to pull."""
        if not self.outbox.waiting_bytes and not self._sender.has_parts:
            return NEVER
        if has_sent:
            return max(now, self.budget.owed_until)
        if self.budget.owed_until > now:
            return self.budget.owed_until
        return self.budget.next_day(now) if is_spent else NEVER

    def ended(self, connection: LinkConnection, reason: str, now: Instant) -> None:
        """Handle the end of *connection*."""
        if connection is self._dialling:
            self._dialling = None
            self._is_dialling = False
            self._dial_later(now)
        elif connection is self.connection:
            self.connection = None
            self._sender.ended(self.outbox)
            self.outbox.closed()
            self._backoff.ended(self._opened_at, now)
            self._progress = AckProgress()
            self._send_by = NEVER
            self._events.append(LinkDown(self.peer, reason))
            self._dial_later(now)


class LinkTable:
    """All links of the gateway *identity*, one to each peer. Raises ValueError if one is missing or superfluous."""

    def __init__(self, identity: GatewayIdentity, links: Iterable[Link]) -> None:
        self.identity = identity
        self.unidentified = 0
        """The number of refused connections from gateways without a link."""
        self._links = {link.peer: link for link in links}
        if self._links.keys() != identity.peers.keys():
            raise ValueError(f"links to {sorted(self._links)}, peers {sorted(identity.peers)}")

    def __getitem__(self, peer: str) -> Link:
        return self._links[peer]

    def __iter__(self) -> Iterator[Link]:
        return iter(self._links.values())

    def with_events(self) -> list[Link]:
        """Return the links with events to take."""
        return [link for link in self._links.values() if link.has_events]

    def next_turn(self, now: Instant) -> Instant:
        """Return when a link needs a turn: *now* if it has events to take, else its next deadline; NEVER for none."""
        due = NEVER
        for link in self._links.values():
            if link.has_events:
                return now
            due = min(due, link.due())
        return due

    def lacks_room(self, size: int, count: int = 1) -> bool:
        """Return whether some outbox has no room for *count* events of a local client, of *size* bytes in all."""
        for link in self._links.values():  # noqa: SIM110 a generator is slower, and this runs for every event
            if not link.outbox.has_room(size, count):
                return True
        return False

    def waiting_room(self) -> tuple[int, int]:
        """Return the events, and their bytes, that find room in every outbox although they are accepted before."""
        rooms = [link.outbox.waiting_room() for link in self._links.values()]
        return min([messages for messages, _ in rooms], default=0), min([octets for _, octets in rooms], default=0)

    def accept(self, now: Instant, certified: str | None = None) -> LinkConnection:
        """Return the connection for an incoming socket; *certified* is the name in the peer's certificate, if it sent
        one.
        """
        return LinkConnection(partial(self._identify, certified), None, now, self.identity.topologies)

    def _identify(self, certified: str | None, connection: LinkConnection, hello: Hello, now: Instant) -> Link:
        link = self._links.get(hello.name)
        if link is None:
            self.unidentified += 1
            self.identity.check(hello, certified)
            raise AssertionError("the identity names a peer without a link")
        connection.certified = certified
        try:
            self.identity.check(hello, certified)
            link.offered(connection, hello, now)
        except HelloRefused as refused:
            link.refused(refused)
            raise
        return link
