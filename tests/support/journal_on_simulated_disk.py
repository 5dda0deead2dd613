"""A journal whose work is done at once on a simulated disk."""

from __future__ import annotations

from random import Random

from edgebroker.storage.journal.journal import Journal
from edgebroker.storage.journal.options import JournalOptions
from edgebroker.storage.journal.recovery import recover
from edgebroker.storage.journal.recovery_report import RecoveryReport
from edgebroker.storage.journal.work import DiskWork, WorkPurpose
from edgelab.simworld.disk import Disk

STORE = b"sixteen bytes..."
SMALL = JournalOptions(segment_bytes=8_192, batch_bytes=4_000, batch_records=10, snapshot_min_bytes=16_384)


class Bench:
    """A journal whose work is done at once on a simulated disk."""

    def __init__(
        self, options: JournalOptions = SMALL, disk: Disk | None = None, found: RecoveryReport | None = None
    ) -> None:
        self.disk = Disk(Random(1)) if disk is None else disk
        self.journal = Journal(STORE, options, found)
        self.now = 0

    def work(self) -> list[DiskWork]:
        """Do all that is due now; returns it."""
        done = []
        while (due := self.journal.due()) is not None and due <= self.now:
            work = self.journal.next_work(self.now)
            assert work is not None
            for operation in work.operations:
                self.disk.do(operation)
            self.journal.done(work, self.now)
            done.append(work)
        return done

    def say(self, *records: bytes) -> None:
        """Append *records* and let them be synced."""
        for record in records:
            self.journal.append(record, self.now)
        self.now += 10_000
        self.work()
        assert self.journal.synced == self.journal.lsn

    def recovered(self) -> tuple[RecoveryReport, dict[int, bytes]]:
        """What a power cut now would leave."""
        given: dict[int, bytes] = {}
        found = recover(self.disk.crash(), given.__setitem__)
        assert found is not None
        return found, given


def next_batch(journal: Journal, now: int) -> DiskWork:
    """The next work that writes records; whatever comes before it succeeds."""
    while (work := journal.next_work(now)) is not None and work.purpose is not WorkPurpose.BATCH:
        journal.done(work, now)
    assert work is not None
    return work
