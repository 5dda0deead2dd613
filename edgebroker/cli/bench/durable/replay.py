"""How long recovery takes, without the start of a process: the same pass into the same state, a few times over."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from statistics import median

from edgebridge.session.stored import Stored
from edgebroker.dataclasses import dataclass
from edgebroker.storage.journal.recovery import recover_rows
from edgebroker.world.journalfiles import JournalFiles
from edgebroker.world.store import without_collector

REPLAYS = 3


@dataclass(frozen=True, slots=True)
class Replay:
    """What it took to read a journal: the median of the passes."""

    journal_bytes: int
    """The frames that were read."""
    seconds: float
    cpu_s: float
    copies: int
    """Messages that wait for a session."""

    def per_100_mb(self, seconds: float) -> float:
        """*seconds* as they would be for 100 MB."""
        return seconds / (self.journal_bytes / 1e8)


def replay(folder: Path) -> Replay | None:
    """Read the journal in *folder*; None if there is none, or nothing in it."""
    took, used = [], []
    copies = journal_bytes = 0
    for _ in range(REPLAYS if folder.is_dir() else 0):
        gc.collect()  # the state of the pass before
        with without_collector():
            stored, began, cpu = Stored(), time.perf_counter(), time.thread_time()
            found = recover_rows(JournalFiles(folder), stored.apply_row)
            stored.finish()
            took.append(time.perf_counter() - began)
            used.append(time.thread_time() - cpu)
        copies = sum(len(session.copies) for session in stored.sessions.values())
        journal_bytes = 0 if found is None else found.used_bytes
    return Replay(journal_bytes, median(took), median(used), copies) if journal_bytes else None
