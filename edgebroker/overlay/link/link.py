"""The link to one peer: connections open and close, and no message that the link has taken is lost. LinkTable
holds all links of a gateway.

How a gateway works with it (`LinkTable` has all of them):

    link.start(now), link.dial_soon(now)  it dials, if this end does; soon, if it waits to do so again
    link.send(message, service, now)     -> Cause.NONE, or why it is dropped
    link.handled(now)                    the last ReceiveEvent is handled and its effects are appended
    link.synced(lsn, now)                the journal is on disk up to there: acknowledgements are released
    link.due(), link.fire(now)           its deadlines
    for event in link.take_events():     after each of these: one of the LinkEvents
    link.figures(service), link.outbox   queues, for the congestion measure and for people

On DialRequest the world opens a connection; then `connection = link.dialled(now)` or `link.dial_failed(now)`. A
connection that came in is `links.accept(now)`. What to do with a connection is in `connection`; after any of the
calls above, flush the open one.

Without a *storage* nothing outlives the run. With one, a numbered event is in the journal before `send` returns, on
disk when the journal says so; and what was received is acknowledged to the peer when the record that says so is on
disk. That record is written by `handled`, behind everything that the messages caused. So after a crash a message
whose effects were kept and whose record was not comes again: its event id tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from edgebroker.instants import MILLISECOND, NEVER, SECOND, Duration, Instant
from edgebroker.log_schema import Cause
from edgebroker.overlay.link.budget import LinkBudget
from edgebroker.overlay.link.class_queue import QueueFigures
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
from edgebroker.overlay.link.handshake import GatewayIdentity, Hello, HelloRefused, RefusalCode, encode_hello
from edgebroker.overlay.link.heartbeat import ASSURANCE, LinkHeartbeat
from edgebroker.overlay.link.journal_records import StoredLink, spent_record
from edgebroker.overlay.link.options import LAN_OPTIONS, TLS_DATA_BYTES, LinkOptions
from edgebroker.overlay.link.outbox import LinkOutbox, LinkStorage
from edgebroker.overlay.link.peer_boots import PeerBoots, at
from edgebroker.overlay.link.receiver import AckTracker, LinkReceiver, ReceivePositions
from edgebroker.overlay.link.sender import LinkSender
from edgebroker.overlay.messages import Message
from edgebroker.overlay.traffic_class import SHARED, TrafficClass

DELAY_MIN: Final[Duration] = 500 * MILLISECOND
"""A peer that restarts listens again after 250 ms."""
DELAY_MAX: Final[Duration] = 60 * SECOND
"""A site whose uplink was down all night is back a minute after it at the latest."""
HURRY: Final[Duration] = 200 * MILLISECOND
"""Who hears of others that the peer is back dials within this, and not all at once."""
STEADY: Final[Duration] = 30 * SECOND
"""A connection that lived so long was a good one: after it the first dial comes soon again. One that flaps is not."""


class BackOff:
    """The delays of one link.

    A delay is drawn between its half and its whole, so that the gateways of a site that lost its uplink do not dial in
    step. Beginning with the eighth failure in a row a link dials at most twice a minute.
    """

    __slots__ = ("_failures",)

    def __init__(self) -> None:
        self._failures = 0

    def next_delay(self, chance: float) -> Duration:
        """How long to wait now. *chance* is a random number from 0 to 1."""
        whole = min(DELAY_MAX, DELAY_MIN << min(self._failures, 7))
        self._failures += 1
        return whole // 2 + int(whole // 2 * chance)

    def ended(self, opened_at: Instant, now: Instant) -> None:
        """A connection that was opened at *opened_at* is over."""
        if now - opened_at >= STEADY:
            self._failures = 0


DEFLATE_CAPABILITY: Final = "deflate"
SERIES_CAPABILITY: Final = "series"
BACKPRESSURE_CAPABILITY: Final = "crowded"
STOPPING: Final = "the gateway stops"


class Link:
    """What one gateway holds of one peer. *chance* gives numbers from 0 to 1."""

    def __init__(
        self,
        peer: str,
        identity: GatewayIdentity,
        now: Instant,
        chance: Callable[[], float],
        terms: LinkOptions = LAN_OPTIONS,
        storage: LinkStorage | None = None,
        stored: StoredLink | None = None,
        clock: int = 0,
    ) -> None:
        """*stored*: what an earlier run left; *clock*: what to add to an instant for microseconds since 1970."""
        stored = StoredLink() if stored is None else stored
        self.peer = peer
        self.identity = identity
        self.options = terms
        self.outbox = LinkOutbox(peer, terms.bounds, storage)
        self.outbox.clock = clock
        self.misread = self.outbox.restore(stored)
        """Stored messages that could not be read."""
        self.budget = LinkBudget(terms.bytes_per_s, terms.bytes_per_day, now, clock)
        self.budget.resume(stored.day, stored.spent)
        self.heartbeat = LinkHeartbeat(terms.heartbeat, now, False, terms.patience)
        self.connection: LinkConnection | None = None
        """The open connection."""
        self.acks = AckTracker(peer, ReceivePositions(stored.store, stored.heard), storage)
        self.boots = PeerBoots()
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
        self._send_by: Instant = NEVER  # when a batch wants to go
        self._sent_at: Instant = -NEVER  # when the last one went
        self._pinged: int | None = None
        self._is_stopped = False

    # -- the gateway's side ---------------------------------------------------------------------------------------

    def start(self, now: Instant) -> None:
        """Begin to dial, if this end does."""
        if self.options.dials:
            self._dial_at = now
            self.fire(now)

    def stop(self, now: Instant, why: str = STOPPING) -> None:
        """Dial no more, and end the connection; the peer is told *why*."""
        self._is_stopped = True
        self._dial_at = None
        if self._dialling is not None:
            self._dialling.end(why, now)
        self._hang_up(why, now)

    def _hang_up(self, why: str, now: Instant) -> None:
        if self.connection is not None:
            self._sender.add_signal(SignalCode.BYE, 0, why)
            self.connection.out += self._sender.take_signals()
            self.connection.end(why, now)

    @property
    def has_events(self) -> bool:
        """Whether `take_events` would give any."""
        return bool(self._events or self.outbox.drops or self.outbox.delivered)

    def take_events(self) -> list[LinkEvent]:
        """What happened since this was asked last."""
        if self.outbox.drops:
            drops, self.outbox.drops = self.outbox.drops, []
            self._events += [DropEvent(self.peer, drop.messages, drop.cause, drop.fate) for drop in drops]
        if self.outbox.delivered:
            delivered, self.outbox.delivered = self.outbox.delivered, []
            self._events.append(DeliveryEvent(self.peer, delivered))
        events, self._events = self._events, []
        return events

    def send(self, message: Message, service: TrafficClass, now: Instant) -> Cause:
        """Take *message* for the peer: what is numbered until the peer has it, everything else while a connection is
        open.

        Returns Cause.NONE, or why it is dropped.
        """
        cause = self.outbox.enqueue(message, service, now)
        if self._send_by > now:
            urgent = service is TrafficClass.CONTROL or self.outbox.waiting_bytes >= self.options.batch_bytes
            self._send_after(-NEVER if urgent else self._sent_at, now)
        return cause

    def handled(self, now: Instant) -> None:
        """All received messages are handled, and what they caused was appended to the journal."""
        if self.acks.handled():
            self._send_after(now, now)

    def synced(self, lsn: int, now: Instant) -> None:
        """The journal is on disk up to *lsn*."""
        self.outbox.synced(lsn)
        is_safe = self.acks.synced(lsn)
        if is_safe or self.outbox.waiting_bytes:
            self._send_after(self._sent_at if self.outbox.waiting_bytes else now, now)

    def set_clock(self, clock: int) -> None:
        """The stored clock was set: *clock* is what to add to an instant from now on."""
        self._clock = self.outbox.clock = self.budget.clock = clock
        self.heartbeat.clock_was_set()

    def records(self) -> Iterator[bytes]:
        """All that the journal has to know of this link, said again for a snapshot."""
        yield from self.outbox.records()
        yield from self.acks.records()
        yield spent_record(self.peer, self.budget.day, self.budget.spent)

    def figures(self, service: TrafficClass) -> QueueFigures:
        """The queue of one class."""
        return self.outbox.queues[service].figures

    def is_held_up(self, now: Instant) -> bool:
        """Whether something waits that the transport does not take, or that is beyond the link's rate."""
        is_slow = self.connection is not None and (self.connection.paused or now < self.budget.owed_until)
        return is_slow and self.outbox.waiting_bytes > 0

    def _send_after(self, since: Instant, now: Instant) -> None:
        self._send_by = min(self._send_by, max(now, since + self.options.batch))

    # -- deadlines ------------------------------------------------------------------------------------------------

    def due(self) -> Instant | None:
        """When to call `fire`; None: never. After it, flush the stream."""
        when = NEVER if self._dial_at is None else self._dial_at
        if self._dialling is not None:
            when = min(when, self._dialling.due() or NEVER)
        if self.connection is not None:
            when = min(when, self.heartbeat.due(), NEVER if self.connection.paused else self._send_by)
        return None if when == NEVER else when

    def fire(self, now: Instant) -> None:
        """Deadlines may have passed."""
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
        elif self.heartbeat.asks(now):
            self._ping(now)

    def _ping(self, now: Instant) -> None:
        self._send_signal(SignalCode.PING, self.heartbeat.ping(now, self._clock))

    def _send_signal(self, word: SignalCode, *values: object) -> None:
        self._sender.add_signal(word, *values)
        self._send_by = 0

    # -- dialling and being dialled -------------------------------------------------------------------------------

    def dialled(self, now: Instant, certified: str | None = None) -> LinkConnection:
        """The connection that Dial asked for is there; *certified* is the name in the peer's certificate."""
        stream = LinkConnection(self._answered, self, now)
        stream.certified = certified
        if not self._is_dialling or self._dialling is not None or self.connection is not None:
            self._is_dialling = self._dialling is not None
            stream.end("not wanted any more", now)
            return stream
        self._dialling = stream
        stream.out += encode_hello(self._hello())
        return stream

    def dial_failed(self, now: Instant) -> None:
        """The connection that Dial asked for could not be had."""
        if self._is_dialling and self._dialling is None:
            self._is_dialling = False
            self._dial_later(now)

    def offered(self, stream: LinkConnection, hello: Hello, now: Instant) -> None:
        """The peer dialled and said *hello*. Raises HelloRefused."""
        self.boots.check(hello, stream, self.connection, now)
        if self._dialling is not None:
            # Both dialled. Each side decides alike, and the connection of the lower number stays.
            if self.identity.number < hello.number:
                raise HelloRefused(RefusalCode.CROSSED, f"{self.identity.name} dialled {hello.name} at the same time")
            self._dialling.end("the peer dialled too", now)
        # Its process is no more; or there are two, and then the other one should know.
        self._hang_up(f"{hello.name} came anew{at(stream.address)}", now)
        stream.out += encode_hello(self._hello())
        self._open(stream, hello, now, False)

    def _answered(self, stream: LinkConnection, hello: Hello, now: Instant) -> Link:
        """The peer that we dialled says *hello*."""
        if hello.name != self.peer:
            raise HelloRefused(RefusalCode.MISDIRECTED, f"{hello.name!r} answers where {self.peer!r} was dialled")
        self.identity.check(hello, stream.certified)
        self.boots.check(hello, stream, None, now)
        self._dialling = None
        self._is_dialling = False
        self._open(stream, hello, now, True)
        return self

    def refused(self, refused: HelloRefused) -> None:
        """A connection to the peer, or from it, came to nothing because of this."""
        self._events.append(LinkRefusal(self.peer, refused.code, str(refused)))

    def _hello(self) -> Hello:
        me = self.identity
        self._hellos += 1
        has = frozenset(
            (BACKPRESSURE_CAPABILITY, SERIES_CAPABILITY, *((DEFLATE_CAPABILITY,) if self.options.deflates else ()))
        )
        heard = self.acks.receive_state()
        return Hello(
            me.federation, me.name, me.number, me.topology, me.run, me.store, self._hellos, self.peer, heard, has
        )

    def _open(self, stream: LinkConnection, hello: Hello, now: Instant, leads: bool) -> None:
        self.connection = stream
        self._dial_at = None
        self._opened_at = now
        is_same_run = hello.run == self.boots.latest
        self.boots.record(hello)
        self.acks.open(hello.run, hello.store)
        deflates = self.options.deflates and DEFLATE_CAPABILITY in hello.capabilities
        self._receiver = LinkReceiver(deflates, self.acks.positions)
        self._sender = LinkSender(
            deflates, SERIES_CAPABILITY in hello.capabilities, BACKPRESSURE_CAPABILITY in hello.capabilities
        )
        heard = hello.heard
        # It may have met this run, and yet be another one than that which was told things before.
        goes_on = is_same_run and heard.run == self.identity.run and not self.outbox.is_overrun
        upto = {
            service: number
            for service, number in heard.upto.items()
            if (goes_on if service is TrafficClass.CONTROL else heard.store == self.identity.store)
        }
        self.outbox.opened(upto, goes_on)
        self.heartbeat = LinkHeartbeat(self.options.heartbeat, now, leads, self.options.patience)
        self._events.append(LinkUp(self.peer, goes_on))
        self._ping(now)

    def dial_soon(self, now: Instant) -> None:
        """The peer is said to be back: dial soon, if this end waits to do so. That counts as a failure if it fails."""
        if self._dial_at is not None:
            self._dial_at = min(self._dial_at, now + int(HURRY * self._chance()))

    def _dial_later(self, now: Instant) -> None:
        if self.options.dials and not self._is_stopped and self.connection is None:
            self._dial_at = now + self._backoff.next_delay(self._chance())

    # -- the connection -------------------------------------------------------------------------------------------

    def fed(self, chunk: bytes, now: Instant) -> bool:
        """Bytes of frames came. Whether there is more to read, in another turn. Raises FrameBroken."""
        self.heartbeat.heard(now)
        messages: list[Message] = []
        try:
            said = self._receiver.feed(chunk, messages, now)
        finally:  # what came before something broken was counted as received
            if messages:
                self._events.append(ReceiveEvent(self.peer, messages))
        for each in said:
            self._receive_signal(each, now)
        if self._pinged is not None:  # of several that came together, the last
            self._send_signal(SignalCode.PONG, self._pinged, now + self._clock, 0)
            self._pinged = None
        if self._receiver.is_amid and self._send_by > 0 and now >= self._sent_at + ASSURANCE:
            self._send_signal(SignalCode.ACK)  # of nothing new: whoever sends what takes long hears that it comes
        return self._receiver.has_more

    def _receive_signal(self, said: LinkSignal, now: Instant) -> None:
        values = said.values
        if said.word is SignalCode.ACK:
            for service, upto in zip(values[::2], values[1::2], strict=True):
                self.outbox.acked(TrafficClass(service), upto)
            self.heartbeat.owed(self.outbox.awaits_ack, now)
        elif said.word is SignalCode.PING:
            self.heartbeat.was_asked()
            self._pinged = values[0]
        elif said.word is SignalCode.PONG:
            number, t2, took = values
            self.heartbeat.answered(number, t2, took, now + self._clock)
        elif self.connection is not None:
            self.connection.end(f"the peer says: {values[1][:200]}", now)

    def pull(self, now: Instant, room: int) -> bytes:
        """Frames to write, about *room* bytes at most; none before a batch is full or its time has come."""
        if now < self._send_by:
            return b""
        if self.outbox.is_overrun and self.connection is not None:
            self.connection.end("too many messages of CONTROL wait", now)
            return b""
        news = self.acks.take_acks()
        if news:
            self._sender.add_signal(SignalCode.ACK, *news)
        allowed = self.budget.allowed(now)
        is_bounded = self.budget.bytes_per_day > 0
        spent = [service for service in SHARED if self.budget.is_spent(service, now)] if is_bounded else []
        if spent:
            self.outbox.refuse(spent, Cause.BUDGET_SPENT)
        settled = len(self.outbox.delivered)
        data = self._sender.pull(self.outbox, allowed, min(room, self.budget.room), now)
        if data:
            self._sent_at = now
            self._charge(len(data), now)
            self.heartbeat.sent(self.outbox.awaits_ack, len(self.outbox.delivered) > settled, now)
        self._send_by = self._next_time(bool(data), bool(spent), now)
        return data

    def _charge(self, octets: int, now: Instant) -> None:
        if self.connection is not None and self.connection.certified is not None:  # with TLS, and never without
            octets += self.options.record_bytes * -(-octets // TLS_DATA_BYTES)
        self.budget.charge(octets, now)
        if self._storage is not None and (note := self.budget.take_record()) is not None:
            self._storage.append(spent_record(self.peer, *note), waits=False)

    def _next_time(self, has_sent: bool, is_spent: bool, now: Instant) -> Instant:
        """When to pull again."""
        if not self.outbox.waiting_bytes and not self._sender.has_parts:
            return NEVER
        if has_sent:
            return max(now, self.budget.owed_until)
        if self.budget.owed_until > now:
            return self.budget.owed_until
        return self.budget.next_day(now) if is_spent else NEVER

    def ended(self, stream: LinkConnection, reason: str, now: Instant) -> None:
        """*stream* is over."""
        if stream is self._dialling:
            self._dialling = None
            self._is_dialling = False
            self._dial_later(now)
        elif stream is self.connection:
            self.connection = None
            self._sender.ended(self.outbox)
            self.outbox.closed()
            self._backoff.ended(self._opened_at, now)
            self._send_by = NEVER
            self._events.append(LinkDown(self.peer, reason))
            self._dial_later(now)


class LinkTable:
    """The links of the gateway *identity*: one to each of its peers, else ValueError."""

    def __init__(self, identity: GatewayIdentity, links: Iterable[Link]) -> None:
        self.identity = identity
        self.unidentified = 0
        """Connections refused of whom there is no link to."""
        self._links = {link.peer: link for link in links}
        if self._links.keys() != identity.peers.keys():
            raise ValueError(f"links to {sorted(self._links)}, peers {sorted(identity.peers)}")

    def __getitem__(self, peer: str) -> Link:
        return self._links[peer]

    def __iter__(self) -> Iterator[Link]:
        return iter(self._links.values())

    def lacks_room(self, size: int) -> bool:
        """Whether some outbox has no room for a local client's event of *size* bytes."""
        for link in self._links.values():  # noqa: SIM110 a generator takes longer, and every event is asked about
            if not link.outbox.has_room(size):
                return True
        return False

    def accept(self, now: Instant, certified: str | None = None) -> LinkConnection:
        """A connection came in; *certified* is the name in the peer's certificate, if it showed one."""
        return LinkConnection(partial(self._identify, certified), None, now)

    def _identify(self, certified: str | None, stream: LinkConnection, hello: Hello, now: Instant) -> Link:
        link = self._links.get(hello.name)
        if link is None:
            self.unidentified += 1
            self.identity.check(hello, certified)
            raise AssertionError("the identity names a peer without a link")
        stream.certified = certified
        try:
            self.identity.check(hello, certified)
            link.offered(stream, hello, now)
        except HelloRefused as refused:
            link.refused(refused)
            raise
        return link
