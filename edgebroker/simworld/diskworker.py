"""The world's part for a journal on virtual time: what `edgebroker.world.journalfiles` does on real files."""

from __future__ import annotations

from collections.abc import Callable

from edgebroker.instants import Instant
from edgebroker.storage.journal.journal import Journal
from edgebroker.storage.journal.work import Work

from .disk import Disk, DiskFailed
from .simulation import Simulation


def nothing() -> None:
    """What is done where nobody listens."""


class DiskWorker:
    """Takes what is due from a journal, does it on a disk, and tells the journal when that is over.

    Call `look` after everything that may have appended something. `told` is called when a work is over.
    """

    def __init__(
        self, simulation: Simulation, journal: Journal, disk: Disk, told: Callable[[], None] = nothing
    ) -> None:
        self.simulation = simulation
        self.journal = journal
        self.disk = disk
        self.is_stopped = False
        """The process died: nothing is taken any more, and nobody is told."""
        self._told = told
        self._planned: Instant | None = None

    def look(self) -> None:
        """See what is due, now or later."""
        if self.is_stopped:
            return
        now, due = self.simulation.now, self.journal.due()
        if due is None:
            return
        if due > now:
            if self._planned is None or due < self._planned:
                self._planned = due
                self.simulation.at(due, self._ring)
            return
        work = self.journal.take(now)
        if work is not None:
            self._go_on(work, 0)

    def _ring(self) -> None:
        if self._planned is not None and self._planned <= self.simulation.now:
            self._planned = None
        self.look()

    def _go_on(self, work: Work, index: int) -> None:
        """Do the operation *index* of *work* when its time is over, and then the next."""
        if self.is_stopped:
            return
        if index == len(work.operations):
            self._end(work, "")
        else:
            took = self.disk.time_for(work.operations[index])
            self.simulation.after(took, lambda: self._do(work, index))

    def _do(self, work: Work, index: int) -> None:
        if self.is_stopped:
            return
        try:
            self.disk.do(work.operations[index])
        except DiskFailed as error:
            self._end(work, str(error))
        else:
            self._go_on(work, index + 1)

    def _end(self, work: Work, reason: str) -> None:
        self.journal.room.disk_bytes = self.disk.bytes_left
        if reason:
            self.journal.failed(work, reason, self.simulation.now)
        else:
            self.journal.done(work, self.simulation.now)
        self._told()
        self.look()
