"""A journal on real files: what is done is there, one process has the folder, and what goes wrong is told."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import shutil
import time
import zlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgebroker.errors import JournalDamaged, JournalInUse
from edgebroker.instants import DAY, HOUR
from edgebroker.limits import JOURNAL_QUARANTINE_FILES_MAX
from edgebroker.runtime.journal.files import LOCK, JournalFiles, SyncTimes
from edgebroker.runtime.journal.store import JournalWorker
from edgebroker.runtime.journal.wear import WEAR_FILE, Card, CardWear, read_wear
from edgebroker.storage.journal.format import CRC, HEADER, decode_header
from edgebroker.storage.journal.options import JournalOptions
from edgebroker.storage.journal.recovery import recover
from edgebroker.storage.journal.recovery_report import RecoveryReport
from edgebroker.storage.journal.work import QUARANTINE, Create, DiskWork, Fill, Sync, WorkPurpose

SMALL = JournalOptions(segment_bytes=64 * 1024, snapshot_min_bytes=64 * 1024)


def opened(path: Path, given: list[bytes] | None = None) -> JournalWorker:
    return JournalWorker(path, SMALL, lambda lsn, records: given.extend(records) if given is not None else None)


def say(worker: JournalWorker, *records: bytes) -> None:
    for record in records:
        worker.journal.append(record, 0)
    assert worker.run_due(10_000_000) == ""
    assert worker.journal.synced == worker.journal.lsn


def test_what_was_synced_is_there_in_the_next_run(tmp_path: Path) -> None:
    first = opened(tmp_path / "data")
    assert first.recovery_report is None
    say(first, b"one", b"two")
    assert first.close(10_000_000) == ""
    given: list[bytes] = []
    second = opened(tmp_path / "data", given)
    assert second.recovery_report is not None
    assert (given, second.recovery_report.is_clean, second.journal.lsn) == ([b"one", b"two"], True, 2)
    say(second, b"three")
    second.files.close()  # as a crash does
    given.clear()
    third = opened(tmp_path / "data", given)
    assert third.recovery_report is not None
    assert (given, third.recovery_report.is_clean) == ([b"one", b"two", b"three"], False)
    third.close(0)


def test_a_card_that_wants_larger_pieces_is_written_to_through_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = opened(tmp_path)
    say(worker, b"one")
    write, refused = os.pwrite, []

    def refuse_first(descriptor: int, data: bytes, offset: int) -> int:
        if not refused:
            refused.append(offset)
            raise OSError(errno.EINVAL, "Invalid argument")
        return write(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", refuse_first)
    say(worker, b"two")
    say(worker, b"three")
    assert refused
    before = worker.files.card_bytes_written
    say(worker, b"four")
    assert worker.files.card_bytes_written - before == 4_096
    worker.close(0)
    given: list[bytes] = []
    opened(tmp_path, given).close(0)
    assert given == [b"one", b"two", b"three", b"four"]


def test_a_folder_belongs_to_one_process(tmp_path: Path) -> None:
    worker = opened(tmp_path)
    with pytest.raises(JournalInUse, match=rf"is in use by process {os.getpid()} \(.*\); stop it, or give"):
        opened(tmp_path)
    worker.close(0)
    opened(tmp_path).close(0)


def test_the_lock_of_a_dead_process_does_not_count(tmp_path: Path) -> None:
    tmp_path.joinpath(LOCK).write_text("process 1 (init)\n", encoding="utf-8")
    opened(tmp_path).close(0)


def test_a_journal_of_another_version_is_left_alone(tmp_path: Path) -> None:
    worker = opened(tmp_path)
    say(worker, b"one")
    worker.close(0)
    segment = tmp_path / worker.files.names()[0]
    data = bytearray(segment.read_bytes())
    data[8] = 3
    data[HEADER.size : HEADER.size + CRC.size] = CRC.pack(zlib.crc32(bytes(data[: HEADER.size])))
    segment.write_bytes(data)
    with pytest.raises(JournalDamaged, match="version 3"):
        opened(tmp_path)
    assert segment.read_bytes() == data
    JournalFiles(tmp_path).lock()  # the one that refused has let it go


def test_trouble_with_the_disk_is_named_and_the_journal_goes_on_when_it_is_over(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    worker = opened(folder)
    say(worker, b"one")
    (name,) = worker.files.names()
    worker.files._close_file(name)
    folder.joinpath(name).rename(tmp_path / "gone")
    worker.journal.append(b"two", 0)
    assert worker.run_due(20_000_000) == "No such file or directory"
    assert worker.journal.is_refusing
    (tmp_path / "gone").rename(folder / name)
    assert worker.run_due(40_000_000) == ""
    assert (worker.journal.is_refusing, worker.journal.synced) == (False, 2)
    worker.close(50_000_000)
    given: list[bytes] = []
    opened(folder, given).close(0)
    assert given == [b"one", b"two"]


def test_a_folder_without_its_name_takes_nothing(tmp_path: Path) -> None:
    folder, gone = tmp_path / "data", tmp_path / "gone"
    worker = opened(folder)
    say(worker, b"one")
    folder.rename(gone)
    folder.mkdir()
    worker.journal.append(b"two", 0)
    assert worker.run_due(20_000_000) == "its folder was taken away or exchanged"
    assert (worker.journal.is_refusing, worker.journal.synced, list(folder.iterdir())) == (True, 1, [])
    folder.rmdir()
    assert worker.run_due(40_000_000) == "its folder was taken away or exchanged"
    gone.rename(folder)
    assert worker.run_due(80_000_000) == ""
    assert (worker.journal.is_refusing, worker.journal.synced, worker.files.has_lost_segment) == (False, 2, False)
    worker.close(90_000_000)
    given: list[bytes] = []
    opened(folder, given).close(0)
    assert given == [b"one", b"two"]


def test_a_lock_that_was_tidied_away_is_had_again(tmp_path: Path) -> None:
    worker = opened(tmp_path)
    (tmp_path / "lock").unlink()
    say(worker, b"one")
    with pytest.raises(JournalInUse, match="process"):
        JournalFiles(tmp_path).lock()
    (tmp_path / "lock").unlink()
    other = JournalFiles(tmp_path)
    other.lock()
    worker.journal.append(b"two", 0)
    assert "its lock was taken away or exchanged, and cannot be had again" in worker.run_due(20_000_000)
    assert (worker.journal.is_refusing, worker.journal.synced) == (True, 1)
    other.close()
    assert worker.run_due(40_000_000) == ""
    assert worker.journal.synced == 2
    worker.close(90_000_000)


@pytest.mark.parametrize("when", ["before the write", "before the sync"])
def test_what_is_synced_into_something_without_a_name_does_not_count(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = opened(tmp_path / "data")
    say(worker, b"one")
    (name,) = worker.files.names()
    sync = os.fdatasync

    def take_away_and_sync(descriptor: int) -> None:
        (tmp_path / "data" / name).unlink(missing_ok=True)
        sync(descriptor)

    if when == "before the write":
        (tmp_path / "data" / name).unlink()
    else:
        monkeypatch.setattr(os, "fdatasync", take_away_and_sync)
    worker.journal.append(b"two", 0)
    assert worker.run_due(20_000_000) == f"{name} was taken away"
    assert (worker.journal.synced, worker.files.has_lost_segment) == (1, True)
    worker.close(90_000_000)


def test_nothing_is_lost_with_a_file_that_is_made_ahead_of_need(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path)
    files.lock()
    assert files.execute(DiskWork(WorkPurpose.ROOM, (Create("a.ebj"), Fill("a.ebj", 0, 4_096), Sync("a.ebj")))) == ""
    (tmp_path / "a.ebj").unlink()
    reason = files.execute(DiskWork(WorkPurpose.ROOM, (Fill("a.ebj", 4_096, 4_096), Sync("a.ebj"))))
    assert (reason, files.has_lost_segment) == ("a.ebj was taken away", False)
    files.close()


def test_work_is_done_beside_the_event_loop(tmp_path: Path) -> None:
    worker = opened(tmp_path)
    journal = worker.journal

    async def run() -> list[str]:
        reasons: list[str] = []
        over = asyncio.Event()
        journal.append(b"one", 0)
        while journal.synced < 1:
            work = journal.next_work(10_000_000)
            assert work is not None

            def ended(work: object, reason: str) -> None:
                reasons.append(reason)
                over.set()

            worker.submit(work, ended)
            await asyncio.wait_for(over.wait(), 20)
            over.clear()
            journal.done(work, 10_000_000)
        return reasons

    def works() -> int:
        return sum(isinstance(one, DiskWork) for one in gc.get_objects())

    gc.collect()
    gc.disable()
    before = works()
    try:
        assert set(asyncio.run(run())) == {""}
        until = time.monotonic() + 20
        while works() > before and time.monotonic() < until:  # a thread may be about to let go of it
            time.sleep(0.001)
        assert works() <= before, "what is done goes without the collector"
    finally:
        gc.enable()
    assert worker.files.sync_us.count >= 1
    worker.close(0)


def test_closing_finishes_what_is_under_way(tmp_path: Path) -> None:
    worker = opened(tmp_path)
    say(worker, b"one")

    async def begin() -> None:
        worker.journal.append(b"two", 0)
        work = worker.journal.next_work(0)
        assert work is not None
        worker.submit(work, lambda work, reason: None)

    asyncio.run(begin())  # the loop is gone before anybody is told
    assert worker.close(20_000_000) == ""
    given: list[bytes] = []
    opened(tmp_path, given).close(0)
    assert given == [b"one", b"two"]


def test_segments_that_were_made_are_as_long_as_they_say(tmp_path: Path) -> None:
    worker = opened(tmp_path)
    say(worker, b"x" * 40_000)
    for second in range(2, 40):  # the next segment is made in parts, between commits
        worker.run_due(second * 10_000_000)
    headers = [decode_header(worker.files.head(name)) for name in worker.files.names()]
    assert [header is not None for header in headers] == [True, False]
    assert {(tmp_path / name).stat().st_size for name in worker.files.names()} == {SMALL.segment_bytes}
    worker.close(0)


def test_recovery_reads_a_copy_that_nobody_locked(tmp_path: Path) -> None:
    worker = opened(tmp_path / "data")
    say(worker, b"one")
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    found = recover(JournalFiles(tmp_path / "copy"), lambda lsn, record: None)
    assert isinstance(found, RecoveryReport)
    assert found.lsn == 1
    worker.close(0)


def test_files_of_which_nothing_is_left_are_told_and_kept(tmp_path: Path) -> None:
    """Or a gateway whose card lost everything would begin anew without a word, and write over the rest."""
    worker = opened(tmp_path)
    say(worker, b"gone")
    worker.close(0)
    [name] = worker.files.names()
    header = decode_header(worker.files.head(name))
    assert header is not None
    sequence = header.sequence
    (tmp_path / name).write_bytes(os.urandom(SMALL.segment_bytes))
    again = opened(tmp_path)
    assert again.recovery_report is not None
    assert [str(damage) for damage in again.recovery_report.damage] == [
        f"{name} at 0: of segment {sequence}, the newest one, no header and no frame is intact; "
        "lost are the records 1 to 1, and those that were written behind them"
    ]
    say(again, b"new")
    assert len(again.files.quarantined()) == 1
    again.close(0)
    given: list[bytes] = []
    opened(tmp_path, given).close(0)
    assert given == [b"new"]


def test_quarantine_does_not_fill_the_disk(tmp_path: Path) -> None:
    """16 files in all, not 16 in every run."""
    for number in range(JOURNAL_QUARANTINE_FILES_MAX - 1):
        tmp_path.joinpath("data", QUARANTINE).mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / QUARANTINE / f"{number}.ebj").write_bytes(b"old")
    for name in ("one.ebj", "two.ebj"):
        (tmp_path / "data" / name).write_bytes(b"no segment at all")
    good = opened(tmp_path / "good")
    say(good, b"kept")
    good.close(0)
    for segment in good.files.names():
        shutil.copy(tmp_path / "good" / segment, tmp_path / "data")
    worker = opened(tmp_path / "data")
    assert worker.recovery_report is not None
    assert len(worker.recovery_report.strangers) == 2
    say(worker, b"more")
    assert len(worker.files.quarantined()) == JOURNAL_QUARANTINE_FILES_MAX
    assert not [name for name in worker.files.names() if name in ("one.ebj", "two.ebj")]
    worker.close(0)


def test_sync_times_know_their_quantiles() -> None:
    times = SyncTimes()
    assert times.quantile(0.5) == 0
    for took in range(1, 1_001):
        times.add(took)
    for share in (0.5, 0.9, 0.99):
        assert share * 1_000 <= times.quantile(share) <= share * 1_000 * 1.2
    assert (times.count, times.longest_us, times.quantile(1)) == (1_000, 1_000, 1_000)
    bounds = list(times.buckets())
    assert [count for bound, count in bounds if bound == 512] == [511]
    assert bounds[-1][1] == 1_000
    times.add(1 << 60)
    times.add(0)
    assert times.count == 1_002


def test_wear_is_counted_in_running_time_over_all_runs(tmp_path: Path) -> None:
    wear = CardWear(tmp_path)
    wear.record(0, 0)
    wear.record(HOUR - 1, 500)
    assert not (tmp_path / WEAR_FILE).exists()
    wear.record(HOUR, 1_000)
    assert read_wear(tmp_path).bytes_per_day == 24_000
    again = CardWear(tmp_path)
    again.record(5, 0)
    again.record(5 + 23 * HOUR, 23_000, is_last=True)
    written = read_wear(tmp_path)
    assert (written.bytes, written.days, written.running_us) == (24_000, (24_000,), DAY)
    assert replace(written, card=Card(24_000 * 365 / 1e9, 10)).years == pytest.approx(10, rel=0.01)


def test_the_card_of_the_settings_is_remembered_for_who_has_no_settings(tmp_path: Path) -> None:
    wear = CardWear(tmp_path, Card(64, 3_000))
    wear.record(0, 0)
    wear.record(HOUR, 10**9)
    written = read_wear(tmp_path)
    assert written.card == Card(64, 3_000)
    assert written.described() == wear.written.described() == {"bytes_per_day": 24 * 10**9, "card_years": 21.9}
    assert CardWear(tmp_path, Card(128, 10)).written.card == Card(128, 10), "another card was put in"


def test_a_wear_file_without_sense_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / WEAR_FILE).write_text('{"bytes": []}', encoding="utf-8")
    assert read_wear(tmp_path).bytes_per_day is None
    wear = CardWear(tmp_path / "missing")
    wear.record(0, 0)
    wear.record(2 * HOUR, 10, is_last=True)
    assert wear.written.running_us == 2 * HOUR


def test_a_disk_that_says_how_little_is_left_is_believed_and_one_that_knows_of_no_end_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = SimpleNamespace(f_bavail=10, f_frsize=4_096, f_blocks=100)
    monkeypatch.setattr(os, "statvfs", lambda path: said)
    worker = opened(tmp_path)
    say(worker, b"x")
    assert worker.journal.is_full
    said.f_bavail = said.f_blocks = 0  # as a tmpfs without a size
    say(worker, b"y")
    assert not worker.journal.is_refusing
    worker.close(0)


def test_a_run_ends_cleanly_although_something_cannot_be_set_aside(tmp_path: Path) -> None:
    (tmp_path / "other.ebj").write_bytes(b"x" * 5_000)
    (tmp_path / QUARANTINE).write_bytes(b"a file is in the way")
    worker = opened(tmp_path)
    worker.journal.append(b"one", 0)
    assert worker.close(10_000_000) == "File exists"
    found = recover(JournalFiles(tmp_path), lambda lsn, record: None)
    assert found is not None
    assert found.is_clean
