"""Outboxes of which most is on the disk keep what was promised, through cuts, crashes and failing disks.

EDGEBROKER_LINK_PAGE_TRIALS=20000 .venv/bin/pytest -n 2 tests/laws/test_link_page_laws.py      as many as wanted
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import pytest

from edgebroker.federation.link_pager import LinkPager
from edgebroker.instants import Instant
from edgebroker.overlay.link import outbox as outbox_module
from edgebroker.overlay.link.class_queue import ClassQueue, LinkPage, QueuedMessage
from edgebroker.overlay.link.journal_entries import RepeatedEntries
from edgebroker.overlay.link.journal_records import LinkRecordKind, spent_record, unpaged_record
from edgebroker.overlay.link.outbox import LinkOutbox
from edgebroker.storage.journal import page_files as page_files_module
from edgebroker.storage.journal.page_files import PageFiles
from edgebroker.storage.journal.work import Fill

from .link.trial import Broken, Trial

TRIALS = int(os.environ.get("EDGEBROKER_LINK_PAGE_TRIALS", "24"))
SHARDS = 4
STEPS = 80
MISTAKE_TRIALS = 260
NOTED = {"removes_a_page_before_its_messages_are_on_disk": 253}
"""Mistakes that show late: in the trial with this number. It comes first, the others after it."""
PAGE_MESSAGES = (1, 2, 4)


def trial_of(seed: int) -> Trial:
    """A history with small pages, every second one on disks whose writes fail now and then."""
    return Trial(seed, PAGE_MESSAGES[seed % len(PAGE_MESSAGES)], 0.02 * (seed % 2))


@pytest.mark.parametrize("shard", range(SHARDS))
def test_what_lies_in_pages_arrives_once_and_in_order(shard: int, seed: int) -> None:
    pages = 0
    for number in range(seed + shard, seed + TRIALS, SHARDS):
        trial = trial_of(number)
        try:
            trial.live(STEPS)
        except Broken as broken:
            pytest.fail(f"{broken}\nEDGEBROKER_TEST_SEED={number} EDGEBROKER_LINK_PAGE_TRIALS=1 pytest {__file__}")
        pages += trial.pages
    print(f"{pages} pages")
    assert pages >= TRIALS // SHARDS


def names_a_page_before_it_is_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(page_files_module, "Sync", lambda name: Fill(name, 0, 0))


def removes_a_page_before_its_messages_are_on_disk(patch: pytest.MonkeyPatch) -> None:
    remove = PageFiles.remove
    patch.setattr(PageFiles, "remove", lambda self, number, size, after=0: remove(self, number, size))


def forgets_to_restate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        outbox_module, "unpaged_record", lambda peer, page, written_at, content: unpaged_record(peer, page, 0, b"")
    )


def does_not_name_the_page(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outbox_module, "paged_record", lambda peer, page, clock: spent_record(peer, 0, 0))


def leaves_pages_out_of_snapshots(patch: pytest.MonkeyPatch) -> None:
    records = LinkOutbox.records

    def without_pages(self: LinkOutbox, repeated: RepeatedEntries) -> Iterable[bytes]:
        return [record for record in records(self, repeated) if record[0] != LinkRecordKind.PAGED]

    patch.setattr(LinkOutbox, "records", without_pages)


def reads_pages_from_the_end(patch: pytest.MonkeyPatch) -> None:
    prepare = LinkPager.prepare

    def prepare_last(self: LinkPager, now: Instant) -> bool:
        for link in self.paged:
            if not any(page.is_requested for page in link.outbox.backlog.pages):
                link.outbox.backlog.pages.rotate(1)
        return prepare(self, now)

    patch.setattr(LinkPager, "prepare", prepare_last)


def lets_live_events_overtake_pages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outbox_module, "page_flows", lambda entries: b"")


def lets_new_events_overtake_pages(patch: pytest.MonkeyPatch) -> None:
    push = ClassQueue.push

    def push_in_front(self: ClassQueue, entry: QueuedMessage) -> None:
        pages, self.pages = self.pages, type(self.pages)()
        push(self, entry)
        self.pages = pages

    patch.setattr(ClassQueue, "push", push_in_front)


def drops_what_waits_between_pages(patch: pytest.MonkeyPatch) -> None:
    restore_page = ClassQueue.restore_page

    def restore(self: ClassQueue, page: LinkPage) -> None:
        restore_page(self, page)
        if len(self.pages) > 1 and self.pages[-2].entries is not None:
            self.give_up(self.pages[-2])

    patch.setattr(ClassQueue, "restore_page", restore)


MISTAKES: list[Callable[[pytest.MonkeyPatch], None]] = [
    names_a_page_before_it_is_synced,
    removes_a_page_before_its_messages_are_on_disk,
    forgets_to_restate,
    does_not_name_the_page,
    leaves_pages_out_of_snapshots,
    reads_pages_from_the_end,
    lets_live_events_overtake_pages,
    lets_new_events_overtake_pages,
    drops_what_waits_between_pages,
]
"""Mistakes that the pager could have: the trials above must notice each of them."""


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_the_law_notices(mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    first = NOTED.get(mistake.__name__, 0)
    for number in (*range(first, MISTAKE_TRIALS), *range(first)):
        try:
            trial_of(number).live(STEPS)
        except Broken as broken:
            print(f"noticed in trial {number}: {broken}")
            return
    pytest.fail(f"{MISTAKE_TRIALS} trials notice nothing")
