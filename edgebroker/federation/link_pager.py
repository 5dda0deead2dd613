"""The link pager: moves the middle of long outboxes to page files, and back before it is sent.

An event that waits for a peer takes 600 bytes of memory and more. So when the BACKLOG of a link is long, its middle is
written to files (`storage.journal.page_files`), a page of messages to each. When a file is on the disk, a PAGED record
names it, and neither memory nor the next snapshot holds its messages any more. The first page is read when what waits
before it becomes short; an UNPAGED record repeats its content in the journal, and then the file is removed.

A page whose messages have all expired is read too, because each of them has a fate in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from edgebroker.errors import JournalDamaged
from edgebroker.instants import Instant
from edgebroker.log_schema import Cause
from edgebroker.overlay.link.backlog import read_page
from edgebroker.overlay.link.class_queue import LinkPage
from edgebroker.overlay.link.codec.errors import FrameBroken
from edgebroker.overlay.link.link import Link
from edgebroker.overlay.messages import Message
from edgebroker.storage.journal.journal import Journal
from edgebroker.storage.journal.page_files import (
    PAGE_MISSING,
    PAGE_RETRY,
    TAIL_PAGES,
    TAIL_PAGES_CONNECTED,
    PageOutcome,
    PageOwner,
)

WRITES_WAITING_MAX: Final = 4
"""Pages that wait for the disk: more memory is not won by encoding more of them."""


class PageAccounts:
    """The accounts of copies in pages. These keep none."""

    def numbers(self, peer: str, messages: Sequence[Message]) -> list[int]:
        """Return the numbers of *messages* for *peer* in the accounts; none if they are only counted."""
        return []

    def paged_out(self, peer: str, messages: Sequence[Message], now: Instant) -> None:
        """Record that *messages* for *peer* are on the disk alone."""

    def paged_in(self, peer: str, page: int, messages: Sequence[Message], numbers: Sequence[int], now: Instant) -> None:
        """Record that the *messages* of page *page* are in memory again; *numbers* as they were written."""

    def page_lost(self, peer: str, page: int, count: int, cause: Cause) -> None:
        """Record that the *count* messages of page *page* are dropped unread, because of *cause*."""


NO_ACCOUNTS: Final = PageAccounts()


class LinkPager:
    """Moves parts of the outboxes of *links* between memory and the disk of *journal*; None: all are in memory."""

    def __init__(self, links: Iterable[Link], journal: Journal | None, accounts: PageAccounts = NO_ACCOUNTS) -> None:
        self.paged: list[Link] = []
        """The links with pages."""
        self.due: Instant | None = None
        """When all messages of some page will have expired."""
        self._links = tuple(links)
        self._journal = journal
        self._accounts = accounts
        self._pending: dict[int, tuple[Link, LinkPage]] = {}  # page number -> what is being written or read
        self._unwritten = [(link, page) for link in self._links for page in link.outbox.backlog.pages if page.entries]
        self._retry_at: Instant = 0
        self._update()

    def check_files(self) -> None:
        """Look for the files of all pages, which an earlier run left. Those that are missing are lost, and reported."""
        if self._journal is None:
            return
        files = self._journal.pages
        for link in self.paged:
            for page in [one for one in link.outbox.backlog.pages if one.entries is None]:
                files.bytes += page.file_bytes
                if files.found.pop(page.number, 0) < page.file_bytes:
                    self._lose(link, page, PAGE_MISSING)
        self._update()

    def grow_outboxes(self) -> None:
        """Let all outboxes together have half of what pages may take on the disk, each as much as the others leave."""
        if self._journal is not None:
            share = self._journal.page_bytes_max // 2
            on_disk = sum(link.outbox.backlog.disk_bytes for link in self._links)
            for link in self._links:
                link.outbox.grow(share - on_disk + link.outbox.backlog.disk_bytes)

    def _update(self) -> None:
        self.paged = [link for link in self._links if link.outbox.backlog.pages]
        pages = [page for link in self.paged for page in link.outbox.backlog.pages]
        expiries = [page.expires_at for page in pages if page.entries is None and not page.is_requested]
        self.due = min([at for at in expiries if at is not None], default=None)

    # -- out of memory --------------------------------------------------------------------------------------------

    def _page_out(self, journal: Journal, now: Instant) -> bool:
        """Move a part of each long outbox to the disk. Returns whether there is something to write."""
        files, options = journal.pages, journal.options
        unwritten, self._unwritten = self._unwritten, []
        for link, page in unwritten:
            if page.entries is not None and not page.is_gone:
                self._write(journal, link, page, now)
        has_written = bool(unwritten)
        for link in self._links:
            backlog = link.outbox.backlog
            pages = TAIL_PAGES_CONNECTED if link.outbox.is_open else TAIL_PAGES
            room = journal.page_bytes_max - files.bytes
            if files.waiting_writes < WRITES_WAITING_MAX and max(backlog.waiting_bytes, options.page_bytes) <= room:
                taken = backlog.take_page(pages, options.page_messages, options.page_bytes)
                if taken is not None:
                    self._write(journal, link, taken, now)
                    has_written = True
        return has_written

    def _write(self, journal: Journal, link: Link, page: LinkPage, now: Instant) -> None:
        messages = [entry.message for entry in page.entries or ()]
        content = link.outbox.page_content(page, self._accounts.numbers(link.peer, messages), now)
        page.number = journal.pages.next_number()
        page.file_bytes = journal.pages.write(page.number, content, PageOwner.LINK)
        self._pending[page.number] = link, page

    # -- and back -------------------------------------------------------------------------------------------------

    def prepare(self, now: Instant) -> bool:
        """Read the first page of each link that is up and has little before it. To be called after each sending of a
        link in `paged`. Returns whether there is work for the disk.
        """
        assert self._journal is not None
        is_asked = is_changed = False
        for link in self.paged:
            outbox, backlog = link.outbox, link.outbox.backlog
            while outbox.is_open and backlog.pages and 2 * len(backlog.waiting) <= self._journal.options.page_messages:
                page = backlog.pages[0]
                if page.entries is None:
                    is_asked = self._read(page, link) or is_asked
                    break
                self._pending.pop(page.number, None)  # it is not on the disk yet, and need not be any more
                outbox.keep_in_memory(page.entries)
                link.paged_in(now)
                is_changed = True
        if is_changed:
            self._update()
        return is_asked

    def fire(self, now: Instant) -> bool:
        """Read the pages that have expired, if `due` has come. Returns whether there is work for the disk."""
        if self.due is None or now < self.due:
            return False
        for link in self.paged:
            for page in link.outbox.backlog.pages:
                if page.entries is None and page.has_expired(now):
                    self._read(page, link)
        self._update()
        return True

    def _read(self, page: LinkPage, link: Link) -> bool:
        if page.is_requested:
            return False
        assert self._journal is not None
        page.is_requested = True
        self._pending[page.number] = link, page
        self._journal.pages.read(page.number, PageOwner.LINK)
        return True

    # -- what the disk did ----------------------------------------------------------------------------------------

    def collect(self, now: Instant) -> bool:
        """Go on with the pages that were written and read, and move more to the disk. To be called after each work of
        the disk. Returns whether there may be more work for it.
        """
        if self._journal is None:
            return False
        outcomes = self._journal.pages.take_outcomes(PageOwner.LINK)
        for outcome in outcomes:
            self._collect(self._journal, outcome, now)
        has_written = now >= self._retry_at and self._page_out(self._journal, now)
        if outcomes or has_written:
            self._update()
        return bool(outcomes) or has_written

    def _collect(self, journal: Journal, outcome: PageOutcome, now: Instant) -> None:
        found = self._pending.pop(outcome.number, None)
        if found is None:  # it was needed in memory before it was on the disk; or the topology was changed meanwhile
            if not outcome.is_read and not outcome.failure:
                journal.pages.remove(outcome.number, outcome.size)
            return
        link, page = found
        if outcome.is_read:
            self._collect_read(journal, outcome, link, page, now)
        elif outcome.failure:
            page.number = 0  # what is left of the file is still to be removed
            self._unwritten.append(found)
            self._retry_at = now + PAGE_RETRY
        else:
            self._accounts.paged_out(link.peer, link.outbox.page_written(page), now)

    def _collect_read(self, journal: Journal, outcome: PageOutcome, link: Link, page: LinkPage, now: Instant) -> None:
        page.is_requested = False
        outbox = link.outbox
        try:
            if outcome.content is None:
                raise JournalDamaged(outcome.failure)
            entries, numbers = read_page(page, outcome.content)
        except (JournalDamaged, FrameBroken) as error:
            self._lose(link, page, str(error))
        else:
            self._accounts.paged_in(link.peer, page.number, [entry.message for entry in entries], numbers, now)
            if page.has_expired(now):
                lsn = outbox.drop_page(page, entries)
            else:
                lsn = outbox.page_in(page, entries, outcome.content)
            journal.pages.remove(page.number, page.file_bytes, lsn)
        link.paged_in(now)

    def _lose(self, link: Link, page: LinkPage, why: str) -> None:
        assert self._journal is not None
        self._journal.pages.set_aside(page.number, page.file_bytes, why, page.count)
        link.outbox.drop_page(page, [], Cause.DAMAGED)
        self._accounts.page_lost(link.peer, page.number, page.count, Cause.DAMAGED)

    def discard(self, link: Link, cause: Cause) -> int:
        """Drop all events that wait for *link*, which has no connection, because of *cause*. Returns their number."""
        return self.drop_pages(link, cause) + link.outbox.discard(cause)

    def drop_pages(self, link: Link, cause: Cause) -> int:
        """Drop the events for *link* that are on the disk alone, because of *cause*. Returns their number."""
        outbox, count = link.outbox, 0
        while outbox.backlog.pages:
            page = outbox.backlog.pages[0]
            self._pending.pop(page.number, None)
            if page.entries is not None:
                outbox.keep_in_memory(page.entries)
                continue
            count += page.count
            lsn = outbox.drop_page(page, [], cause)
            self._accounts.page_lost(link.peer, page.number, page.count, cause)
            assert self._journal is not None
            self._journal.pages.remove(page.number, page.file_bytes, lsn)
        self._update()
        return count
