"""What a gateway's store does when something of it is taken away."""

from __future__ import annotations

from pathlib import Path

from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.terms import Terms
from edgebroker.instants import MINUTE
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node
from edgebroker.storage.journal.work import Purpose
from edgebroker.world.reactor import clock
from edgebroker.world.settings import Settings
from edgebroker.world.store import Store


def test_nothing_is_promised_after_a_segment_was_deleted_until_all_is_on_the_disk_again(tmp_path: Path) -> None:
    store = Store(tmp_path, Settings())
    journal, files = store.journal, store.worker.files
    frontend = Frontend(Node(Ledger()), Terms(), lambda: "assigned", journal=journal)
    list(store.restore(frontend, lambda: None, lambda stored: None))
    keeping = frontend.keeping
    keeping.wake = lambda: None  # the test carries out what is to be done

    def work_off() -> list[tuple[bool, int]]:
        """What was promised after each batch."""
        promised = []
        now = clock() + MINUTE
        while (work := keeping.take(now)) is not None:
            store._ended(work, files.carry_out(work))
            if work.purpose is Purpose.BATCH:
                promised.append((keeping.is_refusing, keeping.synced))
        return promised

    safe = keeping.append(b"\xfasafe", True, clock())
    assert work_off()[-1] == (False, safe)
    for segment in (tmp_path / "journal").glob("*.ebj"):
        segment.unlink()
    last = keeping.append(b"\xfalast", True, clock())
    assert work_off() == [(True, safe), (True, safe)], "it was not written, and then it was, but not what was before"
    assert journal.synced >= last
    assert journal.is_refusing
    frontend.fire(clock() + MINUTE)
    assert work_off()[-1] == (False, journal.lsn)
    store.close()
