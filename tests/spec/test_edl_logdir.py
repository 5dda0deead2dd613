"""The log directory: rotation, names, crashes, disks in trouble."""

from __future__ import annotations

import errno
import hashlib
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast
from unittest.mock import Mock

import pytest

from edgebroker.instants import HOUR
from edgebroker.runtime import delivery_log
from edgebroker.runtime.delivery_log import DeliveryLogDirectory, OpenSegment, segment_files
from edgebroker.storage.deliverylog.format import decode_footer
from edgebroker.storage.deliverylog.reader import LogFile, read_segment
from edgebroker.storage.deliverylog.writer import DeliveryLog

UNIX_US = 1_760_000_000_000_000  # 2025-10-09 08:53:20 UTC


class Broker:
    """A delivery log, its directory, and what was told."""

    def __init__(self, path: Path, boot: str = "b1", **settings: int) -> None:
        self.told: list[str] = []
        self.log = DeliveryLog("gate way/1", boot, block_rows=1)
        self.dir = DeliveryLogDirectory(path, self.log.header, self.told.append, **settings)
        self.dir.start()

    def publish(self, number: int, now_us: int = 0) -> None:
        self.log.published(now_us, "p", number, 1, "t", 1, 8, 1)
        self.dir.append(self.log.take(now_us), now_us, UNIX_US)

    def stop(self) -> None:
        self.dir.close(self.log.take(0, closing=True), 0, UNIX_US)


def numbers(segment: LogFile) -> list[int]:
    return segment.tables["delivery"]["message"]


def read_all(path: Path) -> list[int]:
    """Message numbers of all finished segments, each of which must be well."""
    found = []
    for file in segment_files(path):
        segment = read_segment(file.read_bytes())
        assert segment.damage == []
        found += numbers(segment)
    return found


def finals(path: Path) -> list[bool]:
    """Of every finished segment, in the order of its blocks, whether it is final."""
    found = []
    for file in path.glob("*.edl"):
        footer = decode_footer(file.read_bytes())
        assert footer is not None
        found.append((footer.blocks[-1][2] if footer.blocks else sys.maxsize, footer.final))
    return [final for _, final in sorted(found)]


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir())


def test_a_closed_segment_is_named_by_node_start_and_content(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "new" / "log")
    broker.publish(1)
    assert names(tmp_path / "new" / "log") == ["current-b1.edl.part"]
    broker.stop()
    (file,) = segment_files(tmp_path)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert file.name == f"gate_way_1-20251009T085320Z-{digest[:16]}.edl"
    assert read_all(tmp_path) == [1]
    assert broker.told == []


def test_other_users_read_no_segment(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        broker = Broker(tmp_path)
        broker.publish(1)
    finally:
        os.umask(before)
    assert [file.stat().st_mode & 0o777 for file in tmp_path.iterdir()] == [0o640]
    broker.stop()
    assert [file.stat().st_mode & 0o777 for file in tmp_path.iterdir()] == [0o640]


def test_a_growing_segment_can_be_read(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.publish(1)
    broker.publish(2)
    (part,) = segment_files(tmp_path)
    segment = read_segment(part.read_bytes(), growing=True)
    assert (numbers(segment), segment.damage) == ([1, 2], [])
    broker.stop()


def test_segments_are_finished_by_size_and_by_age(tmp_path: Path) -> None:
    by_size = Broker(tmp_path / "size", segment_bytes_max=400)
    for number in range(10):
        by_size.publish(number)
    assert by_size.dir.segments_finished >= 3
    by_size.stop()
    assert sorted(read_all(tmp_path / "size")) == list(range(10))
    by_age = Broker(tmp_path / "age")
    by_age.publish(1)
    by_age.dir.append([], HOUR - 1, UNIX_US)
    assert by_age.dir.segments_finished == 0
    by_age.dir.append([], HOUR, UNIX_US)
    assert by_age.dir.segments_finished == 1


def test_only_a_clean_end_makes_a_segment_final_and_only_the_last(tmp_path: Path) -> None:
    broker = Broker(tmp_path, segment_bytes_max=1)
    broker.publish(1)
    broker.publish(2)
    assert finals(tmp_path) == [False, False]
    broker.stop()
    assert finals(tmp_path) == [False, False, True]


def test_a_clean_end_right_after_a_rotation_leaves_a_final_segment_without_blocks(tmp_path: Path) -> None:
    broker = Broker(tmp_path, segment_bytes_max=1)
    broker.publish(1)
    broker.dir.append(broker.log.take(0, closing=True), 0, UNIX_US)
    broker.dir.close([], 0, UNIX_US)
    assert finals(tmp_path) == [False, False, True]
    assert read_all(tmp_path) == [1]


def test_a_log_without_records_leaves_no_file(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.stop()
    assert names(tmp_path) == []


def test_finishing_may_happen_in_the_background(tmp_path: Path) -> None:
    later: list[Callable[[], None]] = []
    log = DeliveryLog("n", "b", block_rows=1)
    folder = DeliveryLogDirectory(tmp_path, log.header, pytest.fail, segment_bytes_max=1, background=later.append)
    for number in range(2):
        log.published(0, "p", number, 1, "t", 1, 8, 1)
        folder.append(log.take(0), 0, UNIX_US)
    assert names(tmp_path) == ["current-b.2.edl.part", "current-b.edl.part"]
    for work in later:
        work()
    assert read_all(tmp_path) == [0, 1] or read_all(tmp_path) == [1, 0]


def crash(path: Path, count: int = 3) -> Path:
    """What a killed broker leaves: its descriptor is closed without a footer, as when nothing refers to it."""
    broker = Broker(path, "dead")
    for number in range(count):
        broker.publish(number)
    return path / "current-dead.edl.part"


def test_what_a_crash_left_is_finished_by_the_next_start(tmp_path: Path) -> None:
    part = crash(tmp_path)
    with part.open("ab") as file:
        file.write(b"EDLB\x00\x00half a block")
    broker = Broker(tmp_path)
    assert read_all(tmp_path) == [0, 1, 2]
    (line,) = broker.told
    assert "current-dead.edl.part from an earlier run: 3 records kept in gate_way_1-" in line
    assert names(tmp_path) == [segment_files(tmp_path)[0].name]
    assert finals(tmp_path) == [False]


def test_a_crash_between_footer_and_new_name_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(tmp_path, "dead")
    broker.publish(1)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "rename", fail)
    broker.stop()
    monkeypatch.undo()
    assert broker.told == [f"delivery log: cannot write in {tmp_path}: Input/output error; the broker goes on without"]
    Broker(tmp_path)
    assert read_all(tmp_path) == [1]
    assert finals(tmp_path) == [False]  # whether everything of that run was on the disk, nobody knows


def test_damage_in_what_a_crash_left_is_told_and_the_original_kept(tmp_path: Path) -> None:
    part = crash(tmp_path)
    data = bytearray(part.read_bytes())
    data[data.index(b"EDLB") + 50] ^= 1
    part.write_bytes(data)
    broker = Broker(tmp_path)
    segment = read_segment(segment_files(tmp_path)[0].read_bytes())
    assert (numbers(segment), segment.damage) == ([1, 2], [])
    assert "checksum of the body is wrong" in broker.told[0]
    assert names(tmp_path)[0] == "current-dead.edl.part.damaged"
    assert (tmp_path / "current-dead.edl.part.damaged").read_bytes() == data


@pytest.mark.parametrize(("content", "left"), [(b"", []), (b"nothing", ["current-x.edl.part.damaged"])])
def test_a_part_without_a_log_in_it_is_set_aside(tmp_path: Path, content: bytes, left: list[str]) -> None:
    (tmp_path / "current-x.edl.part").write_bytes(content)
    broker = Broker(tmp_path)
    assert names(tmp_path) == left
    assert len(broker.told) == 1


@pytest.mark.parametrize("killed", [0, 1])
def test_starts_on_a_full_disk_leave_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: int) -> None:
    """Each would leave another part, and readers would have its records twice."""
    part = crash(tmp_path)

    def finish(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(OpenSegment, "finish", finish)
        if killed:
            patch.setattr(OpenSegment, "discard", Mock())
        for _ in range(3):
            assert any("cannot be finished: No space left" in line for line in Broker(tmp_path).told)
        assert (segment_files(tmp_path), len(names(tmp_path))) == ([part], 1 + killed)
    Broker(tmp_path)
    assert (read_all(tmp_path), len(names(tmp_path))) == ([0, 1, 2], 1)


def test_of_damaged_files_the_newest_are_kept(tmp_path: Path) -> None:
    for number in range(20):
        damaged = tmp_path / f"current-{'ab'[number % 2]}{number}.edl.part.damaged"
        damaged.write_bytes(b"x")
        os.utime(damaged, (number, number))
    (tmp_path / "current-z.edl.part").write_bytes(b"nothing")
    broker = Broker(tmp_path)
    left = {int("".join(filter(str.isdigit, name)) or 20) for name in names(tmp_path)}
    assert left == set(range(5, 21))
    assert "the oldest 5 damaged files are deleted: at most 16 are kept" in broker.told[1]


def test_a_part_with_a_damaged_header_keeps_its_boot(tmp_path: Path) -> None:
    part = crash(tmp_path)
    data = bytearray(part.read_bytes())
    data[30] ^= 1
    part.write_bytes(data)
    Broker(tmp_path)
    segment = read_segment(segment_files(tmp_path)[0].read_bytes())
    assert (segment.header.boot, numbers(segment)) == ("dead", [0, 1, 2])


def test_another_brokers_growing_segment_is_left_alone(tmp_path: Path) -> None:
    one = Broker(tmp_path, "one")
    one.publish(1)
    other = Broker(tmp_path, "other")
    assert other.told == []
    one.publish(2)
    one.stop()
    assert read_all(tmp_path) == [1, 2]


def test_no_directory_to_write_in_is_one_line_and_no_exception(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    broker = Broker(tmp_path / "file" / "log")
    broker.publish(1)
    broker.publish(2)
    broker.stop()
    (line,) = broker.told
    assert line.endswith("Not a directory; the broker goes on without")
    assert broker.dir.blocks_lost == 3  # two of rows, one of digests


def test_a_full_disk_costs_blocks_and_nothing_else(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.publish(1)
    (part,) = segment_files(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (part.stat().st_size + 20, hard))  # the next write is cut short
    try:
        broker.publish(2)
        broker.publish(3)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    broker.publish(4)
    broker.stop()
    assert broker.dir.blocks_lost == 2
    assert [line.split(": ", 1)[1] for line in broker.told] == [
        f"cannot write in {tmp_path}: File too large; the broker goes on without",
        f"writing in {tmp_path} again; 2 blocks are lost so far",
    ]
    segment = read_segment(segment_files(tmp_path)[0].read_bytes())
    assert numbers(segment) == [1, 4]
    assert segment.final  # the gap shows what is lost
    assert ["blocks 1 to 2 of the log should come before" in str(damage) for damage in segment.damage] == [True]


def test_a_run_whose_last_block_finds_no_room_does_not_look_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(tmp_path)
    broker.publish(1)
    closing = broker.log.take(0, closing=True)
    write = OpenSegment.append

    def full(segment: OpenSegment, block: bytes) -> None:
        if block == closing[-1]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(segment, block)

    monkeypatch.setattr(OpenSegment, "append", full)
    broker.dir.close(closing, 0, UNIX_US)
    assert broker.dir.blocks_lost == 1
    assert finals(tmp_path) == [False]
    assert read_all(tmp_path) == [1]


class DyingDisk:
    """A file whose disk goes away in the middle of the first write after `dies` was set."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.fileno = file.fileno
        self.dies = False

    def write(self, data: memoryview) -> int:
        if not self.dies:
            return self.file.write(data)
        self.file.write(data[:10])
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def truncate(self, size: int) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def close(self) -> None:
        self.file.close()


def test_a_file_that_cannot_be_cut_back_is_left_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(tmp_path, "b1")
    disks: list[DyingDisk] = []

    def opened(path: Path, mode: str, buffering: int, opener: Callable[[str, int], int]) -> DyingDisk:
        disks.append(DyingDisk(cast(BinaryIO, open(path, mode, buffering, opener=opener))))  # noqa: SIM115
        return disks[-1]

    with monkeypatch.context() as patch:
        patch.setattr(delivery_log, "open", opened, raising=False)
        broker.publish(1)
    disks[0].dies = True
    broker.publish(2)
    broker.publish(3)
    broker.stop()
    assert broker.dir.blocks_lost == 1
    assert read_all_finished(tmp_path) == [3]
    later = Broker(tmp_path, "b2")
    assert "1 records kept" in later.told[0]
    assert sorted(read_all(tmp_path)) == [1, 3]


def read_all_finished(path: Path) -> list[int]:
    return [number for file in path.glob("*.edl") for number in numbers(read_segment(file.read_bytes()))]


def test_segments_lists_files_and_directories(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    for name in ("a.edl", "below/b.edl", "c.edl.part", "d.edl.part.damaged", "e.txt"):
        (tmp_path / name).write_bytes(b"")
    assert [file.name for file in segment_files(tmp_path)] == ["a.edl", "b.edl", "c.edl.part"]
    assert segment_files(tmp_path / "e.txt") == [tmp_path / "e.txt"]


def test_the_segments_finished_first_are_deleted_when_there_is_too_much(tmp_path: Path) -> None:
    foreign = tmp_path / "gate_way_1-2-20251009T085320Z-0123456789abcdef.edl"  # of a gateway called "gate_way_1-2"
    foreign.write_bytes(b"x" * 4_000)
    os.utime(foreign, (1, 1))
    gone = tmp_path / "gate_way_1-20251009T085320Z-0123456789abcdef.edl"  # as one that is taken away meanwhile
    gone.symlink_to(tmp_path / "nowhere")
    left = Broker(tmp_path, boot="b0")
    left.publish(1)  # ... and its power is cut
    del left
    broker = Broker(tmp_path, segment_bytes_max=1, bytes_max=1)
    assert broker.dir.segments_deleted == 0  # the last one stays, whatever it has
    (saved,) = set(tmp_path.glob("*.edl")) - {foreign, gone}
    os.utime(saved, (2, 2))
    broker.dir.bytes_max = saved.stat().st_size * 5 // 2
    for number in range(2, 6):
        before = set(tmp_path.iterdir())
        broker.publish(number)
        (finished,) = set(tmp_path.iterdir()) - before
        os.utime(finished, (number + 1, number + 1))  # these are finished in one tick of the clock
    assert broker.dir.segments_deleted == 3
    foreign.unlink()
    gone.unlink()
    assert sorted(read_all(tmp_path)) == [4, 5]
    broker.dir.bytes_max = 0
    broker.publish(6)
    broker.publish(7)
    assert (sorted(read_all(tmp_path)), broker.told[1:]) == ([4, 5, 6, 7], [])


def test_what_is_finished_while_the_clock_is_behind_is_not_deleted_for_it(tmp_path: Path) -> None:
    """A machine without a battery wakes up in 1970, beside files of the year that it was when it knew."""
    broker = Broker(tmp_path, segment_bytes_max=1)
    broker.publish(1)
    (first,) = tmp_path.glob("*.edl")
    os.utime(first, (1 << 32, 1 << 32))
    broker.dir.bytes_max = first.stat().st_size * 5 // 2
    for number in range(2, 6):
        broker.publish(number)
    assert sorted(read_all(tmp_path)) == [4, 5]
    left = Broker(tmp_path, boot="b2")
    left.publish(6)  # ... and its power is cut
    del left
    assert Broker(tmp_path, boot="b3", bytes_max=1).dir.segments_deleted == 2
    assert read_all(tmp_path) == [6]
