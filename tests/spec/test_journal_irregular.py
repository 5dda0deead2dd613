"""What lies in a journal's folder under the name of a file and is none."""

from __future__ import annotations

import os
from pathlib import Path

from edgebroker.runtime.journal.store import JournalWorker
from edgebroker.runtime.journal.wear import WEAR_FILE
from edgebroker.storage.journal.options import JournalOptions
from edgebroker.storage.journal.segments import slot_name


def test_a_start_does_not_wait_for_the_other_end_of_a_fifo(tmp_path: Path) -> None:
    """To open one, or to read it, takes as long as nobody comes, and no signal is heard meanwhile."""
    for name in (WEAR_FILE, slot_name(1)):
        os.mkfifo(tmp_path / name)
    worker = JournalWorker(tmp_path, JournalOptions(), lambda lsn, records: None)
    assert worker.wear.written.bytes == 0
    worker.journal.append(b"one", 0)
    assert worker.run_due(10_000_000) == f"{tmp_path / slot_name(1)} is no regular file; take it away"
    assert worker.run_due(20_000_000) == "", "it goes on under the next name"
    assert worker.journal.synced == worker.journal.lsn
    assert worker.close(30_000_000) == ""
