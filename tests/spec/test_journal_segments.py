"""Segments that a snapshot made superfluous are recycled, and their space is used again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgebroker.storage.journal.recovery import recover
from edgebroker.storage.journal.work import SetAside, Sync, Write

from ..support.journal_on_simulated_disk import SMALL, Bench, next_batch


def test_what_a_snapshot_freed_is_used_by_the_next_run_if_the_header_that_says_so_was_synced() -> None:
    bench = Bench()
    bench.say(*[b"x" * 3_000] * 4)
    first = {segment.name for segment in bench.journal.segments.live}
    bench.journal.begin_snapshot(bench.now)
    bench.say(b"all")
    bench.journal.end_snapshot(bench.now)
    header = next_batch(bench.journal, bench.now)
    for operation in header.operations:
        if not isinstance(operation, Sync):
            bench.disk.do(operation)
    written = bench.disk.killed()  # and it may still be lost, if the power fails now
    for operation in header.operations:
        bench.disk.do(operation)
    bench.journal.done(header, bench.now)
    bench.say(b"behind it")
    for image, is_sure in (written, False), (bench.disk.killed(), True):
        found = recover(image, lambda lsn, record: None)
        assert found is not None
        assert (found.replay_from, found.proven_from) == (5, 5 if is_sure else 1)
        again = Bench(disk=image, found=found)
        again.journal.append(b"x", 0)
        operations = next_batch(again.journal, 0).operations
        [name] = [operation.name for operation in operations if isinstance(operation, Write)]
        assert (name in first) is is_sure


@pytest.mark.parametrize("is_broken", [False, True])
def test_room_is_freed_although_something_cannot_be_set_aside(is_broken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk it cannot be, as long as nothing else is removed. Commits go on, and it is tried again."""
    bench = Bench(replace(SMALL, free_max=0))
    bench.say(*[b"x" * 3_000] * 12)
    bench.disk.flip(bench.journal.segments.live[0].name, 8 * (1_024 + 36 + 8 + 10))
    found = recover(bench.disk, lambda lsn, record: None)
    again = Bench(replace(SMALL, free_max=0), bench.disk, found)
    journal, disk = again.journal, again.disk
    journal.begin_snapshot(0)
    again.say(b"all")
    journal.end_snapshot(0)
    tries = 0
    if is_broken:
        rotation = next_batch(journal, 0)
        journal.failed(rotation, "Input/output error", 0)
    while journal.space.bytes_left(0) and (now := journal.due()) is not None and tries < 3:
        work = journal.next_work(now)
        assert work is not None
        for operation in work.operations:
            if isinstance(operation, SetAside):
                tries += 1
                journal.failed(work, "No space left on device", now)
                break
            disk.do(operation)
        else:
            journal.done(work, now)
    assert tries == 3
    assert journal.synced == journal.lsn
    assert len(disk.names()) == 3, "the one in use, the next one, and the damaged one"
