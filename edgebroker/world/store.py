"""What a gateway keeps between runs: the folder, what recovery found in it, and the journal's work while it runs."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from edgebridge.frontend.frontend import Frontend
from edgebridge.session.stored import Stored
from edgebroker.errors import StoreUnusable
from edgebroker.instants import MILLISECOND, SECOND
from edgebroker.storage.journal.options import JournalOptions
from edgebroker.storage.journal.work import Work
from edgebroker.world.journalworker import JournalWorker
from edgebroker.world.reactor import clock
from edgebroker.world.settings import Settings
from edgebroker.world.wear import Card

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
    return any(durability is not None and durability.keeps for durability in [settings.data.durability, *named])


@contextmanager
def without_collector() -> Iterator[None]:
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

    def __init__(self, folder: Path, settings: Settings) -> None:
        """Recover what is there. Raises JournalInUse, JournalDamaged, StoreUnusable."""
        self.folder = folder
        self._stored = Stored()
        options = JournalOptions(commit_us=settings.data.commit_ms * MILLISECOND, bytes_max=settings.data.bytes_max)
        began = time.monotonic()
        card = Card(settings.data.card_gb, settings.data.card_cycles)
        with without_collector():
            try:
                self.worker = JournalWorker(folder / JOURNAL, options, self._stored.apply_row, card)
            except OSError as error:
                raise StoreUnusable(f"cannot keep anything in {folder}: {error.strerror}; give --data DIR") from error
            self._stored.is_damaged = self.worker.found is not None and bool(self.worker.found.damage)
            self._stored.finish()
        self.recovery_s = time.monotonic() - began
        self.journal = self.worker.journal
        self._turned: Callable[[], None] = lambda: None
        self._frontend: Frontend | None = None

    def restore(self, frontend: Frontend, turned: Callable[[], None], join: Callable[[Stored], None]) -> Iterator[str]:
        """Give *frontend* what was kept, and serve it from now on; *turned* is called whenever the disk was done,
        *join* once, before anything is given back.

        Lines for the operator: what is damaged, and what cannot be taken back.
        """
        now, stored = clock(), self._stored
        wall = time.time_ns() // 1_000
        if frontend.restoring.begin(stored, wall, now):
            yield "what is stored is from a time when this machine had no clock: it counts as stored just now"
        join(stored)
        with without_collector():
            frontend.restoring.restore(stored, now)
        if stored.clock > wall:
            yield f"the clock is {(stored.clock - wall) // 1_000_000} s behind what was kept: expiry goes on from there"
        if self.worker.found is not None:
            for damage in self.worker.found.damage:
                yield f"the journal is damaged: {damage}"
        if stored.invalid:
            yield f"{stored.invalid} records of the journal are not understood: written by another version?"
        yield from frontend.restoring.complaints
        if (file := self.folder / "blocked.json").exists():
            from edgebroker.world.blocklist import take_back  # for who has kept somebody out

            unix_s = (now + frontend.keeping.clock) // SECOND
            yield from take_back(file, frontend.connecting.blocked, unix_s, now)
        if reason := self.worker.work_off(now):
            yield f"the journal cannot be written: {reason}"
        self._frontend, self._turned = frontend, turned
        frontend.keeping.wake = self._wake
        self._stored = Stored()

    def close(self) -> str:
        """Write what waits, and the mark of a clean end. Returns "" or why that failed. It may be called once."""
        if self._frontend is not None:
            self._frontend.keeping.wake = lambda: None
        return self.worker.close(clock())

    def _wake(self) -> None:
        assert self._frontend is not None
        work = self._frontend.keeping.take(clock())
        if work is not None:
            self.worker.begin(work, self._ended)

    def _ended(self, work: Work, reason: str) -> None:
        frontend = self._frontend
        assert frontend is not None
        if self.worker.files.has_lost:  # what stood there is known here: it is said again, elsewhere
            self.worker.files.has_lost = False
            self.journal.want_snapshot(is_lost=True)
        if reason:
            frontend.disk_failed(work, reason, clock())
        else:
            frontend.synced(work, clock())
        self.worker.note_wear(clock())
        self._turned()
