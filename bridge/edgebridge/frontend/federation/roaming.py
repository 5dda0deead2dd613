"""Sessions that roam: a client that connects at another gateway finds its session there (docs/roaming.md).

The gateway at which a client connects *claims* the session from the gateway that has it. There the session *departs*:
its connection ends, it goes on under another name, and its records are sent in pieces, the queue last. What comes for
the client meanwhile waits behind that. At the new gateway the session *arrives*: with the first pieces its client is
served, and its subscriptions hold there too.

For a moment both gateways get the client's messages. The old gateway's are the ones that count, because they are in
order behind the queue; the new gateway holds its own copies, and drops each whose event comes from the old one. When
all gateways know the subscriptions at the new one, and what was on its way has had time to arrive, the old session ends
with the last piece, and what is still held is delivered.

Each step is in one transaction of the journal with the message that caused it, and messages between gateways arrive
once. So after a crash of either gateway, at any step, one of them has the session, or it is on its way to one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.delivery import Delivery
from edgebridge.frontend.handlers.connect import ConnectHandler
from edgebridge.frontend.handlers.subscribe import SubscribeHandler
from edgebridge.frontend.journal.queue_pager import QueuePager
from edgebridge.frontend.journal.session_journal import SessionJournal
from edgebridge.frontend.options import BRIDGE_CLIENT_PREFIX
from edgebridge.frontend.queue_expiry import QueueExpiry
from edgebridge.session.acl import Acl, read_rule
from edgebridge.session.credentials import AuthenticationResult
from edgebridge.session.inflight import Inflight, QueueEntry, new_queue_entry
from edgebridge.session.journal.requeue import requeue_copies
from edgebridge.session.journal.session_records import (
    PACKET,
    SessionRecordKind,
    paged_message_record,
    session_record,
    settled_record,
)
from edgebridge.session.journal.state import JournalState, RecordInvalid, StoredSession
from edgebridge.session.journal.transfer_records import (
    StoredRoaming,
    StoredTransfer,
    TransferFlag,
    copy_event_record,
    departing_name,
    known_events_record,
    last_events_record,
    transfer_record,
)
from edgebridge.session.lifecycle import ConnectionState
from edgebridge.session.queue.outbox import SessionOutbox
from edgebridge.session.session import Session
from edgebridge.wire.packets import Connect
from edgebridge.wire.properties import Properties
from edgebridge.wire.reasons import ReasonCode
from edgebroker.dataclasses import dataclass
from edgebroker.errors import EdgebrokerError
from edgebroker.federation.session_transfer import (
    NO_EVENT,
    PieceFlag,
    PieceItem,
    PieceReceipt,
    SessionClaim,
    SessionDenial,
    SessionPiece,
    SessionRelease,
    TransferKey,
    TransferMessage,
    encode_transfer,
    read_transfer,
)
from edgebroker.header import host_of
from edgebroker.instants import MILLISECOND, NEVER, SECOND, Duration, Instant
from edgebroker.limits import KIB
from edgebroker.log_schema import Cause, EventId
from edgebroker.names import ClientId
from edgebroker.node.events import ClientRemoval
from edgebroker.node.node import Node
from edgebroker.node.subscriptions import Copy
from edgebroker.overlay.messages import Forward
from edgebroker.publication import Publication

if TYPE_CHECKING:
    from edgebridge.frontend.federation.federation import FederationMember

ROAMING: Final = ("roaming",)
"""The deadline of moves and claims."""
PIECE_BYTES: Final = 64 * KIB
"""A piece of this size is closed, whatever follows..."""
PIECE_MESSAGES: Final = 200
"""...and one with so many messages: 2 ms at 10 us each."""
PIECES_ON_THE_WAY: Final = 4
"""Pieces of a queue that may wait for their receipts: a queue of any length takes 256 KiB of an uplink's outbox."""
LATE_FOR: Final[Duration] = 10 * SECOND
"""What was on its way to the old gateway when all others knew the new one has so long to arrive: as long as an event
waits for its predecessor (`reorder_buffer.WAIT_MAX`)."""
KNOWN_FOR: Final[Duration] = 60 * SECOND
"""Events that came with a session are known for so long after it has come as a whole."""
RETRY: Final[Duration] = 5 * SECOND
"""How often it is tried to tell all gateways of a new subscription, while some cannot be reached."""
EVENTS_IN_RECORD: Final = 4_096
"""Publishers in one record of a piece: 32 KiB."""
NUMBERS_MAX: Final = 10_000
"""Clients of whose sessions it is known since which claim they are here, about 200 bytes each."""
FLUSH_WAIT: Final[Duration] = SECOND
PAGE_WAIT: Final[Duration] = 100 * MILLISECOND
"""A part of a queue is being read from the disk."""
CONNECT_GRACE: Final[Duration] = 5 * SECOND

ResumeConnect: TypeAlias = Callable[[Connection, Connect, AuthenticationResult, Properties | None, Instant], None]


ArrivalKey: TypeAlias = tuple[TransferKey, int]
"""A move, and the number of the gateway that the session comes from: two may have answered one claim."""


class SessionLocator(Protocol):
    """Knows at which other gateways clients have sessions (`federation.session_directory`)."""

    def holders(self, client_id: str) -> tuple[int, ...]:
        """Return the numbers of the gateways that may have a session of the client."""

    def is_known(self, gateway: int) -> bool:
        """Return whether it is known which sessions *gateway* has."""


@dataclass(slots=True)
class PendingConnect:
    """A CONNECT that waits for the session of its client."""

    connection: Connection
    connect: Connect
    verdict: AuthenticationResult
    proof: Properties | None
    due: Instant


@dataclass(slots=True)
class PendingClaim:
    """A session that is being claimed."""

    number: int
    awaited: set[int]
    """The gateways that have not answered."""
    pending: PendingConnect | None = None
    is_answered: bool = False


@dataclass(slots=True)
class Transfer:
    """A move of one session, as one of the two gateways knows it."""

    key: TransferKey
    peer: int
    """The number of the other gateway."""
    flags: TransferFlag
    sequence: int = 0
    """The last piece that was sent, or that came."""
    acknowledged: int = 0
    """The last piece for which there is a receipt."""
    due: Instant = NEVER
    """When the next step follows: a departure ends, an arrival is forgotten."""

    @property
    def is_open(self) -> bool:
        """Whether more pieces come."""
        return not self.flags & TransferFlag.LAST

    def stored(self) -> StoredTransfer:
        """Return what the journal has to know."""
        key = self.key
        return StoredTransfer(self.flags, self.peer, key.gateway, key.number, self.sequence, key.client)


@dataclass(slots=True)
class RoamingSession:
    """A session that departs, arrives, or does both."""

    session: Session
    departure: Transfer | None = None
    arrivals: dict[ArrivalKey, Transfer] = field(default_factory=dict)
    events: dict[int, EventId] = field(default_factory=dict)
    """Copy -> its event, of what may come to the next gateway too."""
    held: dict[EventId, QueueEntry] = field(default_factory=dict)
    """This gateway's own copies, which wait until the session has come as a whole."""
    known: dict[EventId, None] = field(default_factory=dict)
    """Events that came with the session, or were delivered while it did."""
    last: dict[int, int] = field(default_factory=dict)
    """Publisher -> the sequence of its last event that the gateways saw from which the session comes: what is not later
    came there, or comes with the session."""
    inherited: set[str] = field(default_factory=set)
    """The subscriptions that came with the session."""

    @property
    def is_arriving(self) -> bool:
        """Whether pieces are still to come."""
        return any(arrival.is_open for arrival in self.arrivals.values())


class SessionRoaming:
    """The sessions of one gateway that come from others, and go to others."""

    def __init__(
        self,
        node: Node,
        connect_handler: ConnectHandler,
        subscribe_handler: SubscribeHandler,
        delivery: Delivery,
        pager: QueuePager,
        expiry: QueueExpiry,
    ) -> None:
        self._node = node
        self._connect_handler = connect_handler
        self._subscribe_handler = subscribe_handler
        self._delivery = delivery
        self._pager = pager
        self._expiry = expiry
        self._journal: SessionJournal = pager.journal
        self._member: FederationMember | None = None
        self._locator: SessionLocator | None = None
        self._resume_connect: ResumeConnect | None = None
        self._wait: Duration = 0
        self._claims: dict[str, PendingClaim] = {}
        self._states: dict[str, RoamingSession] = {}
        self._departures: dict[TransferKey, RoamingSession] = {}
        self._arrivals: dict[ArrivalKey, RoamingSession] = {}
        self._discarded: set[ArrivalKey] = set()  # moves of sessions that have ended here
        self._due: Instant = NEVER
        self._numbers: dict[str, int] = {}
        """Client -> the number of the claim by which its session came, or that it would have had when it began here."""
        self._gone: dict[str, tuple[int, int]] = {}
        """Client -> the number of the last claim of its session by another gateway, and that gateway."""
        self._unanswered: set[str] = set()
        """Clients whose sessions began because no gateway had answered in time."""
        self._last_number = 0
        self._flush = 0  # the question whether all gateways know the subscriptions of what arrived; 0: none is open
        self._retry_at: Instant = 0
        self.claimed = 0
        """Sessions that were claimed from other gateways."""
        self.timed_out = 0
        """CONNECTs that were answered with a new session because no gateway had answered in time."""
        self.arrived = 0
        """Sessions that came."""
        self.departed = 0
        """Sessions that went."""
        self.unreadable = 0
        """Messages and records of other gateways that could not be read."""

    def attach(
        self, member: FederationMember, locator: SessionLocator | None, wait: Duration, resume_connect: ResumeConnect
    ) -> None:
        """Belong to *member*. *wait*: how long a CONNECT waits for other gateways. *resume_connect*: lets a client in
        that waited.
        """
        self._member, self._locator, self._wait = member, locator, wait
        self._resume_connect = resume_connect

    @property
    def is_active(self) -> bool:
        """Whether a session moves, so that `divert` wants to see each copy."""
        return bool(self._states)

    @property
    def _own(self) -> int:
        assert self._member is not None
        return self._member.peers.gateway.number

    # -- a client connects ----------------------------------------------------------------------------------------

    def locate(
        self,
        connection: Connection,
        connect: Connect,
        verdict: AuthenticationResult,
        proof: Properties | None,
        now: Instant,
    ) -> bool:
        """Claim the session of a client that connects here, if another gateway may have one. Returns whether the
        CONNECT has to wait for it.
        """
        client = connect.client_id
        if self._locator is None or self._journal.storage is None or client.startswith(BRIDGE_CLIENT_PREFIX):
            return False
        claim = self._claims.get(client)
        if claim is None:
            session = self._connect_handler.sessions.get(ClientId(client))
            if session is not None and not (client in self._unanswered and _is_unused(session)):
                return False
            if session is not None:  # its client may not have heard of it
                self._end_unused(session, now)
            holders = self._holders(client)
            if not holders:
                self._set_number(client, self._next_number(now))
                return False
            message = SessionClaim(TransferKey(self._own, self._next_number(now), client), connect.clean_start)
            for holder in holders:
                self._send(holder, message, now)
            self.claimed += 1
            self._set_number(client, message.key.number)
            if connect.clean_start:
                return False
            claim = self._claims[client] = PendingClaim(message.key.number, holders)
        self._refuse_pending(claim)
        pending = claim.pending = PendingConnect(connection, connect, verdict, proof, now + self._wait)
        connection.state = ConnectionState.AUTHENTICATING
        connection.is_held = True
        self._node.timers.set(("connect", connection.number), pending.due + CONNECT_GRACE)
        self._plan(pending.due)
        return True

    def _next_number(self, now: Instant) -> int:
        """Return a number for a claim: milliseconds since 1970, or more if a later one is known."""
        self._last_number = max(self._last_number + 1, (now + self._journal.clock_offset) // MILLISECOND)
        return self._last_number

    def _number_of(self, session: Session) -> int:
        """Return the number of the claim by which *session* came, or the one that it would have had. If that is not
        known any more: when its client was last seen.
        """
        number = self._numbers.get(session.client_id)
        return number or (session.disconnected_at + self._journal.clock_offset) // MILLISECOND

    def _set_number(self, client: str, number: int) -> None:
        if client not in self._numbers and len(self._numbers) >= NUMBERS_MAX:
            del self._numbers[next(iter(self._numbers))]
        self._numbers[client] = number

    def number_seen(self, number: int) -> None:
        """Let the next claim be later than *number*, of another gateway: clocks differ."""
        self._last_number = max(self._last_number, number)

    def _holders(self, client: str) -> set[int]:
        assert self._locator is not None
        assert self._member is not None
        holders = set(self._locator.holders(client))
        holders |= {each for each in self._member.other_gateways() if not self._locator.is_known(each)}
        holders.add(self._whereabouts(client)[1])  # that gateway's own announcement may be on its way
        self._gone.pop(client, None)
        return holders - {self._own}

    def _whereabouts(self, client: str) -> tuple[int, int]:
        """Return the number of the last claim of the session of *client* by another gateway, and where it has gone."""
        found = [self._gone.get(client, (0, self._own))]
        for state in self._departures.values():
            departure = state.departure
            if departure is not None and departure.key.client == client:
                found.append((departure.key.number, departure.peer))
        return max(found)

    def _note_gone(self, key: TransferKey) -> None:
        """Know that the client of a claim is at another gateway, and no longer waits here."""
        client = key.client
        if client not in self._gone and len(self._gone) >= NUMBERS_MAX:
            del self._gone[next(iter(self._gone))]
        self._gone[client] = max(self._gone.get(client, (0, 0)), (key.number, key.gateway))
        claim = self._claims.get(client)
        if claim is not None and claim.number < key.number:
            del self._claims[client]
            self._refuse_pending(claim)

    def _refuse_pending(self, claim: PendingClaim) -> None:
        """Refuse the CONNECT that waits for *claim*: its client has connected again."""
        pending, claim.pending = claim.pending, None
        if pending is not None and not pending.connection.closing:
            why = "the client connected again elsewhere"
            client = pending.connect.client_id
            self._connect_handler.refuse(pending.connection, ReasonCode.SERVER_BUSY, why, client=client)

    def _end_unused(self, session: Session, now: Instant) -> None:
        if session.connection is not None:
            self._connect_handler.take_over(session, now)
        if ClientId(session.client_id) in self._connect_handler.sessions:
            self._connect_handler.end_session(session, now)

    def found_elsewhere(self, clients: Iterable[str], gateway: int, stamp_ms: int, now: Instant) -> None:
        """Handle that *gateway* may have a session of *clients*, who have one here: the news of one of them were late.
        The gateway at which the client connected last claims the other one. *stamp_ms*: when it connected there.
        """
        for client in clients:
            session = self._connect_handler.sessions.get(ClientId(client))
            if session is None:
                continue
            number = self._number_of(session)
            if number > stamp_ms:
                self._send(gateway, SessionClaim(TransferKey(self._own, number, client), False), now)
                self.claimed += 1
        self.number_seen(stamp_ms)

    def _denied(self, key: TransferKey, gateway: int, now: Instant) -> None:
        claim = self._claims.get(key.client)
        if claim is not None and key.gateway == self._own:
            claim.awaited.discard(gateway)
            if not claim.awaited:
                claim.is_answered = True
                self._plan(now + 1)

    def _resume_connects(self, now: Instant) -> None:
        """Let in the clients whose sessions are here, or have been waited for long enough."""
        assert self._resume_connect is not None
        for client, claim in [*self._claims.items()]:
            pending = claim.pending
            if pending is None or not (claim.is_answered or pending.due <= now):
                continue
            del self._claims[client]
            connection = pending.connection
            if connection.state is ConnectionState.AUTHENTICATING and not connection.closing:
                if not claim.is_answered:
                    self.timed_out += 1
                    self._unanswered.add(client)
                self._resume_connect(connection, pending.connect, pending.verdict, pending.proof, now)

    # -- messages of other gateways -------------------------------------------------------------------------------

    def receive(self, forward: Forward, now: Instant) -> None:
        """Handle an event that another gateway sent to this one. It is in a transaction of the journal."""
        message = read_transfer(forward.payload)
        if message is None:
            self.unreadable += 1
        else:
            self._handle(message, host_of(forward.header.publisher), now)

    def _handle(self, message: TransferMessage, source: int, now: Instant) -> None:
        match message:
            case SessionClaim():
                self._handle_claim(message, now)
            case SessionDenial(key):
                self._denied(key, source, now)
            case SessionPiece():
                self._handle_piece(message, source, now)
            case PieceReceipt(key, sequence):
                state = self._departures.get(key)
                if state is not None and state.departure is not None:
                    departure = state.departure
                    departure.acknowledged = max(departure.acknowledged, sequence)
                    self._plan(now + 1)
            case SessionRelease(key, is_immediate):
                state = self._departures.get(key)
                if state is not None and state.departure is not None:
                    departure = state.departure
                    departure.flags |= TransferFlag.RELEASED
                    departure.due = now if is_immediate else now + LATE_FOR
                    self._record(state.session, departure, now)
                    self._plan(departure.due + 1)

    def _send(self, gateway: int, message: TransferMessage, now: Instant) -> None:
        assert self._member is not None
        if self._member.peers.gossip.link_state.name_of(gateway) is not None:
            self._member.perform(self._member.peers.send_in_order(gateway, encode_transfer(message), now), now)

    def _record(self, session: Session, transfer: Transfer, now: Instant) -> None:
        if session.number:
            self._journal.append(transfer_record(session.number, transfer.stored()), True, now)

    def _plan(self, due: Instant) -> None:
        if due < self._due:
            self._due = due
            self._node.timers.set(ROAMING, due)

    # -- a session departs ----------------------------------------------------------------------------------------

    def _handle_claim(self, claim: SessionClaim, now: Instant) -> None:
        key = claim.key
        client = ClientId(key.client)
        sessions = self._connect_handler.sessions
        session = sessions.get(client)
        self.number_seen(key.number)
        if session is not None and key.number <= self._number_of(session):  # it was long on its way
            self._send(key.gateway, SessionDenial(key), now)
            return
        if session is not None and session.connection is not None:
            self._connect_handler.take_over(session, now)
            session = sessions.get(client)  # it may have ended with its connection
        if session is not None and client in self._unanswered and _is_unused(session):
            # Its client has gone on, perhaps without having heard of it: the session that it knows is the earlier one.
            self._end_unused(session, now)
            session = None
        number, gateway = self._whereabouts(client)
        self._note_gone(key)
        if session is None:
            if number < key.number and gateway not in (key.gateway, self._own):
                self._send(gateway, claim, now)
            elif not claim.is_clean:
                self._send(key.gateway, SessionDenial(key), now)
        elif claim.is_clean:
            self._connect_handler.end_session(session, now)
        elif session.number and key not in self._departures:
            self._depart(session, key, now)
        else:
            self._send(key.gateway, SessionDenial(key), now)

    def _depart(self, session: Session, key: TransferKey, now: Instant) -> None:
        """Let *session* go on under another name, without its client."""
        client = ClientId(key.client)
        for timer in ("will", "session", "expire", "share", "age"):
            self._node.timers.cancel((timer, client))
        self._numbers.pop(client, None)
        self._connect_handler.rename_departing(session, ClientId(departing_name(key.gateway, key.number, client)))
        records = dict(session.subscription_records)
        session.release_filters()
        session.subscribed = session.subscription_bytes = 0
        session.replays = None
        for stored in self._stored(session).subscriptions.values():
            try:
                self._subscribe_handler.restore(session, replace(stored, is_owed=False), now)
            except EdgebrokerError:  # the old name's subscription holds it no longer
                self.unreadable += 1
        session.subscription_records = records  # with what is retained and was not sent
        if records:
            self._node.handle(ClientRemoval(client), now)
        state = self._states.pop(client, None) or RoamingSession(session)
        state.departure = Transfer(key, key.gateway, TransferFlag.DEPARTURE)
        self._states[session.client_id] = self._departures[key] = state
        self._send_first(state, state.departure, now)
        self.departed += 1
        self._plan(now + 1)

    def _stored(self, session: Session) -> StoredSession:
        """Return what the journal says of *session* and its subscriptions."""
        stored = JournalState()
        stored.apply(session_record(session, True))
        for record in session.subscription_records.values():
            stored.apply(record)
        return stored.sessions[session.number]

    def _drain(self, state: RoamingSession, now: Instant) -> None:
        """Send what waits in a session that departs, as far as receipts allow, and end it when all has gone."""
        departure, session = state.departure, state.session
        assert departure is not None
        while departure.sequence - departure.acknowledged < PIECES_ON_THE_WAY:
            entries = self._dequeue(session, now)
            if not entries:
                break
            self._journal.begin_transaction()
            self._journal.append(settled_record([(session.number, entry.number) for entry in entries]), False, now)
            self._send_piece(state, departure, [self._item(state, entry, now) for entry in entries], PieceFlag(0), now)
            self._journal.commit_transaction(now)
        if len(session.outbox):
            if departure.sequence - departure.acknowledged < PIECES_ON_THE_WAY:
                self._plan(now + PAGE_WAIT)
        elif departure.flags & TransferFlag.RELEASED and not state.is_arriving:
            if departure.due <= now:
                self._journal.begin_transaction()
                self._connect_handler.end_session(session, now)
                self._journal.commit_transaction(now)
            else:
                self._plan(departure.due)

    def _send_first(self, state: RoamingSession, departure: Transfer, now: Instant) -> None:
        """Send the terms of a session, its subscriptions, and what is on its way to and from its client."""
        session = state.session
        records = list(session.subscription_records.values())
        records += [PACKET.pack(SessionRecordKind.RECEIVED, session.number, each) for each in session.received]
        last = [*self._last_events(state).items()]
        for at in range(0, len(last), EVENTS_IN_RECORD):
            records.append(last_events_record(session.number, last[at : at + EVENTS_IN_RECORD]))
        items = [PieceItem(record) for record in records]
        for entry in list(session.inflight):
            items.append(self._item(state, entry, now))
            session.inflight.acknowledge(entry.packet_id, entry.qos)
            self._journal.append(settled_record([(session.number, entry.number)]), False, now)
        departure.flags |= TransferFlag.READY
        flags, is_sent = PieceFlag.FIRST, False
        while not is_sent:
            size, count = 0, 0
            while count < len(items) and size < PIECE_BYTES:
                size += len(items[count].record)
                count += 1
            piece, items = items[:count], items[count:]
            is_sent = not items
            self._send_piece(state, departure, piece, flags | PieceFlag.READY if is_sent else flags, now)
            flags = PieceFlag(0)

    def _last_events(self, state: RoamingSession) -> dict[int, int]:
        assert self._member is not None
        last = dict(state.last)
        for publisher, sequence in (*self._member.peers.forwarder.last_events().items(), *state.known):
            last[publisher] = max(sequence, last.get(publisher, 0))
        return last

    def _send_piece(
        self, state: RoamingSession, departure: Transfer, items: list[PieceItem], flags: PieceFlag, now: Instant
    ) -> None:
        departure.sequence += 1
        terms = PieceItem(session_record(state.session, True))
        self._send(departure.peer, SessionPiece(departure.key, departure.sequence, flags, (terms, *items)), now)
        self._record(state.session, departure, now)

    def _dequeue(self, session: Session, now: Instant) -> list[QueueEntry]:
        """Take what is sent next out of the queue."""
        outbox, size = session.outbox, 0
        entries: list[QueueEntry] = []
        while (
            (outbox.is_ready() or (outbox.pages and self._pager.prepare(session)))
            and size < PIECE_BYTES
            and len(entries) < PIECE_MESSAGES
        ):
            entry = outbox.dequeue()
            publication = entry.publication
            if publication.has_expired(now):
                self._node.ledger.expire(now, publication, session.client_id, entry.text, entry.qos)
                self._journal.settled(session, entry, now)
                continue
            entries.append(entry)
            size += publication.held_bytes()
        return entries

    def _item(self, state: RoamingSession, entry: QueueEntry, now: Instant) -> PieceItem:
        session, publication = state.session, entry.publication
        record = paged_message_record(publication, self._journal.clock_offset, session.number, entry)
        self._node.ledger.drop(now, publication, session.client_id, entry.text, entry.qos, Cause.HANDED_OVER)
        return PieceItem(record, state.events.pop(entry.number, NO_EVENT))

    # -- a session arrives ----------------------------------------------------------------------------------------

    def _handle_piece(self, piece: SessionPiece, source: int, now: Instant) -> None:
        key, arrival_key = piece.key, (piece.key, source)
        if arrival_key in self._discarded:
            self._send(source, PieceReceipt(key, piece.sequence), now)
            if piece.flags & PieceFlag.LAST:
                self._discarded.discard(arrival_key)
            return
        state = self._arrivals.get(arrival_key)
        kept, events = self._read(piece)
        if kept is None:
            return
        state = state or self._begin_arrival(key, source, kept, now)
        arrival, session = state.arrivals[arrival_key], state.session
        arrival.sequence = piece.sequence
        if not arrival.flags & TransferFlag.ADDITION:
            self._take_terms(state, kept, now)
        self._take_copies(state, arrival, kept, events, now)
        if piece.flags & PieceFlag.READY:
            arrival.flags |= TransferFlag.READY
            claim = self._claims.get(key.client)
            if claim is not None:
                claim.is_answered = True
            self._plan(now + 1)
        if piece.flags & PieceFlag.LAST:
            arrival.flags |= TransferFlag.LAST
            arrival.due = now + KNOWN_FOR
            self._plan(arrival.due)
            if not state.is_arriving:
                self._release_held(state, now)
        self._send(source, PieceReceipt(key, piece.sequence), now)
        self._record(session, arrival, now)
        if piece.flags & PieceFlag.READY and key.client not in self._claims:
            self._follow(state, key, now)

    def _follow(self, state: RoamingSession, key: TransferKey, now: Instant) -> None:
        """Send a session that has come on to the gateway to which its client has gone meanwhile."""
        number, gateway = self._gone.get(key.client, (0, self._own))
        session = state.session
        following = TransferKey(gateway, number, key.client)
        is_wanted = number > key.number and following not in self._departures and session.number > 0
        if is_wanted and session.client_id == key.client and session.connection is None:
            self._depart(session, following, now)

    def _read(self, piece: SessionPiece) -> tuple[StoredSession | None, dict[int, EventId]]:
        """Return the session in *piece*, and the events of its copies."""
        state, events = JournalState(), dict[int, EventId]()
        kept: StoredSession | None = None
        for item in piece.items:
            try:
                state.apply(item.record)
            except RecordInvalid:
                self.unreadable += 1
                continue
            if kept is None:
                kept = next(iter(state.sessions.values()), None)
            elif item.event != NO_EVENT and kept.copies:
                events[next(reversed(kept.copies))] = item.event
        state.finish()
        return kept, events

    def _begin_arrival(self, key: TransferKey, holder: int, kept: StoredSession, now: Instant) -> RoamingSession:
        client = ClientId(key.client)
        session, state = self._connect_handler.sessions.get(client), self._states.get(client)
        flags = TransferFlag(0)
        if session is not None and state is not None and state.arrivals and _is_unused(session):
            pass  # it came from a gateway that had not found this one
        elif session is None:
            claims = None if kept.claims is None else Acl({}, tuple(read_rule(text) for text in kept.claims))
            session = self._connect_handler.begin_absent(client, kept.user, claims, kept.expiry_s, kept.durability, now)
            self._set_number(client, max(self._numbers.get(client, 0), key.number))
        else:
            flags = TransferFlag.ADDITION | TransferFlag.RELEASED
            self._send(holder, SessionRelease(key, True), now)
        state = self._states.setdefault(client, RoamingSession(session))
        state.arrivals[key, holder] = Transfer(key, holder, flags)
        self._arrivals[key, holder] = state
        self.arrived += 1
        return state

    def _take_terms(self, state: RoamingSession, kept: StoredSession, now: Instant) -> None:
        session, journal = state.session, self._journal
        for stored in kept.subscriptions.values():
            try:
                self._subscribe_handler.restore(session, stored, now)
            except EdgebrokerError:
                self.unreadable += 1
                continue
            state.inherited.add(stored.text)
            journal.subscribed(session, stored.text, session.subscription_records[stored.text], now)
        if kept.roaming is not None and kept.roaming.last:
            for publisher, sequence in kept.roaming.last.items():
                state.last[publisher] = max(sequence, state.last.get(publisher, 0))
            journal.append_for(session, last_events_record(session.number, kept.roaming.last.items()), now)
        for packet_id in kept.received - session.received:
            session.received.add(packet_id)
            record = PACKET.pack(SessionRecordKind.RECEIVED, session.number, packet_id)
            journal.append(record, session.waits_for_sync, now)

    def _take_copies(
        self, state: RoamingSession, arrival: Transfer, kept: StoredSession, events: dict[int, EventId], now: Instant
    ) -> None:
        session, known = state.session, list[EventId]()
        for entry in self._entries(kept, now):
            event = events.get(entry.number, NO_EVENT)
            if event != NO_EVENT:
                if event in state.known:  # a subscription that was made here got it
                    self._drop(session, entry, Cause.HANDED_OVER, now)
                    continue
                known.append(event)
                own = state.held.pop(event, None)
                if own is not None:
                    self._drop(session, own, Cause.HANDED_OVER, now)
                    self._journal.settled(session, own, now)
            if arrival.flags & TransferFlag.ADDITION and entry.packet_id:
                if entry.qos == 2:  # the client may have it; its session began anew
                    self._drop(session, entry, Cause.SESSION_ENDED, now)
                    continue
                entry.packet_id = 0
            self._take_in(state, entry, event, now)
        if known:
            state.known |= dict.fromkeys(known)
            self._note_known(session, known, now)
        if session.connection is not None:
            self._delivery.release(session, now)

    def _entries(self, kept: StoredSession, now: Instant) -> Iterator[QueueEntry]:
        """Yield the copies of *kept* in their order; those that were on their way first."""
        unbounded = 1 << 30
        scratch = Session(ClientId(kept.client_id), Inflight(unbounded), SessionOutbox(unbounded, unbounded))
        ledger = self._node.ledger
        requeue_copies(
            kept.copies,
            scratch,
            self._journal.clock_offset,
            lambda publication, copies: ledger.take_up(now, publication, copies),
        )
        yield from [*scratch.inflight, *scratch.outbox]

    def _take_in(self, state: RoamingSession, entry: QueueEntry, event: EventId, now: Instant) -> None:
        session, publication = state.session, entry.publication
        publication.stored = publication.stated = 0
        entry.number = 0
        if session.number:
            session.last_copy += 1
            entry.number = session.last_copy
        if entry.packet_id:
            session.inflight.restore(entry)
        else:
            session.outbox.restore(entry)
        ledger = self._node.ledger
        ledger.made(now, publication.publisher, session.client_id, publication.number, 1, entry.qos, publication.origin)
        if session.number:
            self._journal.published(publication, [(session, entry)], now)
            if event != NO_EVENT:
                state.events[entry.number] = event
                self._journal.append_for(session, copy_event_record(session.number, entry.number, event, False), now)
        if not entry.packet_id:
            self._queued(session, publication, now)
        if state.departure is not None:
            self._plan(now + 1)

    def _queued(self, session: Session, publication: Publication, now: Instant) -> None:
        if publication.expires_at is not None:
            self._expiry.watch(session, publication.expires_at, now)
        if session.number:
            self._pager.queued(session, now)

    def _release_held(self, state: RoamingSession, now: Instant) -> None:
        """Deliver the copies of this gateway's own that did not come with the session."""
        session = state.session
        for event, entry in state.held.items():
            self._journal.append_for(session, copy_event_record(session.number, entry.number, event, False), now)
            state.events[entry.number] = event
            session.outbox.restore(entry)
            self._queued(session, entry.publication, now)
        state.held = {}
        if session.connection is not None:
            self._delivery.release(session, now)
        elif state.departure is not None:
            self._plan(now + 1)

    def _drop(self, session: Session, entry: QueueEntry, cause: Cause, now: Instant) -> None:
        self._node.ledger.drop(now, entry.publication, session.client_id, entry.text, entry.qos, cause)

    def _note_known(self, session: Session, events: Iterable[EventId], now: Instant) -> None:
        if session.number:
            self._journal.append_for(session, known_events_record(session.number, events), now)

    # -- messages meanwhile ---------------------------------------------------------------------------------------

    def divert(
        self, publication: Publication, copies: tuple[Copy, ...], event: EventId, now: Instant
    ) -> tuple[Copy, ...]:
        """Return those of *copies* that are delivered as usual; others are held, or came with a session already."""
        states = self._states
        return tuple(
            copy
            for copy in copies
            if (state := states.get(copy.receiver.client_id)) is None
            or not self._is_diverted(state, publication, copy, event, now)
        )

    def _is_diverted(
        self, state: RoamingSession, publication: Publication, copy: Copy, event: EventId, now: Instant
    ) -> bool:
        session, departure, ledger = state.session, state.departure, self._node.ledger
        qos = min(publication.qos, copy.qos)
        is_own = departure is not None and copy.has_no_local and publication.publisher == departure.key.client
        is_inherited = any(subscription.text in state.inherited for subscription in copy.subscriptions)
        was_there = is_inherited and event[1] <= state.last.get(event[0], 0)
        if is_own or was_there or (qos and event in state.known):
            ledger.drop(now, publication, session.client_id, copy.label, qos, Cause.HANDED_OVER)
            return True
        if not qos:
            return False
        if state.is_arriving:
            if is_inherited:
                self._hold(state, publication, copy, qos, event, now)
                return True
            state.known[event] = None
            self._note_known(session, (event,), now)
        if departure is not None and session.number:
            number = session.last_copy + 1  # that of the copy, which follows
            state.events[number] = event
            self._journal.append_for(session, copy_event_record(session.number, number, event, False), now)
            self._plan(now + 1)
        return False

    def _hold(
        self, state: RoamingSession, publication: Publication, copy: Copy, qos: int, event: EventId, now: Instant
    ) -> None:
        session, ledger = state.session, self._node.ledger
        ledger.made(now, publication.publisher, session.client_id, publication.number, 1, qos, publication.origin)
        if len(state.held) >= session.outbox.messages_max:
            ledger.drop(now, publication, session.client_id, copy.label, qos, Cause.QUEUE_FULL)
            return
        retain = publication.retain and copy.retain_as_published
        entry = new_queue_entry(publication, qos, retain, copy.identifiers, copy.label)
        session.last_copy += 1
        entry.number = session.last_copy
        state.held[event] = entry
        self._journal.published(publication, [(session, entry)], now)
        self._journal.append_for(session, copy_event_record(session.number, entry.number, event, True), now)

    # -- deadlines ------------------------------------------------------------------------------------------------

    def fire(self, now: Instant) -> None:
        """The deadline ROAMING has come."""
        self._due = NEVER
        self._resume_connects(now)
        for state in [*self._departures.values()]:
            self._drain(state, now)
        self._tell_arrivals(now)
        for state in [*self._states.values()]:
            for key, arrival in [*state.arrivals.items()]:
                if arrival.due <= now:
                    arrival.flags |= TransferFlag.OVER
                    self._record(state.session, arrival, now)
                    del state.arrivals[key], self._arrivals[key]
            if not state.arrivals:
                state.known, state.last, state.inherited = {}, {}, set()
                if state.departure is None:
                    del self._states[state.session.client_id]
        dues = [claim.pending.due for claim in self._claims.values() if claim.pending is not None]
        dues += [arrival.due for state in self._states.values() for arrival in state.arrivals.values()]
        if dues and min(dues) < NEVER:
            self._plan(max(min(dues), now + 1))

    def _untold(self) -> list[tuple[RoamingSession, Transfer]]:
        """Return the arrivals of which the gateways that they come from do not know whether all others know them."""
        return [
            (state, arrival)
            for state in self._states.values()
            for arrival in state.arrivals.values()
            if arrival.flags & TransferFlag.READY and not arrival.flags & TransferFlag.RELEASED
        ]

    def _tell_arrivals(self, now: Instant) -> None:
        """Ask the other gateways whether they know the subscriptions that came here, if all can be reached."""
        if self._flush or not self._untold():
            return
        if now < self._retry_at:
            self._plan(self._retry_at)
            return
        assert self._member is not None
        peers = self._member.peers
        self._retry_at = now + RETRY
        self._plan(self._retry_at)
        if all(peers.gossip.link_state.is_number_reachable(each) for each in self._member.other_gateways()):
            self._flush, effects = peers.flushes.begin(now, FLUSH_WAIT)
            peers.timers.move("flush", peers.flushes.next_due)
            self._member.perform(effects, now)

    def flush_ended(self, request: int, is_complete: bool, now: Instant) -> None:
        """The other gateways know all subscriptions of when the question *request* was asked, or did not answer."""
        if request != self._flush:
            return
        self._flush = 0
        for state, arrival in self._untold() if is_complete else ():
            arrival.flags |= TransferFlag.RELEASED
            self._record(state.session, arrival, now)
            self._send(arrival.peer, SessionRelease(arrival.key, False), now)

    # -- the ends of sessions, and of runs ------------------------------------------------------------------------

    def session_ended(self, session: Session, now: Instant) -> None:
        """A session ends: what is held for it is dropped, and the gateways that it comes from, or goes to, are told."""
        self._numbers.pop(session.client_id, None)
        self._unanswered.discard(session.client_id)
        state = self._states.pop(session.client_id, None)
        if state is None:
            return
        for entry in state.held.values():
            self._drop(session, entry, Cause.SESSION_ENDED, now)
        for key, arrival in state.arrivals.items():
            del self._arrivals[key]
            if arrival.is_open:
                self._discarded.add(key)
                self._send(arrival.peer, SessionRelease(arrival.key, True), now)
        departure = state.departure
        if departure is not None:
            del self._departures[departure.key]
            self._forget_client(departure.key.client)
            self._send_piece(state, departure, [], PieceFlag.LAST, now)

    def _forget_client(self, client: str) -> None:
        """Let the others know that this gateway has no session of *client*, and does not know any more where it is."""
        directory = self._journal.directory
        is_here = ClientId(client) in self._connect_handler.sessions
        if directory is not None and not is_here and not any(key.client == client for key in self._departures):
            directory.removed(client)

    def held_entries(self, session: Session) -> Iterable[QueueEntry]:
        """Return what is held for *session*."""
        state = self._states.get(session.client_id)
        return () if state is None else [*state.held.values()]

    def records(self, session: Session) -> Iterator[bytes]:
        """Yield what the journal has to know of a session that moves, said again."""
        state = self._states.get(session.client_id)
        if state is None or not session.number:
            return
        for transfer in [*state.arrivals.values(), *([] if state.departure is None else [state.departure])]:
            yield transfer_record(session.number, transfer.stored())
        waiting = {entry.number for entry in [*session.inflight, *session.outbox]}
        for copy, event in [*state.events.items()]:
            if copy in waiting or session.outbox.pages:
                yield copy_event_record(session.number, copy, event, False)
        for event, entry in [*state.held.items()]:
            yield copy_event_record(session.number, entry.number, event, True)
        if state.known:
            yield known_events_record(session.number, [*state.known])
        if state.last:
            yield last_events_record(session.number, [*state.last.items()])

    def restore(self, session: Session, stored: StoredRoaming, held: StoredSession, now: Instant) -> None:
        """Take back what an earlier run left of a session that moves. *held*: has the copies that were held."""
        state = self._states[session.client_id] = RoamingSession(session)
        state.events = {copy: event for copy, (event, is_held) in stored.events.items() if not is_held}
        state.known, state.last = dict(stored.known), dict(stored.last)
        state.inherited = set(session.subscription_records)
        by_event = {copy: event for copy, (event, _) in stored.events.items()}
        last = session.last_copy
        for entry in self._entries(held, now):
            state.held[by_event[entry.number]] = entry
            last = max(last, entry.number)
        session.last_copy = last
        for each in stored.transfers.values():
            transfer = Transfer(
                TransferKey(each.gateway, each.number, each.client), each.peer, each.flags, each.sequence, each.sequence
            )
            if each.flags & TransferFlag.DEPARTURE:
                state.departure = transfer
                self._departures[transfer.key] = state
                self._connect_handler.session_quota.client_came(session)
                self._node.timers.cancel(("session", session.client_id))
                transfer.due = now + LATE_FOR
            else:
                state.arrivals[transfer.key, transfer.peer] = transfer
                self._arrivals[transfer.key, transfer.peer] = state
                self._set_number(each.client, max(self._numbers.get(each.client, 0), each.number))
                transfer.due = NEVER if transfer.is_open else now + KNOWN_FOR
        self._plan(now + 1)

    def close_books(self, now: Instant) -> None:
        """What is held stays queued."""
        for state in self._states.values():
            for entry in state.held.values():
                session = state.session
                self._node.ledger.leave(now, entry.publication, session.client_id, entry.text, entry.qos)


def _is_unused(session: Session) -> bool:
    return not (session.subscribed or session.received or len(session.inflight) or len(session.outbox))
