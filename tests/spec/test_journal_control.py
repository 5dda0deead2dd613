"""The control file of a journal: the newest segment is missed when it is gone, and only then."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest

from edgebroker.errors import JournalDamaged
from edgebroker.storage.journal.format import (
    CONTROL_FILE,
    ControlRecord,
    SegmentHeader,
    decode_control,
    encode_control,
)
from edgebroker.storage.journal.journal import Journal
from edgebroker.storage.journal.recovery import recover
from edgebroker.storage.journal.recovery_report import RecoveryReport
from edgebroker.storage.journal.work import Operation, Sync, SyncControl, Write, WriteControl
from edgelab.simworld.disk import Disk, DiskFile

from ..support.journal_on_simulated_disk import STORE, Bench, next_batch

RECORD = ControlRecord(SegmentHeader(STORE, 7, 1_000, 8_192, 990, 4_321), "segment-0003.ebj", 1_004)


def deleted(disk: Disk, name: str) -> None:
    del disk.files[name]


def emptied(disk: Disk, name: str) -> None:
    disk.files[name] = DiskFile()


def zeroed(disk: Disk, name: str) -> None:
    size = len(disk.files[name].cache)
    disk.files[name] = DiskFile(bytearray(size), bytearray(size))


def cut_behind_its_header(disk: Disk, name: str) -> None:
    del disk.files[name].cache[1_024:]


LOSSES = (deleted, emptied, zeroed, cut_behind_its_header)


def recovered(disk: Disk) -> tuple[RecoveryReport | None, list[int]]:
    given: list[int] = []
    return recover(disk, lambda lsn, record: given.append(lsn)), given


def losses(found: RecoveryReport | None) -> list[tuple[int, int, bool]]:
    assert found is not None
    return [(one.first_lsn, one.last_lsn, one.is_open_ended) for one in found.damage if one.is_open_ended]


@pytest.mark.parametrize("lose", LOSSES)
def test_the_only_segment(lose: Callable[[Disk, str], None]) -> None:
    bench = Bench()
    bench.say(b"one", b"two")
    bench.say(b"three")
    image = bench.disk.killed()
    [name] = image.names()
    lose(image, name)
    found, given = recovered(image)
    assert given == []
    assert losses(found)[-1:] == [(1, 2, True)], "the first commit is known, and that there may be more"
    assert found is not None
    assert bool(found.strangers) is (lose in (emptied, zeroed)), "the file is set aside where there is one"
    assert found.free == {}
    assert found.torn is None


@pytest.mark.parametrize("lose", LOSSES)
def test_the_newest_of_several(lose: Callable[[Disk, str], None]) -> None:
    bench = Bench()
    bench.say(*[b"x" * 3_000] * 5)
    image, segment = bench.disk.killed(), bench.journal.segments.live[-1]
    first = segment.first_lsn
    assert (len(bench.journal.segments.live), first) == (3, 5)
    lose(image, segment.name)
    found, given = recovered(image)
    assert given == list(range(1, first))
    assert losses(found)[-1:] == [(first, first, True)]
    assert found is not None
    assert found.next_sequence > segment.sequence, "none is used twice"
    again = Bench(disk=image, found=found)
    assert again.journal.wants_snapshot
    again.say(b"more")
    after, given = recovered(again.disk.killed())
    assert after is not None
    assert given == list(range(1, first + 1))
    assert after.damage == [], "a new segment is the newest one, and nobody misses the old one again"
    again.journal.begin_snapshot(again.now)
    again.say(b"all")
    again.journal.end_snapshot(again.now)
    again.say(b"and more")
    assert again.recovered()[0].damage == []


def test_what_is_left_behind_damage_is_not_taken_for_later_records() -> None:
    """A bit flips in the only commit of the newest segment, and before a snapshot is made the next segment is lost."""
    bench = Bench()
    bench.say(b"one", b"two", b"three")
    image = bench.disk.killed()
    [name] = image.names()
    image.flip(name, 8 * (1_024 + 36 + 11 + 8))  # in the second record
    found, given = recovered(image)
    assert given == [1, 3], "it was synced: only the record with the bit is lost"
    assert found is not None
    assert [(one.first_lsn, one.last_lsn) for one in found.damage] == [(2, 2)]
    again = Bench(disk=image, found=found)
    again.say(b"new")
    deleted(again.disk, again.journal.segments.live[-1].name)
    records: dict[int, bytes] = {}
    recover(again.disk.killed(), records.__setitem__)
    assert records == {1: b"one", 3: b"three"}


@pytest.mark.parametrize("lose", LOSSES)
def test_the_newest_that_repeated_what_was_unproven(lose: Callable[[Disk, str], None]) -> None:
    """The segment before has its first commit too, so no record is known to be lost; those behind it may be."""
    bench = Bench()
    bench.say(b"one")
    image = bench.disk.killed()
    again = Bench(disk=image, found=recovered(image)[0])
    again.say(b"two")
    again.say(b"three")
    image, name = again.disk.killed(), again.journal.segments.live[-1].name
    lose(image, name)
    found, given = recovered(image)
    assert given == [1]
    assert found is not None
    assert (0, 0, True) in losses(found) or (2, 2, True) in losses(found)
    image.files[name] = DiskFile()
    assert losses(recovered(image)[0])


def test_zeros_behind_a_header_that_is_intact() -> None:
    bench = Bench()
    bench.say(b"one")
    bench.say(b"two")
    image = bench.disk.killed()
    [name] = image.names()
    size = len(image.files[name].cache)
    image.files[name].cache[1_024:] = bytes(size - 1_024)
    found, given = recovered(image)
    assert (given, losses(found)) == ([], [(1, 1, True)])


def test_after_a_clean_end_every_record_is_known() -> None:
    bench = Bench()
    bench.say(b"one")
    bench.say(b"two")
    bench.say(b"three")
    bench.journal.close(bench.now)
    bench.work()
    image = bench.disk.killed()
    found, given = recovered(image)
    assert found is not None
    assert (found.is_clean, found.damage, given) == (True, [], [1, 2, 3])
    [name] = image.names()
    for at in range(2_048, 2_560):  # the last commit, and what ended the run
        image.files[name].cache[at] = 0
    image.files[name].cache[2_560:] = bytes(len(image.files[name].cache) - 2_560)
    found, given = recovered(image)
    assert given == [1, 2]
    assert losses(found) == [(3, 3, True)]


def test_what_was_never_promised_is_not_missed() -> None:
    """At each point of the first commit of a new segment the power fails, and the file itself never comes back."""
    for is_first in (True, False):
        bench = Bench()
        if not is_first:
            bench.say(*[b"x" * 3_000] * 2)
        bench.now += 60_000
        bench.work()  # the file of the next segment is made
        bench.journal.append(b"y" * 3_000, bench.now)
        work = next_batch(bench.journal, bench.now)
        name = next(one.name for one in work.operations if isinstance(one, Write))
        synced = next(index for index, one in enumerate(work.operations) if isinstance(one, Sync))
        for operation in work.operations[: synced + 1]:
            for _ in range(20):
                image = bench.disk.crash()
                image.files.pop(name, None)
                found, given = recovered(image)
                assert found is None or not found.damage
                assert given == ([] if is_first else [1, 2])
            bench.disk.do(operation)


def test_a_segment_is_named_when_it_is_on_the_disk_and_before_anything_is_promised() -> None:
    bench = Bench()
    bench.journal.append(b"one", 0)
    kinds = [type(operation) for operation in next_batch(bench.journal, 0).operations]
    assert kinds[-2:] == [WriteControl, SyncControl]
    assert kinds.index(Sync) < kinds.index(WriteControl)


def test_a_commit_into_a_segment_that_is_begun_costs_nothing_more() -> None:
    bench = Bench()
    bench.say(b"one")
    bench.journal.append(b"two", bench.now)
    kinds = [type(operation) for operation in next_batch(bench.journal, bench.now).operations]
    assert kinds == [Write, Sync]


def test_a_journal_without_a_control_file_is_read_as_ever() -> None:
    bench = Bench()
    bench.say(b"one")
    image = bench.disk.killed()
    del image.files[CONTROL_FILE]
    found, given = recovered(image)
    assert found is not None
    assert (found.damage, given) == ([], [1])
    [name] = image.names()
    zeroed(image, name)
    assert recovered(image)[0] is None, "and as ever, what it had is not missed"


def test_nothing_at_all_is_a_new_journal() -> None:
    bench = Bench()
    bench.say(b"one")
    image = bench.disk.killed()
    image.files.clear()
    assert recovered(image) == (None, [])


def test_a_control_file_that_cannot_be_written_fails_no_commit() -> None:
    bench = Bench()
    bench.say(b"one")
    perform = bench.disk.do

    def failing(operation: Operation) -> None:
        bench.disk.write_fails = 1.0 if isinstance(operation, WriteControl) else 0.0
        perform(operation)
        bench.disk.write_fails = 0.0

    bench.disk.do = failing  # type: ignore[method-assign]
    bench.say(*[b"x" * 3_000] * 3)
    assert bench.disk.is_control_stale
    assert bench.recovered()[0].damage == [], "an old one misses nothing that is not gone"


def test_the_snapshot_that_the_lost_header_named_is_where_recovery_begins() -> None:
    """Else recovery would begin before it, and count what it has replaced as lost."""
    bench = Bench()
    bench.say(*[b"x" * 3_000] * 6)
    first = bench.journal.begin_snapshot(bench.now)
    bench.say(b"all")
    bench.journal.end_snapshot(bench.now)
    bench.work()
    assert bench.journal.replay_from == first
    image = bench.disk.killed()
    deleted(image, bench.journal.segments.live[-1].name)
    found, given = recovered(image)
    assert found is not None
    assert (found.replay_from, given) == (first, [first])
    assert [one.first_lsn for one in found.damage] == [0], "it had no record yet, as far as is known"
    assert "lost is what was written there" in str(found.damage[0])


@pytest.mark.parametrize("copy", [0, 512])
def test_one_copy_is_enough(copy: int) -> None:
    data = bytearray(encode_control(RECORD))
    data[copy + 80] ^= 1
    assert decode_control(bytes(data)) == RECORD


def test_a_damaged_one_is_told_and_replaced() -> None:
    bench = Bench()
    bench.say(b"one")
    image = bench.disk.killed()
    image.flip(CONTROL_FILE, 8 * 80)
    image.flip(CONTROL_FILE, 8 * 600)
    found, given = recovered(image)
    assert found is not None
    assert [str(damage) for damage in found.damage] == ["control at 0: it is damaged, and names no newest segment"]
    assert given == [1]
    again = Bench(disk=image, found=found)
    again.say(b"two")
    assert again.recovered()[0].damage == []


def test_one_of_another_journal_says_nothing() -> None:
    bench = Bench()
    bench.say(b"one")
    image = bench.disk.killed()
    other = encode_control(ControlRecord(SegmentHeader(bytes(16), 99, 1, 8_192), "segment-0001.ebj", 500))
    image.files[CONTROL_FILE] = DiskFile(bytearray(other), bytearray(other))
    found, given = recovered(image)
    assert found is not None
    assert (found.damage, given, found.store) == ([], [1], STORE)


def test_one_of_another_version_is_refused() -> None:
    data = bytearray(encode_control(RECORD))
    for at in (0, 512):
        data[at + 8] = 3
        data[at + 68 : at + 72] = zlib.crc32(data[at : at + 68]).to_bytes(4, "little")
    with pytest.raises(JournalDamaged, match="version 3"):
        decode_control(bytes(data))


def test_a_lost_header_of_the_only_segment_costs_no_record() -> None:
    """Its frames are read with the store that the control file names."""
    bench = Bench()
    bench.say(b"one")
    bench.say(b"two")
    image = bench.disk.killed()
    [name] = image.names()
    image.files[name].cache[:1_024] = bytes(1_024)
    found, given = recovered(image)
    assert found is not None
    assert (found.store, given) == (STORE, [1, 2])
    assert found.damage
    assert losses(found) == []
    assert Journal(found.store, report=found).lsn == 2
