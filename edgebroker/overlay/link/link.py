"""The link to one peer: connections come and go, the link stays and loses nothing that it was given.

How a gateway works with it (`Links` has all of them):

    link.start(now), link.hurry(now)     it dials, if this end does; soon, if it waits to do so again
    link.send(message, service, now)     -> Cause.NONE, or why it is dropped
    link.handled(now)                    the messages of the last Received are handled: what they caused is appended
    link.synced(lsn, now)                the journal is on disk up to there: acknowledgements are released
    link.due(), link.fire(now)           its deadlines
    for event in link.take_events():     after each of these: Dial, Up, Down, Refused, Dropped, Delivered, Received
    link.figures(service), link.outbox   queues, for the congestion measure and for people

On Dial the world opens a connection; then `stream = link.dialled(now)` or `link.dial_failed(now)`. A connection that
came in is `links.accepted(now)`. What to do with a stream is in `stream`; after any of the calls above, flush the open
one.

Without a *storage* nothing outlives the run. With one, a numbered event is in the journal before `send` returns, on
disk when the journal says so; and what was received is acknowledged to the peer when the record that says so is on
disk. That record is written by `handled`, behind everything that the messages caused. So after a crash a message whose
effects were kept and whose record was not comes again: its event id tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from edgebroker.instants import NEVER, Instant
from edgebroker.overlay.classes import SHARED, Service
from edgebroker.overlay.messages import Message
from edgebroker.records import Cause

from .backoff import HURRY, BackOff
from .budget import Budget
from .events import Delivered, Dial, Down, Dropped, LinkEvent, Received, Refused, Up
from .frames import Said, Word
from .heartbeat import ASSURANCE, Heartbeat
from .hello import Hello, HelloRefused, Refusal, encode_hello
from .identity import Identity
from .inflow import Inflow, Positions
from .lanes import QueueFigures
from .outbox import Outbox, Storage
from .outflow import Outflow
from .receipts import Receipts
from .records import StoredLink, spent_record
from .runs import Runs, at
from .stream import Stream
from .terms import LAN, TLS_DATA_BYTES, LinkTerms

DEFLATE: Final = "deflate"
SERIES: Final = "series"
CROWDED: Final = "crowded"
STOPPING: Final = "the gateway stops"


class Link:
    """What one gateway holds of one peer. *chance* gives numbers from 0 to 1."""

    def __init__(
        self,
        peer: str,
        identity: Identity,
        now: Instant,
        chance: Callable[[], float],
        terms: LinkTerms = LAN,
        storage: Storage | None = None,
        stored: StoredLink | None = None,
        clock: int = 0,
    ) -> None:
        """*stored*: what an earlier run left; *clock*: what to add to an instant for microseconds since 1970."""
        stored = StoredLink() if stored is None else stored
        self.peer = peer
        self.identity = identity
        self.terms = terms
        self.outbox = Outbox(peer, terms.bounds, storage)
        self.outbox.clock = clock
        self.misread = self.outbox.restore(stored)
        """Stored messages that could not be read."""
        self.budget = Budget(terms.bytes_per_s, terms.bytes_per_day, now, clock)
        self.budget.go_on(stored.day, stored.spent)
        self.heartbeat = Heartbeat(terms.heartbeat, now, False, terms.patience)
        self.stream: Stream | None = None
        """The open connection."""
        self.receipts = Receipts(peer, Positions(stored.store, stored.heard), storage)
        self.runs = Runs()
        self._chance = chance
        self._storage = storage
        self._clock = clock
        self._events: list[LinkEvent] = []
        self._backoff = BackOff()
        self._dialling: Stream | None = None
        self._is_dialling = False
        self._dial_at: Instant | None = None
        self._opened_at: Instant = 0
        self._hellos = 0
        self._inflow = Inflow(False, self.receipts.positions)
        self._outflow = Outflow(False)
        self._send_by: Instant = NEVER  # when a batch wants to go
        self._sent_at: Instant = -NEVER  # when the last one went
        self._pinged: int | None = None
        self._is_stopped = False

    # -- the gateway's side ---------------------------------------------------------------------------------------

    def start(self, now: Instant) -> None:
        """Begin to dial, if this end does."""
        if self.terms.dials:
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
        if self.stream is not None:
            self._outflow.say(Word.BYE, 0, why)
            self.stream.out += self._outflow.words()
            self.stream.end(why, now)

    @property
    def has_events(self) -> bool:
        """Whether `take_events` would give any."""
        return bool(self._events or self.outbox.drops or self.outbox.delivered)

    def take_events(self) -> list[LinkEvent]:
        """What happened since this was asked last."""
        if self.outbox.drops:
            drops, self.outbox.drops = self.outbox.drops, []
            self._events += [Dropped(self.peer, drop.messages, drop.cause, drop.fate) for drop in drops]
        if self.outbox.delivered:
            delivered, self.outbox.delivered = self.outbox.delivered, []
            self._events.append(Delivered(self.peer, delivered))
        events, self._events = self._events, []
        return events

    def send(self, message: Message, service: Service, now: Instant) -> Cause:
        """Take *message* for the peer: what is numbered until the peer has it, everything else while a connection is
        open.

        Returns Cause.NONE, or why it is dropped.
        """
        cause = self.outbox.take(message, service, now)
        if self._send_by > now:
            urgent = service is Service.CONTROL or self.outbox.waiting_bytes >= self.terms.batch_bytes
            self._send_after(-NEVER if urgent else self._sent_at, now)
        return cause

    def handled(self, now: Instant) -> None:
        """All received messages are handled, and what they caused was appended to the journal."""
        if self.receipts.handled():
            self._send_after(now, now)

    def synced(self, lsn: int, now: Instant) -> None:
        """The journal is on disk up to *lsn*."""
        self.outbox.on_disk(lsn)
        is_safe = self.receipts.synced(lsn)
        if is_safe or self.outbox.waiting_bytes:
            self._send_after(self._sent_at if self.outbox.waiting_bytes else now, now)

    def set_clock(self, clock: int) -> None:
        """The stored clock was set: *clock* is what to add to an instant from now on."""
        self._clock = self.outbox.clock = self.budget.clock = clock
        self.heartbeat.clock_was_set()

    def records(self) -> Iterator[bytes]:
        """All that the journal has to know of this link, said again for a snapshot."""
        yield from self.outbox.records()
        yield from self.receipts.records()
        yield spent_record(self.peer, self.budget.day, self.budget.spent)

    def figures(self, service: Service) -> QueueFigures:
        """The queue of one class."""
        return self.outbox.lanes[service].figures

    def is_held_up(self, now: Instant) -> bool:
        """Whether something waits that the transport does not take, or that is beyond the link's rate."""
        is_slow = self.stream is not None and (self.stream.paused or now < self.budget.owed_until)
        return is_slow and self.outbox.waiting_bytes > 0

    def _send_after(self, since: Instant, now: Instant) -> None:
        self._send_by = min(self._send_by, max(now, since + self.terms.batch))

    # -- deadlines ------------------------------------------------------------------------------------------------

    def due(self) -> Instant | None:
        """When to call `fire`; None: never. After it, flush the stream."""
        when = NEVER if self._dial_at is None else self._dial_at
        if self._dialling is not None:
            when = min(when, self._dialling.due() or NEVER)
        if self.stream is not None:
            when = min(when, self.heartbeat.due(), NEVER if self.stream.paused else self._send_by)
        return None if when == NEVER else when

    def fire(self, now: Instant) -> None:
        """Deadlines may have passed."""
        if self._dialling is not None:
            self._dialling.fire(now)
        if self._dial_at is not None and now >= self._dial_at:
            self._dial_at = None
            self._is_dialling = True
            self._events.append(Dial(self.peer))
        if self.stream is None:
            return
        if self.heartbeat.is_dead(now):
            self.stream.end("the peer is silent", now)
        elif self.heartbeat.asks(now):
            self._ping(now)

    def _ping(self, now: Instant) -> None:
        self._say(Word.PING, self.heartbeat.ping(now, self._clock))

    def _say(self, word: Word, *values: object) -> None:
        self._outflow.say(word, *values)
        self._send_by = 0

    # -- dialling and being dialled -------------------------------------------------------------------------------

    def dialled(self, now: Instant, certified: str | None = None) -> Stream:
        """The connection that Dial asked for is there; *certified* is the name in the peer's certificate."""
        stream = Stream(self._answered, self, now)
        stream.certified = certified
        if not self._is_dialling or self._dialling is not None or self.stream is not None:
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

    def offered(self, stream: Stream, hello: Hello, now: Instant) -> None:
        """The peer dialled and said *hello*. Raises HelloRefused."""
        self.runs.judge(hello, stream, self.stream, now)
        if self._dialling is not None:
            # Both dialled. Each side decides alike, and the connection of the lower number stays.
            if self.identity.number < hello.number:
                raise HelloRefused(Refusal.CROSSED, f"{self.identity.name} dialled {hello.name} at the same time")
            self._dialling.end("the peer dialled too", now)
        # Its process is no more; or there are two, and then the other one should know.
        self._hang_up(f"{hello.name} came anew{at(stream.where)}", now)
        stream.out += encode_hello(self._hello())
        self._open(stream, hello, now, False)

    def _answered(self, stream: Stream, hello: Hello, now: Instant) -> Link:
        """The peer that we dialled says *hello*."""
        if hello.name != self.peer:
            raise HelloRefused(Refusal.MISDIRECTED, f"{hello.name!r} answers where {self.peer!r} was dialled")
        self.identity.judge(hello, stream.certified)
        self.runs.judge(hello, stream, None, now)
        self._dialling = None
        self._is_dialling = False
        self._open(stream, hello, now, True)
        return self

    def refused(self, refused: HelloRefused) -> None:
        """A connection to the peer, or from it, came to nothing because of this."""
        self._events.append(Refused(self.peer, refused.code, str(refused)))

    def _hello(self) -> Hello:
        me = self.identity
        self._hellos += 1
        has = frozenset((CROWDED, SERIES, *((DEFLATE,) if self.terms.deflates else ())))
        heard = self.receipts.heard()
        return Hello(
            me.federation, me.name, me.number, me.topology, me.run, me.store, self._hellos, self.peer, heard, has
        )

    def _open(self, stream: Stream, hello: Hello, now: Instant, leads: bool) -> None:
        self.stream = stream
        self._dial_at = None
        self._opened_at = now
        is_same_run = hello.run == self.runs.latest
        self.runs.met(hello)
        self.receipts.met(hello.run, hello.store)
        deflates = self.terms.deflates and DEFLATE in hello.capabilities
        self._inflow = Inflow(deflates, self.receipts.positions)
        self._outflow = Outflow(deflates, SERIES in hello.capabilities, CROWDED in hello.capabilities)
        heard = hello.heard
        # It may have met this run, and yet be another one than that which was told things before.
        goes_on = is_same_run and heard.run == self.identity.run and not self.outbox.is_overrun
        upto = {
            service: number
            for service, number in heard.upto.items()
            if (goes_on if service is Service.CONTROL else heard.store == self.identity.store)
        }
        self.outbox.opened(upto, goes_on)
        self.heartbeat = Heartbeat(self.terms.heartbeat, now, leads, self.terms.patience)
        self._events.append(Up(self.peer, goes_on))
        self._ping(now)

    def hurry(self, now: Instant) -> None:
        """The peer is said to be back: dial soon, if this end waits to do so. That counts as a failure if it fails."""
        if self._dial_at is not None:
            self._dial_at = min(self._dial_at, now + int(HURRY * self._chance()))

    def _dial_later(self, now: Instant) -> None:
        if self.terms.dials and not self._is_stopped and self.stream is None:
            self._dial_at = now + self._backoff.next_delay(self._chance())

    # -- the connection -------------------------------------------------------------------------------------------

    def fed(self, chunk: bytes, now: Instant) -> bool:
        """Bytes of frames came. Whether there is more to read, in another turn. Raises FrameBroken."""
        self.heartbeat.heard(now)
        messages: list[Message] = []
        try:
            said = self._inflow.feed(chunk, messages, now)
        finally:  # what came before something broken was counted as received
            if messages:
                self._events.append(Received(self.peer, messages))
        for each in said:
            self._hear(each, now)
        if self._pinged is not None:  # of several that came together, the last
            self._say(Word.PONG, self._pinged, now + self._clock, 0)
            self._pinged = None
        if self._inflow.is_amid and self._send_by > 0 and now >= self._sent_at + ASSURANCE:
            self._say(Word.ACK)  # of nothing new: whoever sends what takes long hears that it comes
        return self._inflow.has_more

    def _hear(self, said: Said, now: Instant) -> None:
        values = said.values
        if said.word is Word.ACK:
            for service, upto in zip(values[::2], values[1::2], strict=True):
                self.outbox.acked(Service(service), upto)
            self.heartbeat.owed(self.outbox.is_owed, now)
        elif said.word is Word.PING:
            self.heartbeat.was_asked()
            self._pinged = values[0]
        elif said.word is Word.PONG:
            number, t2, took = values
            self.heartbeat.answered(number, t2, took, now + self._clock)
        elif self.stream is not None:
            self.stream.end(f"the peer says: {values[1][:200]}", now)

    def pull(self, now: Instant, room: int) -> bytes:
        """Frames to write, about *room* bytes at most; none before a batch is full or its time has come."""
        if now < self._send_by:
            return b""
        if self.outbox.is_overrun and self.stream is not None:
            self.stream.end("too many messages of CONTROL wait", now)
            return b""
        news = self.receipts.news()
        if news:
            self._outflow.say(Word.ACK, *news)
        allowed = self.budget.allowed(now)
        is_bounded = self.budget.bytes_per_day > 0
        spent = [service for service in SHARED if self.budget.is_spent(service, now)] if is_bounded else []
        if spent:
            self.outbox.refuse(spent, Cause.BUDGET_SPENT)
        settled = len(self.outbox.delivered)
        data = self._outflow.pull(self.outbox, allowed, min(room, self.budget.room), now)
        if data:
            self._sent_at = now
            self._charge(len(data), now)
            self.heartbeat.sent(self.outbox.is_owed, len(self.outbox.delivered) > settled, now)
        self._send_by = self._next_time(bool(data), bool(spent), now)
        return data

    def _charge(self, octets: int, now: Instant) -> None:
        if self.stream is not None and self.stream.certified is not None:  # with TLS, and never without
            octets += self.terms.record_bytes * -(-octets // TLS_DATA_BYTES)
        self.budget.charge(octets, now)
        if self._storage is not None and (note := self.budget.take_note()) is not None:
            self._storage.append(spent_record(self.peer, *note), waits=False)

    def _next_time(self, has_sent: bool, is_spent: bool, now: Instant) -> Instant:
        """When to pull again."""
        if not self.outbox.waiting_bytes and not self._outflow.has_parts:
            return NEVER
        if has_sent:
            return max(now, self.budget.owed_until)
        if self.budget.owed_until > now:
            return self.budget.owed_until
        return self.budget.next_day(now) if is_spent else NEVER

    def ended(self, stream: Stream, reason: str, now: Instant) -> None:
        """*stream* is over."""
        if stream is self._dialling:
            self._dialling = None
            self._is_dialling = False
            self._dial_later(now)
        elif stream is self.stream:
            self.stream = None
            self._outflow.ended(self.outbox)
            self.outbox.closed()
            self._backoff.ended(self._opened_at, now)
            self._send_by = NEVER
            self._events.append(Down(self.peer, reason))
            self._dial_later(now)
