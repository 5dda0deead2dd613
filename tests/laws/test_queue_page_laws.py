"""P2, P3, P4, P7: queues of which most is on the disk keep what was promised, through crashes and failing disks.

EDGEBROKER_PAGE_RUNS=2000 .venv/bin/pytest tests/laws/test_queue_page_laws.py      as many as wanted
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import pytest

from edgebridge.frontend.journal import queue_pager as queue_pager_module
from edgebridge.frontend.journal.queue_pager import QueuePager
from edgebridge.session.queue.page import QueuePage
from edgebridge.session.session import Session
from edgebroker.storage.journal import page_files as page_files_module
from edgebroker.storage.journal.page_files import PageFiles
from edgebroker.storage.journal.work import Fill
from edgelab.simworld.workload import Workload

RUNS = int(os.environ.get("EDGEBROKER_PAGE_RUNS", "60"))
ACTIONS = 150
PARTS = 4
PAGE_MESSAGES = (1, 2, 4)


def broken_promises(seed: int, disk_fails: float = 0.0) -> tuple[list[str], int]:
    """What a run broke, and how many pages it wrote."""
    workload = Workload(seed, is_stored=True, disk_fails=disk_fails, page_messages=PAGE_MESSAGES[seed % 3])
    outcome = workload.run(ACTIONS)
    journal = workload.broker.frontend.journal.storage
    assert journal is not None
    return outcome.broken + journal.pages.damage, workload.broker.frontend.pager.last_page


@pytest.mark.slow
@pytest.mark.parametrize("disk_fails", [0.0, 0.03], ids=["power", "power-and-disk"])
@pytest.mark.parametrize("part", range(PARTS))
def test_what_lies_in_pages_keeps_every_promise(seed: int, part: int, disk_fails: float) -> None:
    pages = 0
    for number in range(seed + part, seed + part + RUNS, PARTS):
        broken, written = broken_promises(number, disk_fails)
        pages += written
        repeat = f"EDGEBROKER_TEST_SEED={number} EDGEBROKER_PAGE_RUNS=1 .venv/bin/pytest {__file__}"
        assert not broken, "\n".join([repeat, *broken[:20]])
    assert pages > RUNS // PARTS


def names_a_page_before_it_is_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(page_files_module, "Sync", lambda name: Fill(name, 0, 0))


def removes_a_page_before_its_messages_are_on_disk(patch: pytest.MonkeyPatch) -> None:
    remove = PageFiles.remove
    patch.setattr(PageFiles, "remove", lambda self, number, size, after=0: remove(self, number, size))


def forgets_to_restate(patch: pytest.MonkeyPatch) -> None:
    record = queue_pager_module.unpaged_record
    patch.setattr(queue_pager_module, "unpaged_record", lambda one, page, clock, content=b"": record(one, page, clock))


def does_not_name_the_page(patch: pytest.MonkeyPatch) -> None:
    record = queue_pager_module.paged_record
    patch.setattr(
        queue_pager_module,
        "paged_record",
        lambda session, page, clock, copies=(): record(0, page, clock, copies),
    )


def leaves_the_copies_in_the_journal(patch: pytest.MonkeyPatch) -> None:
    record = queue_pager_module.paged_record
    patch.setattr(queue_pager_module, "paged_record", lambda one, page, clock, copies=(): record(one, page, clock))


def reads_pages_from_the_end(patch: pytest.MonkeyPatch) -> None:
    prepare = QueuePager.prepare

    def prepare_last(self: QueuePager, session: Session) -> bool:
        if session.outbox.pages and not any(page.is_requested for page in session.outbox.pages):
            session.outbox.pages.insert(0, session.outbox.pages.pop())
        return prepare(self, session)

    patch.setattr(QueuePager, "prepare", prepare_last)


def gives_other_numbers_to_what_is_read(patch: pytest.MonkeyPatch) -> None:
    record = queue_pager_module.paged_record

    def shifted(one: int, page: QueuePage, clock: int, copies: Sequence[int] = ()) -> bytes:
        page.first += 1
        return record(one, page, clock, copies)

    patch.setattr(queue_pager_module, "paged_record", shifted)


MISTAKES: list[Callable[[pytest.MonkeyPatch], None]] = [
    names_a_page_before_it_is_synced,
    removes_a_page_before_its_messages_are_on_disk,
    forgets_to_restate,
    does_not_name_the_page,
    leaves_the_copies_in_the_journal,
    reads_pages_from_the_end,
    gives_other_numbers_to_what_is_read,
]
"""Mistakes that the pager could have: the runs above must notice each of them."""


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_the_law_notices(mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    for number in range(200):
        broken, _ = broken_promises(number)
        if broken:
            return
    raise AssertionError("no run noticed it")
