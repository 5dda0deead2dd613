"""The world's part for a journal: recovery at the start, and then its work, in one thread beside the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from edgebroker.instants import Instant
from edgebroker.storage.journal.format import STORE_BYTES
from edgebroker.storage.journal.found import Found
from edgebroker.storage.journal.journal import Journal
from edgebroker.storage.journal.options import JournalOptions
from edgebroker.storage.journal.recovery import ApplyRow, recover_rows
from edgebroker.storage.journal.work import Purpose, Work
from edgebroker.world.journalfiles import JournalFiles
from edgebroker.world.wear import CARD, Card, Wear

SKIP_BITS = 16
Ended = Callable[[Work, str], None]
"""Takes a work and the reason why it failed; "" if it was done."""


class JournalWorker:
    """The journal of the folder *path*, recovered and ready. Nobody else may use the folder until `close`.

    Every record that is intact is given to *apply_row* first. Raises JournalInUse, JournalDamaged (another version),
    OSError.
    """

    def __init__(self, path: Path, options: JournalOptions, apply_row: ApplyRow, card: Card = CARD) -> None:
        self.files = JournalFiles(path)
        self.files.lock()
        try:
            self.found: Found | None = recover_rows(self.files, apply_row)
            """What recovery has to report; None if there was no journal."""
            if self.found is not None:
                self.found.quarantined = len(self.files.quarantined())
            self.wear = Wear(path, card)
        except BaseException:
            self.files.close()
            raise
        store = (self.found and self.found.store) or os.urandom(STORE_BYTES)
        self.journal = Journal(store, options, self.found, skip=int.from_bytes(os.urandom(SKIP_BITS // 8), "big"))
        self.files.look_around()
        self.journal.room.disk_bytes = self.files.room_bytes
        self._thread = ThreadPoolExecutor(1, "journal")
        self._under_way: tuple[Work, Future[str]] | None = None

    def work_off(self, now: Instant) -> str:
        """Do all that is due, here and now: before anybody is served. Returns "" or why something failed.

        What is not needed and cannot be removed is no reason to write nothing more.
        """
        failed = ""
        while (due := self.journal.due()) is not None and due <= now:
            work = self.journal.take(now)
            if work is None:
                break
            reason = self.files.carry_out(work)
            self._tell(work, reason, now)
            failed = failed or reason
            if reason and work.purpose is Purpose.BATCH:
                break
        return failed

    def begin(self, work: Work, ended: Ended) -> None:
        """Carry out *work* in the thread; *ended* is called on the running event loop, unless `close` comes first."""
        loop = asyncio.get_running_loop()

        def tell(future: Future[str]) -> None:  # which is not in here: it holds us, and both would be garbage
            with suppress(RuntimeError):  # the loop is closed; `close` will see to it
                loop.call_soon_threadsafe(self._end, work, future, ended)

        future = self._thread.submit(self.files.carry_out, work)
        self._under_way = work, future
        future.add_done_callback(tell)

    def note_wear(self, now: Instant) -> None:
        """Keep the count of what was written; to be called now and then. Costs one small file an hour."""
        self.wear.note(now, self.files.card_bytes_written)

    def close(self, now: Instant) -> str:
        """Finish what is under way, write what waits and the mark of a clean end. Returns "" or why that failed."""
        self._thread.shutdown(wait=True)
        journal = self.journal
        if self._under_way is not None:
            work, future = self._under_way
            self._under_way = None
            self._tell(work, reason_of(future), now)
        journal.close(now)
        reason = self.work_off(now)
        self.wear.note(now, self.files.card_bytes_written, is_last=True)
        self.files.close()
        return reason

    def _end(self, work: Work, future: Future[str], ended: Ended) -> None:
        if self._under_way is not None and self._under_way[0] is work:
            self._under_way = None
            self.journal.room.disk_bytes = self.files.room_bytes
            ended(work, reason_of(future))

    def _tell(self, work: Work, reason: str, now: Instant) -> None:
        self.journal.room.disk_bytes = self.files.room_bytes
        if reason:
            self.journal.failed(work, reason, now)
        else:
            self.journal.done(work, now)


def reason_of(future: Future[str]) -> str:
    """Why a work failed; "" if it did not."""
    error = future.exception()
    return future.result() if error is None else f"{type(error).__name__}: {error}"
