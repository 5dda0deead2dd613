"""The copies of messages for sessions that move, which the client gets once and in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from edgebridge.frontend.delivery import Delivery
from edgebridge.frontend.federation.roaming.transfer import RoamingSession, RoamingTable, Transfer
from edgebridge.frontend.journal.queue_pager import QueuePager
from edgebridge.frontend.queue_expiry import QueueExpiry
from edgebridge.session.inflight import Inflight, QueueEntry, new_queue_entry
from edgebridge.session.journal.requeue import requeue_copies
from edgebridge.session.journal.session_records import settled_record
from edgebridge.session.journal.state import StoredSession
from edgebridge.session.journal.transfer_records import TransferFlag, copy_event_record, known_events_record
from edgebridge.session.queue.outbox import SessionOutbox
from edgebridge.session.session import Session
from edgebroker.federation.session_transfer import NO_EVENT
from edgebroker.instants import Instant
from edgebroker.log_schema import Cause, EventId
from edgebroker.names import ClientId
from edgebroker.node.subscriptions import Copy
from edgebroker.publication import Publication


class RoamingCopies:
    """The copies for the sessions of one gateway that move: those that come with a session, and this gateway's own."""

    def __init__(self, table: RoamingTable, delivery: Delivery, pager: QueuePager, expiry: QueueExpiry) -> None:
        self._table = table
        self._delivery = delivery
        self._pager = pager
        self._expiry = expiry
        self._node = table.node
        self._journal = table.journal

    # -- what comes with a session --------------------------------------------------------------------------------

    def take_copies(
        self, state: RoamingSession, arrival: Transfer, kept: StoredSession, events: dict[int, EventId], now: Instant
    ) -> None:
        """Take in the copies of *kept*, a piece of *arrival*. *events*: those of copies; each is delivered once."""
        session, known = state.session, list[EventId]()
        for entry in self.entries(kept, now):
            event = events.get(entry.number, NO_EVENT)
            publication, origin = entry.publication, entry.publication.origin
            made = publication.publisher, session.client_id, publication.number, 1, entry.qos, origin
            self._node.ledger.made(now, *made)
            if event != NO_EVENT:
                if event in state.known:  # a subscription that was made here got it
                    self._table.drop(session, entry, Cause.HANDED_OVER, now)
                    continue
                known.append(event)
                own = state.held.pop(event, None)
                if own is not None:
                    self._table.drop(session, own, Cause.HANDED_OVER, now)
                    self._journal.settled(session, own, now)
            if arrival.flags & TransferFlag.ADDITION and entry.packet_id:
                if entry.qos == 2:  # the client may have it; its session began anew
                    self._table.drop(session, entry, Cause.SESSION_ENDED, now)
                    continue
                entry.packet_id = 0
            self._take_in(state, entry, event, now)
        if known:
            state.known |= dict.fromkeys(known)
            self._note_known(session, known, now)
        if session.connection is not None:
            self._delivery.release(session, now)

    def entries(self, kept: StoredSession, now: Instant) -> Iterator[QueueEntry]:
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
        if session.number:
            self._journal.published(publication, [(session, entry)], now)
            if event != NO_EVENT:
                state.events[entry.number] = event
                self._journal.append_for(session, copy_event_record(session.number, entry.number, event, False), now)
        if not entry.packet_id:
            self._queued(session, publication, now)
        if state.departure is not None:
            self._table.plan(now + 1)

    def _queued(self, session: Session, publication: Publication, now: Instant) -> None:
        if publication.expires_at is not None:
            self._expiry.watch(session, publication.expires_at, now)
        if session.number:
            self._pager.queued(session, now)

    def release_held(self, state: RoamingSession, now: Instant) -> None:
        """Deliver the copies of this gateway's own that did not come with the session. They get new numbers: a session
        that moves on, or is restored, has its queue in the order of these, and what came is before what was held.
        """
        session = state.session
        for event, entry in state.held.items():
            held_as = entry.number
            session.last_copy += 1
            entry.number = session.last_copy
            self._journal.published(entry.publication, [(session, entry)], now)
            self._journal.append_for(session, settled_record([(session.number, held_as)]), now)
            self._journal.append_for(session, copy_event_record(session.number, entry.number, event, False), now)
            state.events[entry.number] = event
            session.outbox.restore(entry)
            self._queued(session, entry.publication, now)
        state.held = {}
        if session.connection is not None:
            self._delivery.release(session, now)
        elif state.departure is not None:
            self._table.plan(now + 1)

    def _note_known(self, session: Session, events: Iterable[EventId], now: Instant) -> None:
        if session.number:
            self._journal.append_for(session, known_events_record(session.number, events), now)

    # -- what is published meanwhile ------------------------------------------------------------------------------

    def divert(
        self, publication: Publication, copies: tuple[Copy, ...], event: EventId, now: Instant
    ) -> tuple[Copy, ...]:
        """Return those of *copies* that are delivered as usual; others are held, or came with a session already."""
        states = self._table.states
        return tuple(
            copy
            for copy in copies
            if (state := states.get(copy.subscriptions[0].client)) is None
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
            number, origin = publication.number, publication.origin
            ledger.made(now, publication.publisher, session.client_id, number, 1, qos, origin)
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
            self._table.plan(now + 1)
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

    def drop_held(self, state: RoamingSession, now: Instant) -> None:
        """Drop the copies that are held for a session that has ended."""
        for entry in state.held.values():
            self._table.drop(state.session, entry, Cause.SESSION_ENDED, now)

    def close_books(self, now: Instant) -> None:
        """What is held stays queued."""
        for state in self._table.states.values():
            for entry in state.held.values():
                self._node.ledger.leave(now, entry.publication, state.session.client_id, entry.text, entry.qos)
