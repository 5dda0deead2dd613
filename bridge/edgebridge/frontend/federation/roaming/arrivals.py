"""The sessions that arrive at a gateway, from those that have had them."""

from __future__ import annotations

from typing import Final

from edgebridge.frontend.federation.roaming.claims import SessionClaims
from edgebridge.frontend.federation.roaming.copies import RoamingCopies
from edgebridge.frontend.federation.roaming.departures import SessionDepartures
from edgebridge.frontend.federation.roaming.transfer import (
    KNOWN_FOR,
    ArrivalKey,
    RoamingSession,
    RoamingTable,
    SubscriptionRestorer,
    Transfer,
    is_unused,
)
from edgebridge.session.acl import Acl, read_rule
from edgebridge.session.journal.session_records import PACKET, SessionRecordKind
from edgebridge.session.journal.state import JournalState, RecordInvalid, StoredSession
from edgebridge.session.journal.transfer_records import TransferFlag, last_events_record
from edgebroker.errors import EdgebrokerError
from edgebroker.federation.session_transfer import (
    NO_EVENT,
    PieceFlag,
    PieceReceipt,
    SessionPiece,
    SessionRelease,
    TransferKey,
)
from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.log_schema import EventId
from edgebroker.names import ClientId

RETRY: Final[Duration] = 5 * SECOND
"""How often it is tried to tell all gateways of a new subscription, while some cannot be reached."""
FLUSH_WAIT: Final[Duration] = SECOND


class SessionArrivals:
    """The sessions of one gateway that come from others."""

    def __init__(
        self,
        table: RoamingTable,
        claims: SessionClaims,
        departures: SessionDepartures,
        copies: RoamingCopies,
        subscriptions: SubscriptionRestorer,
    ) -> None:
        self._table = table
        self._claims = claims
        self._departures = departures
        self._copies = copies
        self._subscriptions = subscriptions
        self._keeper = table.keeper
        self._journal = table.journal
        self._discarded: set[ArrivalKey] = set()  # moves of sessions that have ended here
        self._flush = 0  # the question whether all gateways know the subscriptions of what arrived; 0: none is open
        self._retry_at: Instant = 0
        self.arrived = 0
        """Sessions that came."""

    # -- pieces ---------------------------------------------------------------------------------------------------

    def handle_piece(self, piece: SessionPiece, source: int, now: Instant) -> None:
        """Take in *piece* of a session, which the gateway numbered *source* has sent."""
        key, arrival_key = piece.key, (piece.key, source)
        if arrival_key in self._discarded:
            self._table.send(source, PieceReceipt(key, piece.sequence), now)
            if piece.flags & PieceFlag.LAST:
                self._discarded.discard(arrival_key)
            return
        state = self._table.arrivals.get(arrival_key)
        kept, events = self._read(piece)
        if kept is None:
            return
        if state is None or (piece.flags & PieceFlag.FIRST and not state.arrivals[arrival_key].is_open):
            state = self._begin_arrival(key, source, kept, now)  # or what came there later, by another way
        arrival, session = state.arrivals[arrival_key], state.session
        arrival.sequence = piece.sequence
        if not arrival.flags & TransferFlag.ADDITION:
            self._take_terms(state, kept, now)
            if state.departure is not None:  # the gateway before has crashed: its pieces may overtake each other
                self._departures.send_terms(state, kept, now)
        self._copies.take_copies(state, arrival, kept, events, now)
        if piece.flags & PieceFlag.READY:
            arrival.flags |= TransferFlag.READY
            self._claims.answered(key.client, is_here=state.departure is None)
            self._table.plan(now + 1)
        if piece.flags & PieceFlag.LAST:
            self._end_arrival(state, arrival, now)
        self._table.send(source, PieceReceipt(key, piece.sequence), now)
        self._table.record(session, arrival, now)
        if piece.flags & PieceFlag.READY and not self._claims.is_claimed(key.client):
            self._follow(state, key, now)

    def _end_arrival(self, state: RoamingSession, arrival: Transfer, now: Instant) -> None:
        """Nothing more comes by *arrival*."""
        arrival.flags |= TransferFlag.LAST
        arrival.due = now + KNOWN_FOR
        self._table.plan(arrival.due)
        if not state.is_arriving:
            self._copies.release_held(state, now)

    def _follow(self, state: RoamingSession, key: TransferKey, now: Instant) -> None:
        """Send a session that has come on to the gateway to which its client has gone meanwhile."""
        following, session = self._following(key), state.session
        if following is None or following in self._table.departures or not session.number:
            return
        if session.client_id == key.client and session.connection is None:
            self._departures.depart(session, following, now)

    def _following(self, key: TransferKey) -> TransferKey | None:
        """Return the claim by which the session that comes by the claim *key* goes on; None: it stays here."""
        number, gateway = self._table.whereabouts(key.client)
        return TransferKey(gateway, number, key.client) if number > key.number else None

    def _read(self, piece: SessionPiece) -> tuple[StoredSession | None, dict[int, EventId]]:
        """Return the session in *piece*, and the events of its copies."""
        state, events = JournalState(), dict[int, EventId]()
        kept: StoredSession | None = None
        for item in piece.items:
            try:
                state.apply(item.record)
            except RecordInvalid:
                self._table.unreadable += 1
                continue
            if kept is None:
                kept = next(iter(state.sessions.values()), None)
            elif item.event != NO_EVENT and kept.copies:
                events[next(reversed(kept.copies))] = item.event
        state.finish()
        return kept, events

    def _begin_arrival(self, key: TransferKey, holder: int, kept: StoredSession, now: Instant) -> RoamingSession:
        client = ClientId(key.client)
        session, state = self._keeper.sessions.get(client), self._table.states.get(client)
        flags = TransferFlag(0)
        following = self._following(key)
        leaving = None if following is None else self._table.departures.get(following)
        if session is None and leaving is not None:
            state = leaving  # an earlier part of it has gone on already, and is still going: this part goes with it
            flags = TransferFlag.ADDITION | TransferFlag.RELEASED
            self._table.send(holder, SessionRelease(key, False), now)
        elif session is not None and state is not None and state.arrivals and is_unused(session):
            pass  # it came from a gateway that had not found this one
        elif session is None:
            claims = None if kept.claims is None else Acl({}, tuple(read_rule(text) for text in kept.claims))
            session = self._keeper.begin_absent(client, kept.user, claims, kept.expiry_s, kept.durability, now)
            self._claims.note_arrival(client, key.number)
            self._table.member.peers.relocation.client_arrived(client, now)
        else:
            flags = TransferFlag.ADDITION | TransferFlag.RELEASED
            self._table.send(holder, SessionRelease(key, False), now)
        if state is None:
            assert session is not None
            state = self._table.states[client] = RoamingSession(session)
        state.arrivals[key, holder] = Transfer(key, holder, flags)
        self._table.arrivals[key, holder] = state
        self.arrived += 1
        return state

    def _take_terms(self, state: RoamingSession, kept: StoredSession, now: Instant) -> None:
        session, journal = state.session, self._journal
        for stored in kept.subscriptions.values():
            try:
                self._subscriptions.restore(session, stored, now)
            except EdgebrokerError:
                self._table.unreadable += 1
                continue
            state.inherited.add(stored.text)
            journal.subscribed(session, stored.text, session.subscription_records[stored.text], now)
        if kept.roaming is not None and kept.roaming.last:
            self._table.note_last(state, kept.roaming.last)
            journal.append_for(session, last_events_record(session.number, kept.roaming.last.items()), now)
        for packet_id in kept.received - session.received:
            session.received.add(packet_id)
            record = PACKET.pack(SessionRecordKind.RECEIVED, session.number, packet_id)
            journal.append(record, session.waits_for_sync, now)

    # -- the other gateways, and the ends -------------------------------------------------------------------------

    def _untold(self) -> list[tuple[RoamingSession, Transfer]]:
        """Return the arrivals of which the gateways that they come from do not know whether all others know them."""
        return [
            (state, arrival)
            for state in self._table.states.values()
            for arrival in state.arrivals.values()
            if arrival.flags & TransferFlag.READY and not arrival.flags & TransferFlag.RELEASED
        ]

    def tell_arrivals(self, now: Instant) -> None:
        """Ask the other gateways whether they know the subscriptions that came here, if all can be reached."""
        if self._flush or not self._untold():
            return
        if now < self._retry_at:
            self._table.plan(self._retry_at)
            return
        member = self._table.member
        peers = member.peers
        self._retry_at = now + RETRY
        self._table.plan(self._retry_at)
        if all(peers.gossip.link_state.is_number_reachable(each) for each in peers.gossip.link_state.others()):
            self._flush, effects = peers.flushes.begin(now, FLUSH_WAIT)
            peers.timers.move("flush", peers.flushes.next_due)
            member.perform(effects, now)

    def flush_ended(self, request: int, is_complete: bool, now: Instant) -> None:
        """The other gateways know all subscriptions of when the question *request* was asked, or did not answer."""
        if request != self._flush:
            return
        self._flush = 0
        for state, arrival in self._untold() if is_complete else ():
            arrival.flags |= TransferFlag.RELEASED
            self._table.record(state.session, arrival, now)
            self._table.send(arrival.peer, SessionRelease(arrival.key, False), now)

    def forget(self, now: Instant) -> None:
        """Forget the arrivals that ended long enough ago, and the moves that are over."""
        table = self._table
        for state in [*table.states.values()]:
            for key, arrival in [*state.arrivals.items()]:
                if arrival.due <= now:
                    arrival.flags |= TransferFlag.OVER
                    table.record(state.session, arrival, now)
                    del state.arrivals[key], table.arrivals[key]
            if not state.arrivals:
                state.known, state.last, state.inherited = {}, {}, set()
                if state.departure is None:
                    del table.states[state.session.client_id]
        if not table.arrivals:
            table.last.clear()

    def end_stranded(self, now: Instant) -> None:
        """End the arrivals from gateways that were taken out of the topology."""
        for state in self._table.states.values():
            for arrival in state.arrivals.values():
                if arrival.is_open and not self._table.has_gateway(arrival.peer):
                    self._table.note_stranded(arrival)
                    self._journal.begin_transaction()
                    self._end_arrival(state, arrival, now)
                    self._table.record(state.session, arrival, now)
                    self._journal.commit_transaction(now)

    def dues(self) -> list[Instant]:
        """Return when the arrivals that are known are to be forgotten."""
        return [arrival.due for state in self._table.states.values() for arrival in state.arrivals.values()]

    def session_ended(self, state: RoamingSession, now: Instant) -> None:
        """A session has ended: the gateways that it comes from are told, and what still comes is discarded."""
        for key, arrival in state.arrivals.items():
            del self._table.arrivals[key]
            if arrival.is_open:
                self._discarded.add(key)
                self._table.send(arrival.peer, SessionRelease(arrival.key, True), now)
