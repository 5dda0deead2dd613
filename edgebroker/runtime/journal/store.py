"""The journal of one run: recovery at the start, then commits in one thread beside the event loop."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from edgebridge.frontend.frontend import Frontend
from edgebridge.session.journal.state import JournalState
from edgebroker.errors import StoreUnusable
from edgebroker.instants import MILLISECOND, SECOND, Instant
from edgebroker.runtime.journal.files import JournalFiles
from edgebroker.runtime.journal.wear import CARD, Card, CardWear
from edgebroker.runtime.loop.reactor import clock
from edgebroker.runtime.settings import Settings
from edgebroker.storage.journal.format import STORE_BYTES
from edgebroker.storage.journal.journal import Journal
from edgebroker.storage.journal.options import JournalOptions
from edgebroker.storage.journal.recovery import ApplyRow, recover_rows
from edgebroker.storage.journal.recovery_report import RecoveryReport
from edgebroker.storage.journal.work import DiskWork, WorkPurpose

SKIP_BITS = 16
OnWorkDone = Callable[[DiskWork, str], None]
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
            self.recovery_report: RecoveryReport | None = recover_rows(self.files, apply_row)
            """What recovery has to report; None if there was no journal."""
            if self.recovery_report is not None:
                self.recovery_report.quarantined = len(self.files.quarantined())
            self.wear = CardWear(path, card)
        except BaseException:
            self.files.close()
            raise
        store = (self.recovery_report and self.recovery_report.store) or os.urandom(STORE_BYTES)
        self.journal = Journal(
            store, options, self.recovery_report, skip=int.from_bytes(os.urandom(SKIP_BITS // 8), "big")
        )
        self.files.measure_free_space()
        self.journal.space.disk_bytes = self.files.free_bytes
        self._thread = ThreadPoolExecutor(1, "journal")
        self._under_way: tuple[DiskWork, Future[str]] | None = None

    def run_due(self, now: Instant) -> str:
        """Do all that is due, here and now: before anybody is served. Returns "" or why something failed.

        What is not needed and cannot be removed is no reason to write nothing more.
        """
        failed = ""
        while (due := self.journal.due()) is not None and due <= now:
            work = self.journal.next_work(now)
            if work is None:
                break
            reason = self.files.execute(work)
            self._tell(work, reason, now)
            failed = failed or reason
            if reason and work.purpose is WorkPurpose.BATCH:
                break
        return failed

    def submit(self, work: DiskWork, ended: OnWorkDone) -> None:
        """Carry out *work* in the thread; *ended* is called on the running event loop, unless `close` comes first."""
        loop = asyncio.get_running_loop()

        def tell(future: Future[str]) -> None:  # which is not in here: it holds us, and both would be garbage
            with suppress(RuntimeError):  # the loop is closed; `close` will see to it
                loop.call_soon_threadsafe(self._end, work, future, ended)

        future = self._thread.submit(self.files.execute, work)
        self._under_way = work, future
        future.add_done_callback(tell)

    def record_wear(self, now: Instant) -> None:
        """Keep the count of what was written; to be called now and then. Costs one small file an hour."""
        self.wear.record(now, self.files.card_bytes_written)

    def close(self, now: Instant) -> str:
        """Finish what is under way, write what waits and the mark of a clean end. Returns "" or why that failed."""
        self._thread.shutdown(wait=True)
        journal = self.journal
        if self._under_way is not None:
            work, future = self._under_way
            self._under_way = None
            self._tell(work, reason_of(future), now)
        journal.close(now)
        reason = self.run_due(now)
        self.wear.record(now, self.files.card_bytes_written, is_last=True)
        self.files.close()
        return reason

    def _end(self, work: DiskWork, future: Future[str], ended: OnWorkDone) -> None:
        if self._under_way is not None and self._under_way[0] is work:
            self._under_way = None
            self.journal.space.disk_bytes = self.files.free_bytes
            ended(work, reason_of(future))

    def _tell(self, work: DiskWork, reason: str, now: Instant) -> None:
        self.journal.space.disk_bytes = self.files.free_bytes
        if reason:
            self.journal.failed(work, reason, now)
        else:
            self.journal.done(work, now)


def reason_of(future: Future[str]) -> str:
    """Why a work failed; "" if it did not."""
    error = future.exception()
    return future.result() if error is None else f"{type(error).__name__}: {error}"


JOURNAL = "journal"
"""The journal's folder in the data folder."""


def data_folder(settings: Settings) -> Path | None:
    """Where *settings* keep what must outlive a run; None if nothing is kept.

    Without `data.dir` it is a folder for the node's name and port in the service manager's or the user's state folder.
    With a port that the system chooses nothing is kept: no client would find it again. Raises StoreUnusable.
    """
    if not _keeps(settings):
        return None
    if settings.data.dir is not None:
        return settings.data.dir
    listener = settings.listeners[0]
    if listener.path is None and not listener.port:
        return None
    if given := os.environ.get("STATE_DIRECTORY"):  # systemd; several are separated by colons
        return Path(given.partition(":")[0])
    try:
        home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    except RuntimeError as error:
        raise StoreUnusable("there is no home folder to keep anything in: give --data DIR, or --memory") from error
    where = listener.path.name if listener.path is not None else str(listener.port)
    return home / "edgebroker" / f"{settings.node.name}-{where}"


def _keeps(settings: Settings) -> bool:
    named = [one.durability for one in settings.data.clients] + [one.durability for one in settings.listeners]
    return any(durability is not None and durability.is_persistent for durability in [settings.data.durability, *named])


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Make no search for garbage meanwhile. What is read from a journal is none, and the more there is of it the longer
    each takes: half of the time for 700,000 messages.
    """
    is_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_on:
            gc.enable()


class Store:
    """The journal of one run: opened before anybody is served, closed when everybody is gone."""

    def __init__(self, folder: Path, settings: Settings, on_done: Callable[[], None]) -> None:
        """Recover what is there; *on_done* is called whenever the disk has done something.

        Raises JournalInUse, JournalDamaged, StoreUnusable.
        """
        self.folder = folder
        self._stored = JournalState()
        options = JournalOptions(commit_us=settings.data.commit_ms * MILLISECOND, bytes_max=settings.data.bytes_max)
        began = time.monotonic()
        card = Card(settings.data.card_gb, settings.data.card_cycles)
        with garbage_collection_paused():
            try:
                self.worker = JournalWorker(folder / JOURNAL, options, self._stored.apply_row, card)
            except OSError as error:
                raise StoreUnusable(f"cannot keep anything in {folder}: {error.strerror}; give --data DIR") from error
            self._stored.is_damaged = self.worker.recovery_report is not None and bool(
                self.worker.recovery_report.damage
            )
            self._stored.finish()
        self.recovery_s = time.monotonic() - began
        self.journal = self.worker.journal
        self._frontend: Frontend | None = None
        self._is_closed = False
        self._on_done = on_done

    def restore(self, frontend: Frontend, join: Callable[[JournalState], None]) -> Iterator[str]:
        """Restore *frontend* from the journal, and serve it from now on; *join* is called once, before that.

        Lines for the operator: what is damaged, and what cannot be taken back.
        """
        now, stored = clock(), self._stored
        wall = time.time_ns() // 1_000
        if frontend.recovery.begin(stored, wall, now):
            yield "what is stored is from a time when this machine had no clock: it counts as stored just now"
        join(stored)
        with garbage_collection_paused():
            frontend.recovery.restore(stored, now)
        if stored.clock > wall:
            yield f"the clock is {(stored.clock - wall) // 1_000_000} s behind what was kept: expiry goes on from there"
        if self.worker.recovery_report is not None:
            for damage in self.worker.recovery_report.damage:
                yield f"the journal is damaged: {damage}"
        if stored.invalid:
            yield f"{stored.invalid} records of the journal are not understood: written by another version?"
        yield from frontend.recovery.problems
        if (file := self.folder / "blocked.json").exists():
            from edgebroker.runtime.block_list import restore_blocks  # for who has kept somebody out

            unix_s = (now + frontend.journal.clock_offset) // SECOND
            yield from restore_blocks(file, frontend.connect_handler.blocked, unix_s, now)
        if reason := self.worker.run_due(now):
            yield f"the journal cannot be written: {reason}"
        self._frontend = frontend
        self._stored = JournalState()

    def close(self) -> str:
        """Write what waits, and the mark of a clean end. Returns "" or why that failed. It may be called once."""
        self._is_closed = True
        return self.worker.close(clock())

    def begin_work(self) -> None:
        """Begin what the front end's journal has for the disk, if anything, between `restore` and `close`."""
        if self._frontend is None or self._is_closed:
            return
        work = self._frontend.journal.take_work(clock())
        if work is not None:
            self.worker.submit(work, self._ended)

    def _ended(self, work: DiskWork, reason: str) -> None:
        frontend = self._frontend
        assert frontend is not None
        if self.worker.files.has_lost_segment:  # what stood there is known here: it is said again, elsewhere
            self.worker.files.has_lost_segment = False
            self.journal.request_snapshot(is_lost=True)
        if reason:
            frontend.disk_failed(work, reason, clock())
        else:
            frontend.synced(work, clock())
        self.worker.record_wear(clock())
        self._on_done()
