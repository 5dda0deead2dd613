"""The sessions that depart from a gateway, to the one at which their client has connected."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from edgebridge.frontend.federation.roaming.claims import SessionClaims
from edgebridge.frontend.federation.roaming.transfer import (
    LATE_FOR,
    RoamingSession,
    RoamingTable,
    SubscriptionRestorer,
    Transfer,
    remember,
)
from edgebridge.frontend.journal.queue_pager import QueuePager
from edgebridge.session.inflight import QueueEntry
from edgebridge.session.journal.session_records import (
    PACKET,
    SessionRecordKind,
    paged_message_record,
    session_record,
    settled_record,
)
from edgebridge.session.journal.state import JournalState, StoredSession
from edgebridge.session.journal.transfer_records import TransferFlag, departing_name, last_events_record
from edgebridge.session.session import Session
from edgebroker.errors import EdgebrokerError
from edgebroker.federation.session_transfer import (
    NO_CLAIM,
    NO_EVENT,
    PieceFlag,
    PieceItem,
    PieceReceipt,
    SessionClaim,
    SessionDenial,
    SessionPiece,
    SessionRelease,
    TransferKey,
)
from edgebroker.instants import MILLISECOND, Duration, Instant
from edgebroker.limits import KIB
from edgebroker.log_schema import Cause
from edgebroker.names import ClientId
from edgebroker.node.events import ClientRemoval

PIECE_BYTES: Final = 64 * KIB
"""A piece of this size is closed, whatever follows..."""
PIECE_MESSAGES: Final = 200
"""...and one with so many messages: 2 ms at 10 us each."""
PIECES_ON_THE_WAY: Final = 4
"""Pieces of a queue that may wait for their receipts: a queue of any length takes 256 KiB of an uplink's outbox."""
EVENTS_IN_RECORD: Final = 4_096
"""Publishers in one record of a piece: 32 KiB."""
PAGE_WAIT: Final[Duration] = 100 * MILLISECOND
"""A part of a queue is being read from the disk."""


class SessionDepartures:
    """The sessions of one gateway that go to others."""

    def __init__(
        self, table: RoamingTable, claims: SessionClaims, subscriptions: SubscriptionRestorer, pager: QueuePager
    ) -> None:
        self._table = table
        self._claims = claims
        self._subscriptions = subscriptions
        self._pager = pager
        self._node = table.node
        self._keeper = table.keeper
        self._journal = table.journal
        self._handed_on: dict[str, set[tuple[TransferKey, int]]] = {}
        """Client -> the last claim of its session that went on from here, as often as it came for another gateway."""
        self.departed = 0
        """Sessions that went."""

    def handle_claim(self, claim: SessionClaim, now: Instant) -> None:
        """Handle that another gateway wants the session of a client that has connected there."""
        key = claim.key
        client = ClientId(key.client)
        sessions = self._keeper.sessions
        session = sessions.get(client)
        self._claims.number_seen(key.number)
        if session is not None:
            last = self._claims.number_of(client), self._table.own
            if (key.number, key.gateway) <= last:  # it was long on its way
                self._deny(claim, now, later=last)
                return
            if not self._keeper.may_have(session, claim.user):
                self._deny(claim, now, is_refused=True)
                return
        if session is not None and session.connection is not None:
            self._keeper.take_over(session, now)
            session = sessions.get(client)  # it may have ended with its connection
        if session is not None and self._claims.is_dispensable(session):
            # Its client has gone on, perhaps without having heard of it: the session that it knows is the earlier one.
            self._claims.end_unused(session, now)
            session = None
        last = number, gateway = self._table.whereabouts(client, key.gateway)
        is_overtaken = session is None and number > key.number
        is_expected = not is_overtaken and self._claims.client_gone(key, claim.asked)
        self._keeper.moves.arrived(client, now)  # if an operator sent it
        if is_overtaken:
            self._deny(claim, now, later=last)
        elif session is None:
            if number < key.number and gateway != self._table.own and self._is_first(claim):
                self._table.send(gateway, claim, now)
            elif not (claim.is_clean or is_expected or self._is_coming(key)):
                self._deny(claim, now)
        elif claim.is_clean or session.user not in ("", claim.user):
            self._keeper.end_session(session, now)
            if not claim.is_clean:
                self._deny(claim, now)
        elif session.number and key not in self._table.departures:
            self.depart(session, key, now)
        else:
            self._deny(claim, now)

    def _is_first(self, claim: SessionClaim) -> bool:
        """Return whether *claim* was not handed on before. Two gateways between which a client went to and fro may each
        take the other one for the place of its session, and would send the claim to each other for ever.
        """
        client, this = claim.key.client, (claim.key, claim.asked)
        handed_on = {each for each in self._handed_on.get(client, ()) if each[0] == claim.key}
        remember(self._handed_on, client, handed_on | {this})
        return this not in handed_on

    def _deny(
        self, claim: SessionClaim, now: Instant, is_refused: bool = False, later: tuple[int, int] = NO_CLAIM
    ) -> None:
        denial = SessionDenial(claim.key, claim.asked, is_refused, later)
        self._table.send(claim.key.gateway, denial, now)

    def _is_coming(self, key: TransferKey) -> bool:
        """Return whether the session is on its way to the gateway that claims it, by an earlier claim."""
        moves = [
            state.departure
            for each, state in self._table.departures.items()
            if each.client == key.client and each.gateway == key.gateway
        ]
        return any(move is not None and not move.acknowledged for move in moves)

    def handle_receipt(self, receipt: PieceReceipt, now: Instant) -> None:
        """Handle that a piece has come: another one may be sent."""
        state = self._table.departures.get(receipt.key)
        if state is not None and state.departure is not None:
            departure = state.departure
            departure.acknowledged = max(departure.acknowledged, receipt.sequence)
            self._table.plan(now + 1)

    def handle_release(self, release: SessionRelease, now: Instant) -> None:
        """Handle that the session may end here: all gateways know its subscriptions at the new one, or it is not wanted
        there.
        """
        state = self._table.departures.get(release.key)
        if state is not None and state.departure is not None:
            departure = state.departure
            departure.flags |= TransferFlag.RELEASED
            departure.due = now if release.is_immediate else now + LATE_FOR
            self._table.record(state.session, departure, now)
            self._table.plan(departure.due + 1)

    def depart(self, session: Session, key: TransferKey, now: Instant) -> None:
        """Let *session* go on under another name, without its client."""
        client = ClientId(key.client)
        for timer in ("will", "session", "expire", "share", "age"):
            self._node.timers.cancel((timer, client))
        self._claims.forget_number(client)
        name = departing_name(key.gateway, key.number, client)
        self._account_under(session, name, now)
        self._keeper.rename_departing(session, ClientId(name))
        records = dict(session.subscription_records)
        session.release_filters()
        session.subscribed = session.subscription_bytes = 0
        session.replays = None
        for stored in self._stored(session).subscriptions.values():
            try:
                self._subscriptions.restore(session, replace(stored, is_owed=False), now)
            except EdgebrokerError:  # the old name's subscription holds it no longer
                self._table.unreadable += 1
        session.subscription_records = records  # with what is retained and was not sent
        if records:
            self._node.handle(ClientRemoval(client), now)
        state = self._table.states.pop(client, None) or RoamingSession(session)
        state.departure = Transfer(key, key.gateway, TransferFlag.DEPARTURE)
        self._table.states[session.client_id] = self._table.departures[key] = state
        self._send_first(state, state.departure, now)
        self.departed += 1
        self._table.plan(now + 1)

    def _account_under(self, session: Session, name: str, now: Instant) -> None:
        """Let the copies that wait in *session* go on in the delivery log as those of *name*."""
        ledger = self._node.ledger
        held = self._table.states.get(session.client_id)
        for entry in [*session.inflight, *session.outbox, *([] if held is None else held.held.values())]:
            publication = entry.publication
            ledger.leave(now, publication, session.client_id, entry.text, entry.qos)
            number, origin = publication.number, publication.origin
            ledger.made(now, publication.publisher, name, number, 1, entry.qos, origin)

    def _stored(self, session: Session) -> StoredSession:
        """Return what the journal says of *session* and its subscriptions."""
        stored = JournalState()
        stored.apply(session_record(session, True))
        for record in session.subscription_records.values():
            stored.apply(record)
        return stored.sessions[session.number]

    def drain(self, now: Instant) -> None:
        """Send what waits in the sessions that depart, and end those of which all has gone."""
        for state in [*self._table.departures.values()]:
            self._drain(state, now)

    def _drain(self, state: RoamingSession, now: Instant) -> None:
        """Send what waits in a session that departs, as far as receipts allow, and end it when all has gone."""
        departure, session = state.departure, state.session
        assert departure is not None
        if not self._table.has_gateway(departure.peer):
            self._table.note_stranded(departure)
            self._end(session, now)
            return
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
                self._table.plan(now + PAGE_WAIT)
        elif departure.flags & TransferFlag.RELEASED and not state.is_arriving:
            if departure.due <= now:
                self._end(session, now)
            else:
                self._table.plan(departure.due)

    def _end(self, session: Session, now: Instant) -> None:
        self._journal.begin_transaction()
        self._keeper.end_session(session, now)
        self._journal.commit_transaction(now)

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

    def send_terms(self, state: RoamingSession, kept: StoredSession, now: Instant) -> None:
        """Send on the subscriptions and packets *kept*, which came when the session had been sent on already."""
        session, departure = state.session, state.departure
        assert departure is not None
        known = session.subscription_records
        records = [known[each.text] for each in kept.subscriptions.values() if each.text in known]
        records += [PACKET.pack(SessionRecordKind.RECEIVED, session.number, each) for each in kept.received]
        if kept.roaming is not None and kept.roaming.last:
            records.append(last_events_record(session.number, kept.roaming.last.items()))
        if records:
            self._send_piece(state, departure, [PieceItem(record) for record in records], PieceFlag(0), now)

    def _last_events(self, state: RoamingSession) -> dict[int, int]:
        last, peers = dict(state.last), self._table.member.peers
        seen = peers.forwarder.last_events().items()
        for publisher, sequence in (*seen, *peers.region.pending.last_events(), *state.known):
            last[publisher] = max(sequence, last.get(publisher, 0))
        return last

    def _send_piece(
        self, state: RoamingSession, departure: Transfer, items: list[PieceItem], flags: PieceFlag, now: Instant
    ) -> None:
        departure.sequence += 1
        terms = PieceItem(session_record(state.session, True))
        self._table.send(departure.peer, SessionPiece(departure.key, departure.sequence, flags, (terms, *items)), now)
        self._table.record(state.session, departure, now)

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

    def session_ended(self, state: RoamingSession, now: Instant) -> None:
        """A session has ended: if it was departing, the last piece follows."""
        departure = state.departure
        if departure is not None:
            del self._table.departures[departure.key]
            remember(self._table.sent, departure.key.client, (departure.key.number, departure.peer))
            self._forget_client(departure.key.client)
            self._send_piece(state, departure, [], PieceFlag.LAST, now)

    def _forget_client(self, client: str) -> None:
        """Let the others know that this gateway has no session of *client*, and does not know any more where it is."""
        directory = self._journal.directory
        is_here = ClientId(client) in self._keeper.sessions
        if directory is not None and not is_here and not any(key.client == client for key in self._table.departures):
            directory.removed(client)
