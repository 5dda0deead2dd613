"""The journal's decisions: when records go to the disk, what a failure means, and what a snapshot frees."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from edgebroker.limits import JOURNAL_RECORD_BYTES_MAX
from edgebroker.storage.journal.journal import LOST, RETRY_US, RETRY_US_MAX, Journal
from edgebroker.storage.journal.recovery import recover
from edgebroker.storage.journal.recovery_report import CorruptRange, RecoveryReport
from edgebroker.storage.journal.work import (
    Create,
    DiskWork,
    Fill,
    SetAside,
    Sync,
    SyncControl,
    SyncFolder,
    WorkPurpose,
    Write,
    WriteControl,
)
from edgelab.simworld.disk import Disk
from edgelab.simworld.linked import DiskWorker
from edgelab.simworld.simulation import Simulation

from ..support.journal_on_simulated_disk import SMALL, STORE, Bench, next_batch


def batches(works: list[DiskWork]) -> list[DiskWork]:
    return [work for work in works if work.purpose is WorkPurpose.BATCH]


def test_records_go_to_the_disk_together_after_the_commit_time() -> None:
    journal = Journal(STORE, SMALL)
    assert [journal.append(b"a", 1_000), journal.append(b"b", 3_000)] == [1, 2]
    bench = Bench()
    bench.journal = journal
    bench.now = 1_000
    bench.work()  # room for the first segment is made meanwhile
    assert journal.synced == 0
    bench.now = 5_999
    assert not batches(bench.work())
    bench.now = 6_000
    (work,) = batches(bench.work())
    assert (work.upto, journal.synced) == (2, 2)


@pytest.mark.parametrize("records", [[b"r"] * 10, [b"x" * 3_990]])
def test_enough_records_do_not_wait(records: list[bytes]) -> None:
    journal = Journal(STORE, SMALL)
    for record in records[:-1]:
        journal.append(record, 100)
    journal.append(records[-1], 200)
    due = journal.due()
    assert due is not None
    assert due <= 200


def test_who_can_wait_longer_says_by_when() -> None:
    bench = Bench()
    bench.say(b"first")
    bench.now += 1_000_000
    bench.work()
    bench.journal.append(b"later", bench.now, by=bench.now + 500_000)
    assert bench.journal.due() == bench.now + 500_000
    bench.journal.append(b"sooner", bench.now)
    assert bench.journal.due() == bench.now + SMALL.commit_us


def test_one_work_is_under_way_at_a_time() -> None:
    journal = Journal(STORE, SMALL)
    journal.append(b"a", 0)
    work = journal.next_work(0)
    assert work is not None
    journal.append(b"b", 0)
    assert journal.next_work(9_000_000) is None
    assert journal.due() is None
    journal.done(work, 10)
    with pytest.raises(ValueError, match="not under way"):
        journal.done(work, 10)


@pytest.mark.parametrize("size", [0, JOURNAL_RECORD_BYTES_MAX + 1])
def test_records_have_bounds(size: int) -> None:
    with pytest.raises(ValueError, match="1 to"):
        Journal(STORE).append(bytes(size), 0)


def test_a_batch_is_written_and_synced_and_nothing_else() -> None:
    bench = Bench()
    bench.say(b"first")
    bench.journal.append(b"a", bench.now)
    bench.now += 10_000
    (work,) = batches(bench.work())
    assert [type(operation) for operation in work.operations] == [Write, Sync]
    write = work.operations[0]
    assert isinstance(write, Write)
    assert write.offset % 512 == len(write.data) % 512 == 0


def test_a_record_larger_than_a_segment_gets_a_segment_of_its_own() -> None:
    bench = Bench()
    bench.say(b"before", b"L" * 100_000, b"behind")
    found, given = bench.recovered()
    assert [len(record) for record in given.values()] == [6, 100_000, 6]
    assert [segment.bytes for segment in found.segments][1] > 100_000


def test_after_a_failed_sync_everything_goes_to_a_new_segment() -> None:
    bench = Bench()
    journal = bench.journal
    bench.say(b"safe")
    old = journal.segments.live[-1].name
    journal.append(b"in danger", bench.now)
    work = next_batch(journal, bench.now + 5_000)
    journal.failed(work, "Input/output error", bench.now)
    assert (journal.is_refusing, journal.refusal_reason, journal.synced) == (True, "Input/output error", 1)
    journal.append(b"meanwhile", bench.now)
    assert journal.due() == bench.now + RETRY_US
    assert journal.next_work(bench.now + RETRY_US - 1) is None
    bench.now += RETRY_US
    works = batches(bench.work())
    assert not any(getattr(operation, "name", "") == old for operation in works[0].operations)
    assert (journal.is_refusing, journal.refusal_reason, journal.synced) == (False, "", 3)
    assert list(bench.recovered()[1].values()) == [b"safe", b"in danger", b"meanwhile"]


@pytest.mark.parametrize("is_begun", [False, True])
def test_after_a_segment_was_taken_away_nothing_is_promised_until_all_is_stated_again(is_begun: bool) -> None:
    """A snapshot that was begun before does not count: some of it stood there."""
    bench = Bench()
    journal = bench.journal
    bench.say(b"session")
    if is_begun:
        journal.begin_snapshot(bench.now)
        bench.say(b"half of the state")
    journal.append(b"in danger", bench.now)
    work = next_batch(journal, bench.now + 5_000)
    journal.request_snapshot(is_lost=True)
    journal.failed(work, "slot was taken away", bench.now)
    bench.now += RETRY_US
    bench.work()
    if is_begun:
        bench.say(b"the other half")
        journal.end_snapshot(bench.now)
        bench.work()
    assert (journal.synced, journal.durable_lsn) == (journal.lsn, 1 + is_begun)
    assert (journal.is_refusing, journal.refusal_reason, journal.is_full, journal.replay_from) == (True, LOST, False, 1)
    work = journal.append(b"again", bench.now) and next_batch(journal, bench.now + 5_000)
    journal.request_snapshot(is_lost=True)
    journal.failed(work, "slot was taken away", bench.now)
    bench.now += RETRY_US
    bench.work()
    assert (journal.synced, journal.durable_lsn) == (journal.lsn, 1 + is_begun)
    assert journal.wants_snapshot
    first = journal.begin_snapshot(bench.now)
    bench.say(b"session again")
    assert journal.is_refusing, "it is on the disk, and no header says so"
    journal.end_snapshot(bench.now)
    bench.work()
    assert (journal.is_refusing, journal.refusal_reason, journal.replay_from) == (False, "", first)
    assert journal.durable_lsn == journal.lsn


def test_the_pause_between_tries_doubles_up_to_a_bound() -> None:
    journal = Journal(STORE, SMALL)
    journal.append(b"a", 0)
    now, pauses = 0, []
    for _ in range(12):
        journal.failed(next_batch(journal, now), "No space left on device", now)
        again = journal.due()
        assert again is not None
        pauses.append(again - now)
        now = again
    assert pauses[:3] == [RETRY_US, 2 * RETRY_US, 4 * RETRY_US]
    assert pauses[-1] == RETRY_US_MAX


def test_a_snapshot_frees_the_segments_before_it() -> None:
    bench = Bench()
    journal = bench.journal
    while not journal.wants_snapshot:
        bench.say(b"x" * 1_000)
    before = len(journal.segments.live)
    first = journal.begin_snapshot(bench.now)
    assert first == journal.lsn + 1
    assert not journal.wants_snapshot
    bench.say(b"the whole state")
    journal.end_snapshot(bench.now)
    bench.work()
    assert journal.replay_from == first
    assert len(journal.segments.live) == 2 < before
    assert list(bench.recovered()[1].values()) == [b"the whole state"]


def test_replay_begins_with_a_snapshot_only_when_all_of_it_is_on_the_disk() -> None:
    bench = Bench()
    bench.say(b"old")
    bench.journal.begin_snapshot(bench.now)
    bench.say(b"half of the state")
    assert list(bench.recovered()[1].values()) == [b"old", b"half of the state"]
    bench.journal.append(b"the other half", bench.now)
    bench.journal.end_snapshot(bench.now)
    assert list(bench.recovered()[1].values()) == [b"old", b"half of the state"]
    bench.now += 10_000
    bench.work()
    assert list(bench.recovered()[1].values()) == [b"half of the state", b"the other half"]


def test_segments_are_used_again() -> None:
    bench = Bench()
    names = set()
    for _ in range(300):
        if bench.journal.wants_snapshot:
            bench.journal.begin_snapshot(bench.now)
            bench.journal.append(b"all", bench.now)
            bench.journal.end_snapshot(bench.now)
        bench.say(b"x" * 1_000)
        names |= set(bench.disk.files)
    assert bench.journal.segments.next_sequence > 30
    assert len(names) < 12


def test_a_full_journal_refuses_until_a_snapshot_has_freed_segments() -> None:
    bench = Bench(replace(SMALL, bytes_max=5 * 8_192, snapshot_min_bytes=1 << 30))
    journal = bench.journal
    while not journal.is_refusing:
        bench.say(b"x" * 1_000)
    assert "the limit is 40960" in journal.refusal_reason
    assert journal.wants_snapshot
    journal.begin_snapshot(bench.now)
    bench.say(b"all")
    journal.end_snapshot(bench.now)
    bench.work()
    assert (journal.is_refusing, journal.refusal_reason) == (False, "")


def test_room_is_made_before_it_is_needed_and_its_failure_is_only_a_warning() -> None:
    bench = Bench()
    bench.say(b"x" * 3_000)
    bench.now += 60_000
    (work,) = bench.work()
    assert work.purpose is WorkPurpose.ROOM
    assert {type(operation) for operation in work.operations} >= {Create, Fill, Sync}
    assert bench.journal.segments.free
    journal = Bench().journal
    work_ = journal.next_work(0)
    assert work_ is not None
    journal.failed(work_, "No space left on device", 0)
    assert not journal.is_refusing
    assert "No space left on device" in journal.warning


def test_room_that_was_made_is_there_for_the_next_run() -> None:
    bench = Bench()
    bench.say(b"x" * 3_000)
    for _ in range(5):
        bench.now += 60_000
        bench.work()
    [room] = bench.journal.segments.free
    found = recover(bench.disk.killed(), lambda lsn, record: None)
    assert found is not None
    assert found.free == {room: 8_192}
    again = Bench(disk=bench.disk.killed(), found=found)
    again.journal.append(b"more", 0)
    work = next_batch(again.journal, 0)
    assert [type(operation) for operation in work.operations] == [
        Fill,
        Write,
        Sync,
        SyncFolder,
        WriteControl,
        SyncControl,
    ]
    assert work.operations[0] == Fill(room, 4_096, 4_096), "only its end, which perhaps was never synced"
    assert isinstance(work.operations[1], Write)
    assert work.operations[1].name == room


def test_a_clean_end_is_marked() -> None:
    bench = Bench()
    bench.say(b"a")
    assert not bench.recovered()[0].is_clean
    bench.journal.append(b"b", bench.now)
    bench.journal.close(bench.now)
    bench.work()
    assert bench.journal.is_closed
    found, given = bench.recovered()
    assert (found.is_clean, found.unproven, list(given.values())) == (True, [], [b"a", b"b"])


def test_a_journal_in_which_nothing_was_written_closes_at_once() -> None:
    journal = Journal(STORE)
    journal.close(0)
    assert journal.is_closed
    assert journal.due() is None


def test_the_next_run_goes_on_with_the_numbers_and_writes_what_is_unproven_again() -> None:
    bench = Bench()
    bench.say(b"a")
    bench.say(b"b")
    image = bench.disk.killed()
    found = recover(image, lambda lsn, record: None)
    assert found is not None
    again = Bench(disk=image, found=found)
    assert (again.journal.lsn, again.journal.synced, again.journal.due()) == (2, 1, 0)
    again.say(b"c")
    assert list(again.recovered()[1].items()) == [(1, b"a"), (2, b"b"), (3, b"c")]


def test_a_damaged_segment_is_set_aside_when_it_is_not_needed_any_more() -> None:
    bench = Bench()
    bench.say(b"first" * 20)
    bench.say(b"second" * 20)
    bench.say(b"third" * 20)
    name = bench.journal.segments.live[0].name
    bench.disk.flip(name, 8 * (1_024 + 36 + 8 + 10))
    found = recover(bench.disk, lambda lsn, record: None)
    assert found is not None
    assert [(damage.name, damage.first_lsn, damage.last_lsn) for damage in found.damage] == [(name, 1, 1)]
    again = Bench(disk=bench.disk, found=found)
    assert again.journal.wants_snapshot
    again.journal.begin_snapshot(0)
    again.say(b"all that is left")
    again.journal.end_snapshot(again.now)
    again.now += 60_000
    works = again.work()
    aside = [operation for work in works for operation in work.operations if isinstance(operation, SetAside)]
    assert [operation.name for operation in aside] == [name]
    assert again.recovered()[0].damage == []


def test_where_nothing_was_intact_the_new_journal_begins_one_segment() -> None:
    """Its snapshot begins with the first record: segments that were to say so were begun without end."""
    bench = Bench(
        found=RecoveryReport(
            b"", damage=[CorruptRange("segment-0001.ebj", 0, 0, 0, "no header and no frame is intact")]
        )
    )
    assert bench.journal.wants_snapshot
    bench.journal.begin_snapshot(0)
    bench.journal.append(b"state", 0)
    bench.journal.end_snapshot(0)
    begun = 0
    while begun < 5 and (work := bench.journal.next_work(bench.now)) is not None:
        begun += work.purpose is WorkPurpose.BATCH
        for operation in work.operations:
            bench.disk.do(operation)
        bench.now += 60_000
        bench.journal.done(work, bench.now)
    assert (begun, len(bench.journal.segments.live)) == (1, 1)
    assert not bench.journal.wants_snapshot
    assert bench.recovered()[1] == {1: b"state"}


def test_a_file_that_ends_early_is_damaged() -> None:
    """All of a segment's room is synced together with its first frame, so a crash does not shorten it."""
    bench = Bench()
    bench.say(b"first")
    bench.say(b"second")
    image = bench.disk.killed()
    name = bench.journal.segments.live[0].name
    del image.files[name].cache[2_048:]
    found = recover(image, lambda lsn, record: None)
    assert found is not None
    assert [(damage.offset, damage.what) for damage in found.damage] == [
        (2_048, "the file ends here, and had 8,192 bytes")
    ]


def test_a_flipped_bit_stays_flipped_when_the_cache_is_written() -> None:
    disk = Disk(Random(1))
    disk.do(Create("a"))
    disk.do(Write("a", 0, bytes(1_024)))
    disk.flip("a", 8 * 600)
    disk.do(Sync("a"))
    disk.do(SyncFolder())
    assert disk.crash().read("a") == disk.read("a") == bytes(600) + b"\1" + bytes(423)


def test_virtual_time_carries_a_journal() -> None:
    simulation = Simulation(1)
    journal = Journal(STORE, SMALL)
    told: list[int] = []
    worker = DiskWorker(simulation, journal, Disk(simulation.random), lambda: told.append(journal.synced))
    for at in range(0, 100_000, 1_000):
        simulation.at(at, lambda: (journal.append(b"record", simulation.now), worker.poll()))
    simulation.run_until(200_000)
    assert journal.synced == journal.lsn == 100
    assert told == sorted(told)
    assert 10 < len(set(told)) < 40


@pytest.mark.parametrize(
    "wrong", [{"segment_bytes": 5_000}, {"commit_us": -1}, {"bytes_max": 8_192}, {"batch_records": 0}]
)
def test_options_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"not a multiple|times are|needs 4 segments"):
        replace(SMALL, **wrong)
