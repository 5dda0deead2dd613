"""A journal on a simulated disk: what a broker's process does with its files, on virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from edgebridge.frontend.frontend import Frontend
from edgebridge.session.journal.state import JournalState
from edgebroker.limits import KIB, MIB
from edgebroker.storage.journal.format import STORE_BYTES
from edgebroker.storage.journal.journal import Journal
from edgebroker.storage.journal.options import JournalOptions
from edgebroker.storage.journal.recovery import recover_rows
from edgebroker.storage.journal.work import DiskWork
from edgelab.simworld.disk import Disk, DiskFailed
from edgelab.simworld.simulation import Simulation

OPTIONS: Final = JournalOptions(segment_bytes=16 * KIB, snapshot_min_bytes=16 * KIB, bytes_max=64 * MIB)
"""Small, so that segments and snapshots change often."""
WALL: Final = 1_800_000_000_000_000
"""The wall clock when virtual time begins, in microseconds since 1970: January 2027."""
PPM: Final = 1_000_000


class SimulatedStore:
    """The disk of one broker, over all its runs. `boot`, then `serve`; `crash`, and `boot` again."""

    def __init__(self, simulation: Simulation, options: JournalOptions = OPTIONS) -> None:
        self._simulation = simulation
        self._options = options
        self.disk = Disk(simulation.random)
        self.is_writing = False
        self.wall = WALL
        """What the machine's wall clock says when virtual time begins; it is read when a run begins."""
        self.drift_ppm = 0
        """How much faster than virtual time it goes, in millionths."""
        self._run = 0

    def boot(self) -> tuple[Journal, JournalState]:
        """A new run: the journal as recovery leaves it, and what it says."""
        self._run += 1
        self.is_writing = False
        stored = JournalState()
        found = recover_rows(self.disk, stored.apply_row)
        stored.is_damaged = found is not None and bool(found.damage)
        stored.finish()
        # Where no file has an intact header left, the journal has no name: it begins anew, as it does on a gateway.
        store = (found and found.store) or self._simulation.random.randbytes(STORE_BYTES)
        return Journal(store, self._options, found), stored

    def serve(self, frontend: Frontend, stored: JournalState) -> None:
        """Give *stored*, what the disk holds, to *frontend*."""
        now = self._simulation.now
        frontend.recovery.begin(stored, self.wall + now + now * self.drift_ppm // PPM, now)

    def begin_work(self, frontend: Frontend, told: Callable[[], None]) -> None:
        """Begin what *frontend* has for the disk, if anything; *told* is called when that is done."""
        work = frontend.journal.take_work(self._simulation.now)
        if work is not None:
            self.is_writing = True
            self._go_on(frontend, work, 0, self._run, told)

    def crash(self, is_power_cut: bool) -> None:
        """The process dies, or the machine does: then what was not synced may be lost."""
        self._run += 1
        self.is_writing = False
        before = self.disk
        self.disk = before.crash() if is_power_cut else before.killed()
        self.disk.sync_fails, self.disk.write_fails = before.sync_fails, before.write_fails

    def _go_on(self, frontend: Frontend, work: DiskWork, index: int, run: int, told: Callable[[], None]) -> None:
        if run != self._run:
            return
        if index == len(work.operations):
            self._end(frontend, work, "", told)
            return
        operation = work.operations[index]

        def do() -> None:
            if run != self._run:
                return
            try:
                self.disk.do(operation)
            except DiskFailed as error:
                self._end(frontend, work, str(error), told)
            else:
                self._go_on(frontend, work, index + 1, run, told)

        self._simulation.after(self.disk.time_for(operation), do)

    def _end(self, frontend: Frontend, work: DiskWork, reason: str, told: Callable[[], None]) -> None:
        self.is_writing = False
        assert frontend.journal.storage is not None
        frontend.journal.storage.space.disk_bytes = self.disk.bytes_left
        if reason:
            frontend.disk_failed(work, reason, self._simulation.now)
        else:
            frontend.synced(work, self._simulation.now)
        told()
