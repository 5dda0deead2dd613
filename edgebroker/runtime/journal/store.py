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
from edgebroker.runtime.journal.damage_notice import DamageNotice
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
"""Called with the work and the reason why it failed, "" if it succeeded."""


class JournalWorker:
    """The journal in the folder *path*, recovered and ready. No other process may use the folder until `close`.

    Each intact record is passed to *apply_row* first. Raises JournalInUse, JournalDamaged (of another version),
    OSError.
    """

    def __init__(self, path: Path, options: JournalOptions, apply_row: ApplyRow, card: Card = CARD) -> None:
        self.files = JournalFiles(path)
        self.files.lock()
        try:
            self.recovery_report: RecoveryReport | None = recover_rows(self.files, apply_row)
            """The result of recovery; None if there was no journal."""
            if self.recovery_report is not None:
                self.recovery_report.quarantined = len(self.files.quarantined())
            self.damage_notice = DamageNotice(path)
            """What recovery found damaged, in this run or an earlier one, and nobody has acknowledged."""
            report = self.recovery_report
            self.damage_notice.record(() if report is None else map(str, report.damage))
            self.wear = CardWear(path, card)
            page_sizes = self.files.page_sizes()
        except BaseException:
            self.files.close()
            raise
        store = (self.recovery_report and self.recovery_report.store) or os.urandom(STORE_BYTES)
        self.journal = Journal(
            store, options, self.recovery_report, skip=int.from_bytes(os.urandom(SKIP_BITS // 8), "big")
        )
        self.journal.pages.found = page_sizes
        self.files.measure_free_space()
        self.journal.space.disk_bytes = self.files.free_bytes
        self._thread = ThreadPoolExecutor(1, "journal")
        self._in_progress: tuple[DiskWork, Future[str]] | None = None

    def run_due(self, now: Instant) -> str:
        """Executes all due work in this thread, before clients are served. Returns "" or why some of it failed.

        A failure to remove old segments does not stop the writes.
        """
        failed = ""
        while (due := self.journal.due()) is not None and due <= now:
            work = self.journal.next_work(now)
            if work is None:
                break
            reason = self.files.execute(work)
            self._report(work, reason, now)
            failed = failed or reason
            if reason and work.purpose is WorkPurpose.BATCH:
                break
        return failed

    def submit(self, work: DiskWork, on_done: OnWorkDone) -> None:
        """Executes *work* in the worker thread, then calls *on_done* in the running event loop, unless `close` comes
        first.
        """
        loop = asyncio.get_running_loop()

        # the future is a parameter: as a closure variable it would form a reference cycle
        def notify(future: Future[str]) -> None:
            with suppress(RuntimeError):  # the loop is closed; `close` completes the work
                loop.call_soon_threadsafe(self._on_executed, work, future, on_done)

        future = self._thread.submit(self.files.execute, work)
        self._in_progress = work, future
        future.add_done_callback(notify)

    def record_wear(self, now: Instant) -> None:
        """Adds up what was written; to be called now and then. Writes one small file an hour."""
        self.wear.record(now, self.files.card_bytes_written)

    def close(self, now: Instant) -> str:
        """Completes the work in progress, writes all pending records and the mark of a clean end. Returns "" or why
        that failed.
        """
        self._thread.shutdown(wait=True)
        journal = self.journal
        if self._in_progress is not None:
            work, future = self._in_progress
            self._in_progress = None
            self._report(work, reason_of(future), now)
        journal.close(now)
        reason = self.run_due(now)
        self.wear.record(now, self.files.card_bytes_written, is_last=True)
        self.files.close()
        return reason

    def _on_executed(self, work: DiskWork, future: Future[str], on_done: OnWorkDone) -> None:
        if self._in_progress is not None and self._in_progress[0] is work:
            self._in_progress = None
            self.journal.space.disk_bytes = self.files.free_bytes
            on_done(work, reason_of(future))

    def _report(self, work: DiskWork, reason: str, now: Instant) -> None:
        self.journal.space.disk_bytes = self.files.free_bytes
        if reason:
            self.journal.failed(work, reason, now)
        else:
            self.journal.done(work, now)


def reason_of(future: Future[str]) -> str:
    """Returns why a work failed; "" if it succeeded."""
    error = future.exception()
    return future.result() if error is None else f"{type(error).__name__}: {error}"


DAMAGE_LINES_MAX = 10
"""Damaged places that `/health` names; further ones are counted."""
JOURNAL = "journal"
"""The journal's folder in the data folder."""


def data_folder(settings: Settings) -> Path | None:
    """Returns the folder for all durable state; None if nothing is durable.

    Without `data.dir` it is named after the node and its port, in the service manager's or the user's state folder.
    With a port that the system chooses nothing is durable: no client would find it again. Raises StoreUnusable.
    """
    if not _has_durable_state(settings):
        return None
    if settings.data.dir is not None:
        return settings.data.dir
    listener = settings.listeners[0]
    if listener.path is None and not listener.port:
        return None
    if state_folders := os.environ.get("STATE_DIRECTORY"):  # systemd; a list separated by colons
        return Path(state_folders.partition(":")[0])
    try:
        home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    except RuntimeError as error:
        raise StoreUnusable("there is no home folder to keep anything in: give --data DIR, or --memory") from error
    listener_name = listener.path.name if listener.path is not None else str(listener.port)
    return home / "edgebroker" / f"{settings.node.name}-{listener_name}"


def _has_durable_state(settings: Settings) -> bool:
    overrides = [client.durability for client in settings.data.clients] + [
        client.durability for client in settings.listeners
    ]
    return any(
        durability is not None and durability.is_persistent for durability in [settings.data.durability, *overrides]
    )


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Disables the cyclic garbage collector. Recovery creates no garbage, and each collection takes longer the more
    objects there are: half of the time for 700,000 messages.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Store:
    """The journal of one run: opened before clients are served, closed after the last has left."""

    def __init__(self, folder: Path, settings: Settings, on_done: Callable[[], None]) -> None:
        """Recovers the state. *on_done* is called whenever a work of the disk has ended.

        Raises JournalInUse, JournalDamaged, StoreUnusable.
        """
        self.folder = folder
        self._state = JournalState()
        options = JournalOptions(commit_us=settings.data.commit_ms * MILLISECOND, bytes_max=settings.data.bytes_max)
        started = time.monotonic()
        card = Card(settings.data.card_gb, settings.data.card_cycles)
        with garbage_collection_paused():
            try:
                self.worker = JournalWorker(folder / JOURNAL, options, self._state.apply_row, card)
            except OSError as error:
                raise StoreUnusable(f"cannot keep anything in {folder}: {error.strerror}; give --data DIR") from error
            self._state.is_damaged = self.worker.recovery_report is not None and bool(
                self.worker.recovery_report.damage
            )
            self._state.finish()
        self.recovery_s = time.monotonic() - started
        self.journal = self.worker.journal
        self._frontend: Frontend | None = None
        self._is_closed = False
        self._on_done = on_done

    def restore(self, frontend: Frontend, join: Callable[[JournalState], None]) -> Iterator[str]:
        """Gives *frontend* the recovered state, and writes its journal from now on.

        join: called once before the state is restored. Yields lines for the operator about damage and about records
        that cannot be restored.
        """
        now, state = clock(), self._state
        wall_us = time.time_ns() // 1_000
        if frontend.recovery.begin(state, wall_us, now):
            yield "what is stored is from a time when this machine had no clock: it counts as stored just now"
        join(state)
        with garbage_collection_paused():
            frontend.recovery.restore(state, now)
        if state.clock > wall_us:
            behind_s = (state.clock - wall_us) // 1_000_000
            yield f"the clock is {behind_s} s behind what was kept: expiry goes on from there"
        yield from self._damage_lines()
        if state.invalid:
            yield f"{state.invalid} records of the journal are not understood: written by another version?"
        yield from frontend.recovery.problems
        if (file := self.folder / "blocked.json").exists():
            from edgebroker.runtime.block_list import restore_blocks  # loaded only where clients are blocked

            unix_s = (now + frontend.journal.clock_offset) // SECOND
            yield from restore_blocks(file, frontend.connect_handler.blocked, unix_s, now)
        yield from self._note_page_damage()
        if reason := self.worker.run_due(now):
            yield f"the journal cannot be written: {reason}"
        self._frontend = frontend
        self._state = JournalState()

    def _damage_lines(self) -> Iterator[str]:
        report, notice = self.worker.recovery_report, self.worker.damage_notice
        found = [] if report is None else [str(damage) for damage in report.damage]
        yield from (f"the journal is damaged: {place}" for place in found)
        for place in notice.unacknowledged():
            if place not in found:
                yield f"the journal was damaged at an earlier start, and nobody has acknowledged it: {place}"
        if notice.failure:
            yield f"the next start will not know of this damage: {notice.failure}"

    def _note_page_damage(self) -> list[str]:
        """Keeps what became known of damaged page files, and returns it in words."""
        found, self.journal.pages.damage = self.journal.pages.damage, []
        if found:
            self.worker.damage_notice.add(found)
        return [f"the journal is damaged: {place}" for place in found]

    def damage_warnings(self) -> Iterator[str]:
        """Yields a line for each damaged place that no operator has acknowledged, for `/health`."""
        places = self.worker.damage_notice.unacknowledged()
        remedy = f"`edgebroker journal acknowledge {self.folder}` ends this warning"
        yield from (f"the journal was damaged: {place}; {remedy}" for place in places[:DAMAGE_LINES_MAX])
        if (more := len(places) - DAMAGE_LINES_MAX) > 0:
            yield f"the journal was damaged at {more} more places"

    def close(self) -> str:
        """Writes all pending records and the mark of a clean end. Returns "" or why that failed. May be called once."""
        self._is_closed = True
        return self.worker.close(clock())

    def begin_work(self) -> None:
        """Begin what the front end's journal has for the disk, if anything, between `restore` and `close`."""
        if self._frontend is None or self._is_closed:
            return
        work = self._frontend.journal.take_work(clock())
        if work is not None:
            self.worker.submit(work, self._on_work_done)

    def _on_work_done(self, work: DiskWork, reason: str) -> None:
        frontend = self._frontend
        assert frontend is not None
        if self.worker.files.has_lost_segment:  # its records are still known here, and are written again in a snapshot
            self.worker.files.has_lost_segment = False
            self.journal.request_snapshot(is_lost=True)
        if reason:
            frontend.disk_failed(work, reason, clock())
        else:
            frontend.synced(work, clock())
        self._note_page_damage()
        self.worker.record_wear(clock())
        self._on_done()
