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

from collections.abc import Iterable, Iterator

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.delivery import Delivery
from edgebridge.frontend.federation.roaming.arrivals import SessionArrivals
from edgebridge.frontend.federation.roaming.claims import ResumeConnect, SessionClaims, SessionLocator
from edgebridge.frontend.federation.roaming.copies import RoamingCopies
from edgebridge.frontend.federation.roaming.departures import SessionDepartures
from edgebridge.frontend.federation.roaming.transfer import (
    KNOWN_FOR,
    LATE_FOR,
    RoamingMember,
    RoamingSession,
    RoamingTable,
    SessionKeeper,
    SessionMoves,
    SubscriptionRestorer,
    Transfer,
)
from edgebridge.frontend.journal.queue_pager import QueuePager
from edgebridge.frontend.queue_expiry import QueueExpiry
from edgebridge.session.credentials import AuthenticationResult
from edgebridge.session.inflight import QueueEntry
from edgebridge.session.journal.state import StoredSession
from edgebridge.session.journal.transfer_records import StoredRoamingState, TransferFlag
from edgebridge.session.session import Session
from edgebridge.wire.packets import Connect
from edgebridge.wire.properties import Properties
from edgebroker.federation.session_transfer import (
    PieceReceipt,
    SessionClaim,
    SessionDenial,
    SessionPiece,
    SessionRelease,
    TransferKey,
    read_transfer,
)
from edgebroker.header import host_of
from edgebroker.instants import NEVER, Duration, Instant
from edgebroker.log_schema import EventId
from edgebroker.node.node import Node
from edgebroker.node.subscriptions import Copy
from edgebroker.overlay.messages import Forward
from edgebroker.publication import Publication


class RoamingSessions:
    """The sessions of one gateway that come from others, and go to others."""

    def __init__(
        self,
        node: Node,
        keeper: SessionKeeper,
        subscriptions: SubscriptionRestorer,
        delivery: Delivery,
        pager: QueuePager,
        expiry: QueueExpiry,
    ) -> None:
        self._table = table = RoamingTable(node, keeper, pager.journal)
        self._states = table.states
        self._claims = claims = SessionClaims(table)
        self._departures = departures = SessionDepartures(table, claims, subscriptions, pager)
        self._copies = copies = RoamingCopies(table, delivery, pager, expiry)
        self._arrivals = SessionArrivals(table, claims, departures, copies, subscriptions)

    def attach(
        self, member: RoamingMember, locator: SessionLocator | None, wait: Duration, resume_connect: ResumeConnect
    ) -> None:
        """Belong to *member*. *wait*: how long a CONNECT waits for other gateways. *resume_connect*: lets a client in
        that waited.
        """
        self._table.attach(member)
        self._claims.attach(locator, wait, resume_connect)
        if self._states:  # the topology is another one: some moves may have no other end any more
            self._table.plan(0)

    @property
    def is_active(self) -> bool:
        """Whether a session moves, so that `divert` wants to see each copy."""
        return bool(self._states)

    def is_late(self, publisher: int, sequence: int) -> bool:
        """Return whether the gateway from which a session comes has seen a later event of *publisher*, or this one."""
        return sequence <= self._table.last.get(publisher, 0)

    # -- figures --------------------------------------------------------------------------------------------------

    @property
    def claimed(self) -> int:
        """Sessions that were claimed from other gateways."""
        return self._claims.claimed

    @property
    def timed_out(self) -> int:
        """CONNECTs that were answered with a new session because no gateway had answered in time."""
        return self._claims.timed_out

    @property
    def arrived(self) -> int:
        """Sessions that came."""
        return self._arrivals.arrived

    @property
    def departed(self) -> int:
        """Sessions that went."""
        return self._departures.departed

    @property
    def moving(self) -> int:
        """Sessions that come or go at the moment."""
        return sum(state.is_moving for state in self._states.values())

    @property
    def stranded(self) -> int:
        """Moves that ended because the other gateway was taken out of the topology."""
        return self._table.stranded

    def is_arriving(self, client: str) -> bool:
        """Whether a part of the session of *client* is still to come from another gateway."""
        state = self._states.get(client)
        return state is not None and state.is_arriving

    def moves_of(self, name: str) -> SessionMoves | None:
        """Return the moves of the session with this *name*; None: it does not move."""
        state = self._states.get(name)
        if state is None or not state.is_moving:
            return None
        name_of, departure = self._table.name_of, state.departure
        sources = tuple(sorted({name_of(each.peer) for each in state.arrivals.values() if each.is_open}))
        return SessionMoves(sources, None if departure is None else name_of(departure.peer), len(state.held))

    @property
    def unreadable(self) -> int:
        """Messages and records of other gateways that could not be read."""
        return self._table.unreadable

    # -- clients, and messages of other gateways ------------------------------------------------------------------

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
        return self._claims.locate(connection, connect, verdict, proof, now)

    def found_elsewhere(self, clients: Iterable[str], gateway: int, stamp_ms: int, now: Instant) -> None:
        """Handle that *gateway* may have a session of *clients*, who have one here. *stamp_ms*: when the client
        connected there.
        """
        self._claims.found_elsewhere(clients, gateway, stamp_ms, now)

    def receive(self, forward: Forward, now: Instant) -> None:
        """Handle an event that another gateway sent to this one. It is in a transaction of the journal."""
        source = host_of(forward.header.publisher)
        match read_transfer(forward.payload):
            case None:
                self._table.unreadable += 1
            case SessionClaim() as claim:
                self._departures.handle_claim(claim, now)
            case SessionDenial() as denial:
                self._claims.denied(denial, now)
            case SessionPiece() as piece:
                self._arrivals.handle_piece(piece, source, now)
            case PieceReceipt() as receipt:
                self._departures.handle_receipt(receipt, now)
            case SessionRelease() as release:
                self._departures.handle_release(release, now)

    def divert(
        self, publication: Publication, copies: tuple[Copy, ...], event: EventId, now: Instant
    ) -> tuple[Copy, ...]:
        """Return those of *copies* that are delivered as usual; others are held, or came with a session already."""
        return self._copies.divert(publication, copies, event, now)

    # -- deadlines ------------------------------------------------------------------------------------------------

    def fire(self, now: Instant) -> None:
        """The deadline ROAMING has come."""
        self._table.fired()
        self._claims.resume_connects(now)
        self._arrivals.end_stranded(now)
        self._departures.drain(now)
        self._arrivals.tell_arrivals(now)
        self._arrivals.forget(now)
        due = min([*self._claims.dues(), *self._arrivals.dues()], default=NEVER)
        if due < NEVER:
            self._table.plan(max(due, now + 1))

    def flush_ended(self, request: int, is_complete: bool, now: Instant) -> None:
        """The other gateways know all subscriptions of when the question *request* was asked, or did not answer."""
        self._arrivals.flush_ended(request, is_complete, now)

    # -- the ends of sessions, and of runs ------------------------------------------------------------------------

    def session_ended(self, session: Session, now: Instant) -> None:
        """A session ends: what is held for it is dropped, and the gateways that it comes from, or goes to, are told."""
        self._claims.session_ended(session.client_id)
        state = self._states.pop(session.client_id, None)
        if state is not None:
            self._copies.drop_held(state, now)
            self._arrivals.session_ended(state, now)
            self._departures.session_ended(state, now)

    def held_entries(self, session: Session) -> Iterable[QueueEntry]:
        """Return what is held for *session*."""
        state = self._states.get(session.client_id)
        return () if state is None else [*state.held.values()]

    def records(self, session: Session) -> Iterator[bytes]:
        """Yield what the journal has to know of a session that moves, said again."""
        state = self._states.get(session.client_id)
        if state is not None and session.number:
            yield from state.records()

    def restore(self, session: Session, stored: StoredRoamingState, held: StoredSession, now: Instant) -> None:
        """Take back what an earlier run left of a session that moves. *held*: has the copies that were held."""
        table = self._table
        state = table.states[session.client_id] = RoamingSession(session)
        state.events = {copy: event for copy, (event, is_held) in stored.events.items() if not is_held}
        state.known = dict(stored.known)
        table.note_last(state, stored.last)
        state.inherited = set(session.subscription_records)
        by_event = {copy: event for copy, (event, _) in stored.events.items()}
        last = session.last_copy
        for entry in self._copies.entries(held, now):
            state.held[by_event[entry.number]] = entry
            last = max(last, entry.number)
        session.last_copy = last
        for each in stored.transfers.values():
            transfer = Transfer(
                TransferKey(each.gateway, each.number, each.client), each.peer, each.flags, each.sequence, each.sequence
            )
            if each.flags & TransferFlag.DEPARTURE:
                state.departure = transfer
                table.departures[transfer.key] = state
                table.keeper.session_quota.client_came(session)
                table.node.timers.cancel(("session", session.client_id))
                transfer.due = now + LATE_FOR
            else:
                state.arrivals[transfer.key, transfer.peer] = transfer
                table.arrivals[transfer.key, transfer.peer] = state
                self._claims.note_arrival(each.client, each.number)
                transfer.due = NEVER if transfer.is_open else now + KNOWN_FOR
        table.plan(now + 1)

    def close_books(self, now: Instant) -> None:
        """What is held stays queued."""
        self._copies.close_books(now)
