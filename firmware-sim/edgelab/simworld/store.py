"""A journal on a simulated disk: does on virtual time what a broker's process does with its files."""

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
"""The wall clock at the start of virtual time, in microseconds since 1970: January 2027."""
PPM: Final = 1_000_000


class SimulatedStore:
    """The disk of one broker, over all its runs. `boot`, then `serve`; `crash`, and `boot` again."""

    def __init__(self, simulation: Simulation, options: JournalOptions = OPTIONS) -> None:
        self._simulation = simulation
        self._options = options
        self.disk = Disk(simulation.random)
        self.is_writing = False
        self.wall = WALL
        """The machine's wall clock at the start of virtual time; it is read when a run begins."""
        self.drift_ppm = 0
        """The drift of the clock against virtual time, in millionths."""
        self._run = 0

    def boot(self) -> tuple[Journal, JournalState]:
        """Start a new run: return the journal after recovery, and the recovered state."""
        self._run += 1
        self.is_writing = False
        stored = JournalState()
        report = recover_rows(self.disk, stored.apply_row)
        stored.is_damaged = report is not None and bool(report.damage)
        stored.finish()
        # If no file has an intact header, the journal has no name: a new one begins, as on a gateway.
        store = (report and report.store) or self._simulation.random.randbytes(STORE_BYTES)
        journal = Journal(store, self._options, report)
        journal.pages.found = self.disk.page_sizes()
        return journal, stored

    def serve(self, frontend: Frontend, stored: JournalState) -> None:
        """Give *stored*, what the disk holds, to *frontend*."""
        now = self._simulation.now
        frontend.recovery.begin(stored, self.wall + now + now * self.drift_ppm // PPM, now)

    def begin_work(self, frontend: Frontend, on_done: Callable[[], None]) -> None:
        """Begin what *frontend* has for the disk, if anything; *on_done* is called when that is done."""
        work = frontend.journal.take_work(self._simulation.now)
        if work is not None:
            self.is_writing = True
            self._continue(frontend, work, 0, self._run, on_done)

    def crash(self, is_power_cut: bool) -> None:
        """Kill the process, or cut the power: then unsynced writes may be lost."""
        self._run += 1
        self.is_writing = False
        old_disk = self.disk
        self.disk = old_disk.crash() if is_power_cut else old_disk.killed()
        self.disk.sync_fails, self.disk.write_fails = old_disk.sync_fails, old_disk.write_fails

    def _continue(self, frontend: Frontend, work: DiskWork, index: int, run: int, on_done: Callable[[], None]) -> None:
        if run != self._run:
            return
        if index == len(work.operations):
            self._end(frontend, work, "", on_done)
            return
        operation = work.operations[index]

        def execute() -> None:
            if run != self._run:
                return
            try:
                self.disk.do(operation, work.read_data)
            except DiskFailed as error:
                self._end(frontend, work, str(error), on_done)
            else:
                self._continue(frontend, work, index + 1, run, on_done)

        self._simulation.after(self.disk.time_for(operation), execute)

    def _end(self, frontend: Frontend, work: DiskWork, reason: str, on_done: Callable[[], None]) -> None:
        self.is_writing = False
        assert frontend.journal.storage is not None
        frontend.journal.storage.space.disk_bytes = self.disk.bytes_left
        if reason:
            frontend.disk_failed(work, reason, self._simulation.now)
        else:
            frontend.synced(work, self._simulation.now)
        on_done()
