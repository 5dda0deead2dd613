"""The queue pager: moves the middle of long queues of durable sessions to page files, and back before it is sent.

A message that waits in memory takes some 370 bytes; a queue of a million would fill a small gateway. So when the tail
of a queue is longer than two pages, its oldest part is written to a file of its own (`storage.journal.page_files`).
When that is on the disk, a PAGED record names it in the journal, and neither memory nor the next snapshot holds the
messages any more. The first page is read when the head becomes short; an UNPAGED record restates its messages in the
journal, and then the file is removed. So a message of a long queue is written three times, together with many others.

A page is given up as a whole where its messages would be dropped one by one: when all of them have expired, when the
oldest have to make room, or when the session ends. It is read all the same, because each message has a fate in the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from edgebridge.frontend.journal.session_journal import SessionJournal
from edgebridge.session.inflight import QueueEntry
from edgebridge.session.journal.page_records import page_content, read_page
from edgebridge.session.journal.session_records import paged_record, unpaged_record
from edgebridge.session.queue.page import QueuePage, new_page
from edgebridge.session.session import Session
from edgebroker.errors import JournalDamaged
from edgebroker.instants import Instant
from edgebroker.limits import JOURNAL_PAGE_MESSAGES_MAX, QUEUED_BYTES_LEAST
from edgebroker.log_schema import Cause, MessageOrigin
from edgebroker.node.ledger import Ledger
from edgebroker.node.timers import TimerQueue
from edgebroker.storage.journal.journal import Journal
from edgebroker.storage.journal.page_files import PAGE_RETRY, TAIL_PAGES, TAIL_PAGES_CONNECTED, PageOutcome

PAGE: Final = ("page",)
"""The deadline at which queues that are too long are looked at."""
PAGE_GROWTH: Final = 8
"""A page of a long tail has so many times the usual messages at most: 4,096, twice what the commit between two pages
may hold, so a queue does not grow in memory however fast messages come. Each page costs two syncs, so larger ones are
better than more."""
WRITES_WAITING_MAX: Final = 2
"""Pages that wait for the disk: one is written, and the next is ready."""


class GivenUpPage(NamedTuple):
    """A page that is read only for the accounts."""

    session: Session
    page: QueuePage
    cause: Cause
    """Why its messages are dropped; NONE: they have expired."""


class QueuePager:
    """Moves parts of queues between memory and the disk."""

    def __init__(self, timers: TimerQueue, ledger: Ledger, session_journal: SessionJournal) -> None:
        self.given_up_messages = 0
        """Messages in pages that were given up, whose fate is not in the accounts yet."""
        self.lost_messages = 0
        """Messages in pages that could not be read."""
        self._timers = timers
        self._ledger = ledger
        self.journal = session_journal
        """Gets the records of pages, and has their files."""
        self._long: dict[str, Session] = {}  # client -> its session, whose queue is too long
        self._sessions: dict[int, Session] = {}  # page number -> the session of a page that is written or read
        self._given_up: dict[int, GivenUpPage] = {}
        self._failed: list[tuple[Session, QueuePage]] = []  # pages that could not be written
        self._retry_at: Instant = 0

    # -- out of memory --------------------------------------------------------------------------------------------

    def queued(self, session: Session, now: Instant) -> None:
        """A message was queued for *session*."""
        storage, outbox = self.journal.storage, session.outbox
        if storage is None or not session.number:
            return
        options = storage.options
        pages = TAIL_PAGES if session.connection is None else TAIL_PAGES_CONNECTED
        in_memory = outbox.held_bytes - outbox.paged_bytes
        is_long = outbox.tail_messages >= pages * options.page_messages or in_memory >= pages * options.page_bytes
        if is_long and outbox.can_page():
            self.shorten(session, now)

    def shorten(self, session: Session, now: Instant) -> None:
        """Move a page of *session*'s queue to the disk soon."""
        if not self._long:
            self._timers.set(PAGE, now + 1)
        self._long[session.client_id] = session

    def fire(self, now: Instant) -> None:
        """Move parts of long queues to the disk: a page of each."""
        storage = self.journal.storage
        if storage is None or not (self._long or self._failed):
            return
        if now < self._retry_at:
            self._timers.set(PAGE, self._retry_at)
            return
        failed, self._failed = self._failed, []
        for session, page in failed:
            if page.entries is not None and page in session.outbox.pages:
                page.number = storage.pages.next_number()  # what is left of the old file is still to be removed
                self._write(session, page)
        if self._long and storage.pages.waiting_writes < WRITES_WAITING_MAX:
            session = self._long.pop(next(iter(self._long)))
            if session.number and session.outbox.can_page() and self._page_out(session):
                self.queued(session, now)
            if self._long:
                self._timers.set(PAGE, now + 1)
        self.journal.plan_commit()

    def _page_out(self, session: Session) -> bool:
        """Hand a page of *session*'s queue to the disk. Returns whether there is room for it."""
        storage, outbox = self.journal.storage, session.outbox
        assert storage is not None
        in_memory = outbox.held_bytes - outbox.paged_bytes
        if storage.pages.bytes + max(in_memory, 2 * storage.options.page_bytes) > self.bytes_max:
            return False
        usual = storage.options.page_messages
        growth = min(max(1, outbox.tail_messages // (2 * usual)), PAGE_GROWTH)
        entries = outbox.take_page(min(growth * usual, JOURNAL_PAGE_MESSAGES_MAX), growth * storage.options.page_bytes)
        if entries:
            page = new_page(storage.pages.next_number(), entries)
            outbox.add_page(page)
            self._write(session, page)
        return bool(entries)

    def _write(self, session: Session, page: QueuePage) -> None:
        storage = self.journal.storage
        assert storage is not None
        assert page.entries is not None
        self._sessions[page.number] = session
        page.file_bytes = storage.pages.write(page.number, page_content(page.entries, self.journal.clock_offset))

    def _written(self, session: Session, page: QueuePage, now: Instant) -> None:
        """*page* is on the disk: memory is rid of its messages."""
        entries, page.entries = page.entries, None
        assert entries is not None
        if session.number:
            copies = [entry.number for entry in entries]
            page.first = copies[0]  # the session may have become durable anew meanwhile
            self.journal.append_for(session, paged_record(session.number, page, self.journal.clock_offset, copies), now)
        if self._ledger.log is not None:
            for entry in entries:
                self._ledger.leave(now, entry.publication, session.client_id, entry.text, entry.qos)
        for entry in entries:
            entry.number = 0  # a snapshot under way passes over it

    # -- and back -------------------------------------------------------------------------------------------------

    def prepare(self, session: Session) -> bool:
        """Read the first page of *session*, if the head of its queue is short. Returns whether a message is ready."""
        storage, outbox = self.journal.storage, session.outbox
        if storage is not None and outbox.pages and outbox.head_messages <= storage.options.page_messages // 2:
            page = outbox.pages[0]
            if page.entries is not None:  # it is not on the disk yet, and need not be any more
                outbox.page_in(page.entries)
                self._sessions.pop(page.number, None)
            elif not page.is_requested:
                page.is_requested = True
                self._sessions[page.number] = session
                storage.pages.read(page.number)
                self.journal.plan_commit()
        return outbox.is_ready()

    def _page_in(
        self, session: Session, page: QueuePage, content: bytes, entries: list[QueueEntry], now: Instant
    ) -> None:
        """The messages of *page*, the first one of *session*, are in memory again: *entries*, read from *content*."""
        self._take_up(session, page, entries, now)
        session.outbox.page_in(entries)
        after = 0
        if session.number:
            stated = self.journal.next_lsn()
            for entry in entries:
                entry.publication.stated = stated
            record = unpaged_record(session.number, page, self.journal.clock_offset, content)
            after = self.journal.append_for(session, record, now)
        else:
            for entry in entries:
                entry.number = 0
        self._remove(page, after)

    def _take_up(self, session: Session, page: QueuePage, entries: list[QueueEntry], now: Instant) -> None:
        """Account for messages that were on the disk."""
        for entry in entries:
            publication = entry.publication
            if not page.is_accounted:
                self._ledger.take_up(now, publication, 1)
                self._ledger.matched -= 1  # it was counted with its page
            publication.origin = MessageOrigin.RESUMED  # it was counted before it went to the disk
            self._ledger.made(
                now, publication.publisher, session.client_id, publication.number, 1, entry.qos, MessageOrigin.RESUMED
            )

    def lose(self, session: Session, page: QueuePage, why: str, now: Instant) -> None:
        """Report that *page* cannot be read, and drop its messages."""
        storage = self.journal.storage
        assert storage is not None
        storage.pages.set_aside(page.number, page.file_bytes, why, page.count)
        self.lost_messages += page.count
        self._ledger.count_dropped(session.client_id, Cause.DAMAGED, page.count)
        session.outbox.count_dropped(Cause.DAMAGED, page.count)
        if page in session.outbox.pages:
            session.outbox.remove_page(page)
            if session.number:
                self.journal.append_for(session, unpaged_record(session.number, page, self.journal.clock_offset), now)

    def keep(self, pages: Iterable[int]) -> None:
        """Let the files of *pages* be: records name them, and the journal says so until the next snapshot."""
        found = {} if self.journal.storage is None else self.journal.storage.pages.found
        for page in pages:
            found.pop(page, None)

    def remove_unnamed(self) -> None:
        """Remove the page files that no record names: the last run wrote them, and did not come to say so."""
        storage = self.journal.storage
        if storage is None:
            return
        for number, size in storage.pages.found.items():
            storage.pages.bytes += size
            storage.pages.remove(number, size)
            storage.pages.last_number = max(storage.pages.last_number, number)
        if storage.pages.found:
            self.journal.plan_commit()
        storage.pages.found = {}

    def _remove(self, page: QueuePage, after: int) -> None:
        storage = self.journal.storage
        assert storage is not None
        storage.pages.remove(page.number, page.file_bytes, after)

    # -- given up -------------------------------------------------------------------------------------------------

    def give_up(self, session: Session, page: QueuePage, cause: Cause, now: Instant) -> None:
        """Drop the messages of *page* because of *cause*; NONE: they have expired."""
        session.outbox.remove_page(page)
        if session.number and page.entries is None:
            self.journal.append_for(session, unpaged_record(session.number, page, self.journal.clock_offset), now)
        self._account_for_given_up(session, page, cause, now)

    def make_room(self, session: Session, size: int, now: Instant) -> None:
        """Drop the oldest pages of *session* until a message of *size* bytes fits, or none is left."""
        outbox = session.outbox
        while outbox.pages and not outbox.is_ready() and not outbox.has_room(size) and outbox.could_hold(size):
            outbox.dropped += outbox.pages[0].count
            self.give_up(session, outbox.pages[0], Cause.QUEUE_FULL, now)

    def session_ended(self, session: Session, pages: Iterable[QueuePage], now: Instant) -> None:
        """*session* is no more, and *pages* were part of its queue. What was in memory has its fate already."""
        self._long.pop(session.client_id, None)
        for page in pages:
            if page.entries is not None:
                self._sessions.pop(page.number, None)
            else:
                self._account_for_given_up(session, page, Cause.SESSION_ENDED, now)

    def _account_for_given_up(self, session: Session, page: QueuePage, cause: Cause, now: Instant) -> None:
        storage = self.journal.storage
        assert storage is not None
        if page.entries is not None:
            self._sessions.pop(page.number, None)
            self._drop(session, page.entries, cause, now)
            for entry in page.entries:
                self.journal.settled(session, entry, now)
            return
        self.given_up_messages += page.count
        self._given_up[page.number] = GivenUpPage(session, page, cause)
        if not page.is_requested:
            page.is_requested = True
            storage.pages.read(page.number)
            self.journal.plan_commit()

    def _drop(self, session: Session, entries: list[QueueEntry], cause: Cause, now: Instant) -> None:
        client_id, ledger = session.client_id, self._ledger
        for entry in entries:
            if cause is Cause.NONE:
                ledger.expire(now, entry.publication, client_id, entry.text, entry.qos)
            else:
                ledger.drop(now, entry.publication, client_id, entry.text, entry.qos, cause)
                session.outbox.count_dropped(cause, 1)

    # -- what the disk did ----------------------------------------------------------------------------------------

    @property
    def bytes_max(self) -> int:
        """What all pages may take on the disk: a quarter of what is free without them."""
        storage = self.journal.storage
        return QUEUED_BYTES_LEAST if storage is None else storage.page_bytes_max

    @property
    def last_page(self) -> int:
        """The number of the last page, of a session or of a link."""
        return 0 if self.journal.storage is None else self.journal.storage.pages.last_number

    def collect(self, now: Instant) -> list[Session]:
        """Go on with the pages that were written and read. To be called after each work of the disk. Returns sessions
        that have more messages in memory than before.
        """
        storage = self.journal.storage
        outcomes = [] if storage is None else storage.pages.take_outcomes()
        if storage is None or not outcomes:
            return []
        ready: list[Session] = []
        for outcome in outcomes:
            if outcome.is_read:
                self._collect_read(outcome, ready, now)
            else:
                self._collect_write(storage, outcome, now)
        if self._long or self._failed:
            self._timers.set(PAGE, max(now + 1, self._retry_at))
        self.journal.plan_commit()
        return ready

    def _collect_write(self, storage: Journal, outcome: PageOutcome, now: Instant) -> None:
        session = self._sessions.pop(outcome.number, None)
        page = None if session is None else _find(session, outcome.number)
        if session is None or page is None or page.entries is None:  # it was needed in memory before it was on the disk
            if not outcome.failure:
                storage.pages.remove(outcome.number, outcome.size)
        elif outcome.failure:
            self._retry_at = now + PAGE_RETRY
            self._failed.append((session, page))
        else:
            self._written(session, page, now)
            self.queued(session, now)

    def _collect_read(self, outcome: PageOutcome, ready: list[Session], now: Instant) -> None:
        given_up = self._given_up.pop(outcome.number, None)
        session = self._sessions.pop(outcome.number, None)
        if given_up is not None:
            session, page = given_up.session, given_up.page
            self.given_up_messages -= page.count
        else:
            found = None if session is None else _find(session, outcome.number)
            if session is None or found is None:
                return
            page = found
        page.is_requested = False
        if given_up is None:
            ready.append(session)
        try:
            if outcome.content is None:
                raise JournalDamaged(outcome.failure)
            entries = read_page(outcome.content, page.first, page.accepted_at)
        except JournalDamaged as error:
            self.lose(session, page, str(error), now)
            return
        if given_up is None:
            self._page_in(session, page, outcome.content, entries, now)
            return
        self._take_up(session, page, entries, now)
        self._drop(session, entries, given_up.cause, now)
        self._remove(page, self.journal.next_lsn() - 1)


def _find(session: Session, number: int) -> QueuePage | None:
    return next((page for page in session.outbox.pages if page.number == number), None)
