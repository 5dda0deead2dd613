"""The journal store of a gateway when its files are taken away."""

from __future__ import annotations

from pathlib import Path

from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import FrontendOptions
from edgebroker.instants import MINUTE
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node
from edgebroker.runtime.journal.store import Store
from edgebroker.runtime.loop.reactor import clock
from edgebroker.runtime.settings import Settings
from edgebroker.storage.journal.work import WorkPurpose


def test_nothing_is_promised_after_a_segment_was_deleted_until_all_is_on_the_disk_again(tmp_path: Path) -> None:
    store = Store(tmp_path, Settings(), lambda: None)
    journal, files = store.journal, store.worker.files
    frontend = Frontend(Node(Ledger()), FrontendOptions(), lambda: "assigned", journal=journal)
    list(store.restore(frontend, lambda stored: None))
    session_journal = frontend.journal

    def work_off() -> list[tuple[bool, int]]:
        """What was promised after each batch."""
        promised = []
        now = clock() + MINUTE
        while (work := session_journal.take_work(now)) is not None:
            store._on_work_done(work, files.execute(work))
            if work.purpose is WorkPurpose.BATCH:
                promised.append((session_journal.is_refusing, session_journal.synced))
        return promised

    safe = session_journal.append(b"\xfasafe", True, clock())
    assert work_off()[-1] == (False, safe)
    for segment in (tmp_path / "journal").glob("*.ebj"):
        segment.unlink()
    last = session_journal.append(b"\xfalast", True, clock())
    assert work_off() == [(True, safe), (True, safe)], "it was not written, and then it was, but not what was before"
    assert journal.synced >= last
    assert journal.is_refusing
    frontend.fire(clock() + MINUTE)
    assert work_off()[-1] == (False, journal.lsn)
    store.close()
