"""Recovery and snapshots: the state of the front end is restored from the journal after a restart.

For a snapshot it appends the whole state again, some records in each turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from edgebridge.frontend.handlers.authorization import Authorizer
from edgebridge.frontend.handlers.connect import ConnectHandler
from edgebridge.frontend.handlers.subscribe import SubscribeHandler
from edgebridge.frontend.journal.promote import resume_session
from edgebridge.frontend.journal.queue_pager import QueuePager
from edgebridge.frontend.memory_accounts import account_of_user
from edgebridge.session.acl import Acl, AclRule, read_rule
from edgebridge.session.durability import Durability
from edgebridge.session.footprint import HeldKind, will_bytes
from edgebridge.session.inflight import QueueEntry
from edgebridge.session.journal.requeue import requeue_copies
from edgebridge.session.journal.session_records import (
    CLOCK,
    PACKET,
    SessionRecordKind,
    copy_record,
    gone_record,
    message_record,
    paged_record,
    retained_by_record,
    retained_record,
    session_record,
    uncleared_record,
)
from edgebridge.session.journal.state import JournalState, StoredSession
from edgebridge.session.journal.transfer_records import client_of
from edgebridge.session.retained import RetainedStore
from edgebridge.session.session import Session
from edgebridge.wire.properties import Property, number
from edgebroker.errors import EdgebrokerError
from edgebroker.instants import SECOND, Instant
from edgebroker.names import ClientId
from edgebroker.node.node import Node
from edgebroker.publication import Publication
from edgebroker.storage.journal.page_files import PAGE_MISSING

if TYPE_CHECKING:
    from edgebridge.frontend.federation.federation import FederationMember
    from edgebridge.frontend.federation.roaming.roaming import RoamingSessions

RestoreCopy: TypeAlias = Callable[[Publication, int], None]
SNAPSHOT: Final = ("restate",)
"""The deadline at which a snapshot goes on."""
SIZE_CHECK_INTERVAL: Final = SECOND
"""How often what is held is added up while the journal is full, when the disk was done: with 10,000 sessions it takes
2 ms. The clock is written every minute, so nobody waits longer for it."""
COPY_BYTES: Final = 60
"""What records say of a message besides its payload, topic and properties..."""
SESSION_BYTES: Final = 200
"""...and of a session or a subscription."""
SEGMENTS_WORTH_SNAPSHOT: Final = 4
"""To win fewer segments is not worth a snapshot."""
LAST_COPY: Final = 1 << 31
"""A session with so many copies is counted anew with the next snapshot, and that takes all that waits at once. Numbers
have 32 bits, and there is a snapshot for far fewer: at 1,000 messages a second this is once in 25 days."""
RECORDS_AT_ONCE: Final = 64
"""Records of a snapshot between two turns: 0.3 ms at 5 us each, well below the 5 ms that an event may wait."""
PROBLEMS_MAX: Final = 100
"""Lines for the operator about what cannot be taken back."""
SYSTEM_TOPICS: Final = "$SYS/"
"""Retained messages of the broker itself: they are made anew."""


class StateRecovery:
    """Both directions between the front end's state and the journal."""

    def __init__(
        self,
        node: Node,
        connect_handler: ConnectHandler,
        authorizer: Authorizer,
        subscribe_handler: SubscribeHandler,
        retained: RetainedStore,
        pager: QueuePager,
    ) -> None:
        self._node = node
        self._pager = pager
        self._journal = pager.journal
        self._connect_handler = connect_handler
        self._authorizer = authorizer
        self._subscribe_handler = subscribe_handler
        self._retained = retained
        self._snapshot: Iterator[bytes] | None = None
        self._held_bytes = 0  # when the last snapshot began
        self._size_checked_at: Instant = -SIZE_CHECK_INTERVAL
        self.federation: FederationMember | None = None
        self.problems: list[str] = []
        """What could not be taken back, in words for the operator."""

    # -- back -------------------------------------------------------------------------------------------------

    def begin(self, stored: JournalState, wall: int, now: Instant) -> bool:
        """Go on behind the records that say *stored*, and set the stored clock. To be called before anything else.

        *wall*: microseconds since 1970, as far as the machine knows. Returns whether it knows for the first time.
        """
        if stored.has_open_transaction:
            self._journal.append(bytes((SessionRecordKind.UNDONE,)), False, now)
        is_set = stored.set_clock(wall)
        if is_set:
            self._journal.append(CLOCK.pack(SessionRecordKind.CLOCK_SET, wall), False, now)
        self._journal.clock_offset = max(wall, stored.clock) - now
        return is_set

    def restore(self, stored: JournalState, now: Instant) -> None:
        """Take back what *stored* says. To be called after `begin`, before anything else happens."""
        self._journal.last_session = stored.last_session
        if self._journal.storage is not None:
            self._journal.storage.pages.last_number = stored.last_page
        users = {kept.client_id: kept.user for kept in stored.sessions.values()}
        memory_accounts = self._connect_handler.memory_accounts
        for publication in stored.retained.values():
            publication.accepted_at -= self._journal.clock_offset
            publication.expires_at = self._instant(publication.expires_at)
            if publication.has_expired(now):
                self._retained.expired += 1
                continue
            by = stored.retained_by.get(publication.topic)
            account = account_of_user(users.get(publication.publisher, "")) if by is None else by
            if not self._retained.retain(publication, account):
                self._retained.not_retained += 1
                memory_accounts.not_restored[HeldKind.RETAINED] += 1
                self._add_problem(f"a retained message is beyond the limits: {publication.topic[:80]}")
        memory_accounts.measure(now)
        ledger = self._node.ledger
        take_up = partial(ledger.take_up, now)
        for kept in stored.sessions.values():
            self._restore_session(kept, take_up, now)
        for session in self._connect_handler.sessions.values():
            if not stored.sessions[session.number].disconnected_at:
                self._journal.disconnected(session, now)  # or a gateway that is often off would let no session expire
            held = self._held_entries(session)
            for entry in () if ledger.log is None else [*session.inflight, *session.outbox, *held]:
                publication = entry.publication
                ledger.made(
                    now, publication.publisher, session.client_id, publication.number, 1, entry.qos, publication.origin
                )
        if self.federation is not None:
            self.federation.check_pages(now)
        self._pager.keep(stored.link_pages())  # of peers that are gone, as what waits for them in the journal
        self._pager.remove_unnamed()
        memory_accounts.measure(now)

    def _restore_session(self, kept: StoredSession, take_up: RestoreCopy, now: Instant) -> None:
        # Whose client was connected when the records end lost its connection then, which is now.
        gone_at = kept.disconnected_at - self._journal.clock_offset if kept.disconnected_at else now
        session = self._connect_handler.begin_session(ClientId(kept.client_id))
        session.number, session.user = kept.number, kept.user
        self._connect_handler.session_quota.restore(session)
        if self._journal.directory is not None:
            self._journal.directory.restored(client_of(kept.client_id))
        session.expiry_s, session.disconnected_at = kept.expiry_s, gone_at
        session.bridge_sync, session.uncleared = kept.bridge_sync, kept.uncleared
        session.waits_for_sync, session.sync_delay_us = kept.durability.waits_for_sync, kept.durability.sync_delay_us
        session.claims = None if kept.claims is None else Acl({}, tuple(self._rules(kept)))
        self._authorizer.authorize(session)
        session.will, session.will_bytes = kept.will, will_bytes(kept.will)
        session.received = kept.received
        for asked in kept.subscriptions.values():
            try:
                self._subscribe_handler.restore(session, asked, now)
            except EdgebrokerError as error:
                self._add_problem(f"{kept.client_id[:80]}: {asked.text[:80]}: {error}")
        self._restore_pages(kept, session, now)
        held = self._take_held(kept)
        requeue_copies(kept.copies, session, self._journal.clock_offset, take_up)
        timers = self._node.timers
        if session.outbox.expiring:
            timers.set(("expire", session.client_id), now + 1)
        timers.set(("session", session.client_id), gone_at + kept.expiry_s * SECOND)
        if session.will is not None:
            delay_s = number(session.will.properties, Property.WILL_DELAY_INTERVAL, 0)
            timers.set(("will", session.client_id), gone_at + min(delay_s, kept.expiry_s) * SECOND)
        if kept.roaming is not None and kept.roaming.transfers and self._roaming is not None:
            self._roaming.restore(session, kept.roaming, held, now)

    @property
    def _roaming(self) -> RoamingSessions | None:
        return None if self.federation is None else self.federation.roaming

    def _held_entries(self, session: Session) -> Iterable[QueueEntry]:
        return () if self._roaming is None else self._roaming.held_entries(session)

    def _take_held(self, kept: StoredSession) -> StoredSession:
        """Take the copies out of *kept* that are held until all of the session has come from another gateway."""
        held = StoredSession(kept.number, kept.client_id)
        if kept.roaming is not None and kept.roaming.transfers and self._roaming is not None:
            for copy, (_, is_held) in kept.roaming.events.items():
                if is_held and copy in kept.copies:
                    held.copies[copy] = kept.copies.pop(copy)
        return held

    def _restore_pages(self, kept: StoredSession, session: Session, now: Instant) -> None:
        """Let the pages of *kept* be a part of its queue. Those whose files are missing are lost, and reported."""
        assert self._journal.storage is not None
        pages, offset = self._journal.storage.pages, self._journal.clock_offset
        missing = []
        for page in sorted(kept.pages.values(), key=lambda page: page.first):
            page.accepted_at -= offset
            page.newest_at -= offset
            page.expires_at = self._instant(page.expires_at)
            session.last_copy = max(session.last_copy, page.first + page.count - 1)
            pages.bytes += page.file_bytes
            session.outbox.add_page(page)
            self._node.ledger.matched += page.count
            if pages.found.pop(page.number, 0) < page.file_bytes:
                missing.append(page)
        for page in missing:
            self._pager.lose(session, page, PAGE_MISSING, now)

    def _add_problem(self, text: str) -> None:
        """Tell the operator, PROBLEMS_MAX times at most: a journal may have 100,000 subscriptions that do not fit."""
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(text)
        elif len(self.problems) == PROBLEMS_MAX:
            self.problems.append("and more that cannot be taken back either")

    def _rules(self, kept: StoredSession) -> Iterator[AclRule]:
        """What the client's token allowed. A rule that cannot be read any more allows nothing."""
        for text in kept.claims or ():
            try:
                yield read_rule(text)
            except EdgebrokerError as error:
                self._add_problem(f"{kept.client_id[:80]}: a rule of its token: {error}")

    def _instant(self, stored: Instant | None) -> Instant | None:
        return None if stored is None else stored - self._journal.clock_offset

    # -- and into it again --------------------------------------------------------------------------------------

    def begin_snapshot_if_due(self, now: Instant) -> None:
        """Begin a snapshot if the journal has grown enough for one."""
        journal = self._journal.storage
        if journal is None or self._snapshot is not None:
            return
        room = journal.space
        is_near_end = room.needs_count(journal.waiting_bytes) or journal.is_full
        if is_near_end and (now - self._size_checked_at >= SIZE_CHECK_INTERVAL or room.needs_another):
            self._size_checked_at = now
            held = self._count_held()
            room.set_state_bytes(held)
            much = 2 * held + SEGMENTS_WORTH_SNAPSHOT * journal.options.segment_bytes
            if 4 * held < 3 * self._held_bytes and (journal.is_full or journal.segments.bytes > much):
                journal.request_snapshot()
        if journal.wants_snapshot:
            for session in [one for one in self._connect_handler.sessions.values() if one.last_copy > LAST_COPY]:
                self._renumber_session(session, now)
            self._held_bytes = self._count_held()
            begun = journal.begin_snapshot(now)
            self._snapshot = self._state(begun, now)
            self._node.timers.set(SNAPSHOT, now + 1)

    def _renumber_session(self, session: Session, now: Instant) -> None:
        """A session takes another number in the journal, where its copies are counted from 1 again."""
        session_journal = self._journal
        session_journal.begin_transaction()
        session.number = session.last_copy = 0
        resume_session(
            session_journal,
            session,
            Durability(is_persistent=True, waits_for_sync=session.waits_for_sync, sync_delay_us=session.sync_delay_us),
            now,
        )
        if session.connection is None:
            session_journal.disconnected(session, now)
        session_journal.commit_transaction(now)

    def _count_held(self) -> int:
        """What a snapshot would take, in bytes, roughly."""
        octets = self._retained.held_bytes + COPY_BYTES * len(self._retained)
        for session in self._connect_handler.sessions.values():
            if session.number:
                inflight, outbox = session.inflight, session.outbox
                in_memory = len(inflight) + len(outbox) - outbox.paged_messages
                octets += inflight.held_bytes + outbox.held_bytes - outbox.paged_bytes + COPY_BYTES * in_memory
                octets += SESSION_BYTES * (1 + len(session.subscription_records))
        links = () if self.federation is None else self.federation.links
        return octets + sum([link.outbox.waiting_bytes for link in links])

    def continue_snapshot(self, now: Instant) -> None:
        """Say some more of the state again; the timer RESTATE rings for the rest."""
        if self._snapshot is None:
            return
        for _ in range(RECORDS_AT_ONCE):
            record = next(self._snapshot, None)
            if record is None:
                self._snapshot = None
                self._journal.end_snapshot(now)
                return
            self._journal.append(record, False, now)
        self._node.timers.set(SNAPSHOT, now + 1)

    def _state(self, begun: int, now: Instant) -> Iterator[bytes]:
        """Records that say everything. What changes meanwhile is in the journal already, behind *begun*.

        Between two records anything may have happened, so each is made of what is true when it is asked for.
        """
        for session in list(self._connect_handler.sessions.values()):
            if not session.number:
                continue
            is_away = session.connection is None
            yield session_record(session, is_away)
            for text in list(session.subscription_records):
                if session.number and text in session.subscription_records:
                    yield session.subscription_records[text]
            for topic in list(session.uncleared):
                if session.number:
                    yield uncleared_record(session.number, topic)
            for packet_id in list(session.received):
                if session.number and packet_id in session.received:
                    yield PACKET.pack(SessionRecordKind.RECEIVED, session.number, packet_id)
            for entry in [*session.inflight, *session.outbox, *self._held_entries(session)]:
                if session.number and entry.number:
                    yield self._copy(session, entry, begun)
            if self._roaming is not None:
                yield from self._roaming.records(session)
            for page in list(session.outbox.pages):
                if session.number and page.entries is None and page in session.outbox.pages:
                    yield paged_record(session.number, page, self._journal.clock_offset)
            if session.number and session.connection is None:
                yield gone_record(session, session.disconnected_at + self._journal.clock_offset)
        for topic in self._retained.topics():
            publication = self._retained.find(topic)
            if publication is not None and not topic.startswith(SYSTEM_TOPICS):
                yield retained_record(publication, self._journal.clock_offset)
                account = self._retained.account_of(topic)
                if account and self._authorizer.checks_retain_source:
                    yield retained_by_record(topic, account)
        yield from self._federation_records()

    def _federation_records(self) -> Iterator[bytes]:
        """What the overlay has to say; of another one that takes its place meanwhile, all from the start."""
        overlay = None
        while overlay is not self.federation:
            overlay = self.federation
            for record in () if overlay is None else overlay.records():
                if overlay is not self.federation:
                    break
                yield record

    def _copy(self, session: Session, entry: QueueEntry, begun: int) -> bytes:
        """A copy; the first of its message says the message too."""
        publication: Publication = entry.publication
        if publication.stated >= begun:
            return copy_record(publication, session, entry)
        publication.stated = self._journal.next_lsn()
        return message_record(publication, self._journal.clock_offset, [(session, entry)])
