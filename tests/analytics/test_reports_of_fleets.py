"""What a report concludes from the logs of a fleet: many runs, copied, cut and missing files, restarts and kills."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

import pyarrow as pa

from edgeanalytics import figures, ingest, inventory
from edgeanalytics.summary import Summary, summarise
from edgebroker.instants import MINUTE
from edgebroker.log_schema import PEER_PREFIX, Cause, Fate, MessageOrigin
from edgebroker.runtime.delivery_log import DeliveryLogDirectory, OpenSegment, salvage
from edgebroker.storage.deliverylog.writer import DeliveryLog
from tests.support import plain_figures as reference

UNIX_US = 1_760_000_000_000_000


def copies(log: DeliveryLog, first: int, count: int, now: int, *, ends: int, origin: int = 0, to: str = "s") -> None:
    """*count* messages of QoS 1 with a copy each for *to*; the first *ends* of them are delivered."""
    log.published(now, "p", first, count, "t", 1, 8, 1, origin=origin)
    log.matched(now, "p", to, first, count, 1, origin)
    if ends:
        log.fate(now, "p", to, first, ends, "t", "#", 1, Fate.DELIVERED, Cause.NONE, 5, 8, origin=origin)


def write(folder: Path, log: DeliveryLog, now: int, unix_us: int = UNIX_US) -> Path:
    """Write everything that *log* has as the only file of a run that ended cleanly."""
    folder.mkdir(parents=True, exist_ok=True)
    segment = OpenSegment(folder, log.header(0, unix_us))
    for block in log.take(now, closing=True):
        segment.append(block)
    return segment.finish(final=True)


def concluded(folder: Path) -> Summary:
    return summarise(reference.figures(reference.read(folder)))


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_a_loss_in_the_last_of_5_000_runs_is_found(spark: Any, tmp_path: Path) -> None:
    for number in range(5_000):
        log = DeliveryLog(f"n{number:05}", "b")
        copies(log, 1, 2, 1, ends=2 if number < 4_999 else 1)
        write(tmp_path, log, 2)
    computed = figures.compute(spark, tmp_path, lambda line: None)
    summary = summarise(computed)
    assert (summary.lost, summary.duplicated, summary.sound) == (1, 0, False)
    assert (summary.files, summary.runs, summary.published) == (5_000, {"complete": 5_000}, 10_000)
    assert summary.records == 5_000 * 7 - 1
    audit = computed["audit"]
    assert (len(audit), audit[0]["node"], audit[0]["lost"]) == (figures.ROWS_MAX, "n04999", 1)
    assert [row["node"] for row in computed["messages"]] == ["n04999"]


def three_files(folder: Path) -> list[Path]:
    """A run of three files of as many blocks, without a loss."""
    folder.mkdir(parents=True, exist_ok=True)
    log, files = DeliveryLog("gw", "b", block_rows=100), []
    for nth in range(3):
        segment = OpenSegment(folder, log.header(nth, UNIX_US))
        copies(log, 1 + 250 * nth, 250, nth, ends=250)
        for block in log.take(nth, closing=True):
            segment.append(block)
        files.append(segment.finish(final=nth == 2))
    return files


def test_a_missing_file_is_not_made_up_for_by_a_copied_one(tmp_path: Path) -> None:
    files = three_files(tmp_path / "log")
    shutil.copy(files[2], tmp_path / "copy.edl")
    files[1].unlink()
    summary = concluded(tmp_path)
    assert (summary.lost, summary.duplicated, summary.runs) == (0, 0, {"incomplete": 1})
    assert summary.copied_blocks > 0


@pytest.mark.parametrize("cut", [0.3, 0.99, 1.0])
def test_what_was_uploaded_twice_whole_or_cut_short_counts_once(tmp_path: Path, cut: float) -> None:
    files = three_files(tmp_path / "log")
    once = concluded(tmp_path)
    (tmp_path / "again").mkdir()
    for file in files:
        data = file.read_bytes()
        (tmp_path / "again" / file.name).write_bytes(data[: int(cut * len(data))])
    summary = concluded(tmp_path)
    assert (summary.runs, summary.lost, summary.sound) == ({"complete": 1}, 0, True)
    assert (summary.published, summary.delivered, summary.records) == (750, 750, once.records)


def test_the_last_blocks_are_missed_although_the_final_file_has_none(tmp_path: Path) -> None:
    log = DeliveryLog("gw", "b", block_rows=100)
    directory = DeliveryLogDirectory(tmp_path, log.header, lambda line: None, segment_bytes_max=1)
    for nth in range(3):
        copies(log, 1 + 10 * nth, 10, nth, ends=10)
        directory.append(log.take(nth, closing=True), nth, UNIX_US + nth * 1_000_000)
    directory.close([], 9, UNIX_US + 9_000_000)
    files = sorted(tmp_path.iterdir())
    assert concluded(tmp_path).runs == {"complete": 1}
    files[2].unlink()  # the last one that has blocks
    assert concluded(tmp_path).runs == {"incomplete": 1}


def test_messages_that_wait_over_restarts_are_counted_once_and_wait_no_more(tmp_path: Path) -> None:
    """101 messages, of which none waits in the end, were 308 once, and 202 were queued."""
    origin = 0
    for run in range(3):
        log = DeliveryLog("gw", f"b{run}")
        copies(log, 1, 101, 1, ends=101 if run == 2 else 0, origin=origin)
        if run < 2:
            log.fate(1, "p", "s", 1, 101, "t", "#", 1, Fate.QUEUED, Cause.NONE, 5, 8, origin=origin)
        write(tmp_path / f"{run}", log, 2, UNIX_US + run * MINUTE)
        origin = MessageOrigin.RESUMED
    summary = concluded(tmp_path)
    assert (summary.published, summary.copies, summary.delivered, summary.queued) == (101, 101, 101, 0)
    assert (summary.lost, summary.again) == (0, {"resumed": 202})


def test_a_message_that_waits_on_the_disk_and_is_read_again_is_no_duplicate(tmp_path: Path) -> None:
    log = DeliveryLog("gw", "b")
    copies(log, 1, 3, 1, ends=0)
    log.fate(2, "p", "s", 1, 3, "t", "#", 1, Fate.QUEUED, Cause.NONE, 5, 8)
    log.matched(3, "p", "s", 1, 3, 1, MessageOrigin.RESUMED)
    log.fate(3, "p", "s", 1, 3, "t", "#", 1, Fate.DELIVERED, Cause.NONE, 5, 8, origin=MessageOrigin.RESUMED)
    write(tmp_path, log, 4)
    summary = concluded(tmp_path)
    assert (summary.copies, summary.delivered, summary.queued) == (3, 3, 0)
    assert (summary.lost, summary.duplicated) == (0, 0)


def test_hand_overs_to_peers_are_told_apart(tmp_path: Path) -> None:
    sender, receiver = DeliveryLog("a", "b1"), DeliveryLog("b", "b2")
    copies(sender, 1, 10, 1, ends=10, to=f"{PEER_PREFIX}b")
    copies(receiver, 1, 10, 1, ends=10, origin=MessageOrigin.PEER)
    for log in (sender, receiver):
        write(tmp_path / log.node, log, 2)
    computed = reference.figures(reference.read(tmp_path))
    summary = summarise(computed)
    assert (summary.published, summary.copies, summary.delivered) == (10, 10, 10)
    assert (summary.peers, summary.again) == ({"matched": 10, "delivered": 10}, {"peer": 10})
    assert [row["count"] for row in computed["latency"]] == [10]


def killed(folder: Path, messages: int) -> None:
    """A run that was killed a second after its last minute: the digests of that one were never written."""
    log = DeliveryLog("gw", "b1", block_rows=100)
    segment = OpenSegment(folder, log.header(0, UNIX_US))
    for number in range(1, messages + 1):
        copies(log, number, 1, number * MINUTE // 500, ends=1)
        for block in log.take(number * MINUTE // 500):
            segment.append(block)
    del segment  # the kernel closes the file
    (part,) = folder.glob("*.part")
    assert "records kept" in salvage(part)


def test_a_killed_run_is_counted_by_its_rows_where_its_digests_end(tmp_path: Path) -> None:
    killed(tmp_path, 990)
    summary = concluded(tmp_path)
    assert (summary.runs, summary.lost) == ({"died": 1}, 0)
    assert (summary.published, summary.delivered) == (950, 950), "the digests tell of 499"


def test_what_a_killed_run_left_open_and_the_next_resumed_is_not_open(tmp_path: Path) -> None:
    log = DeliveryLog("gw", "b1")
    segment = OpenSegment(tmp_path, log.header(0, UNIX_US))
    copies(log, 1, 10, 1, ends=4)
    for block in log.take(2, closing=True):
        segment.append(block)
    del segment
    assert concluded(tmp_path).open == 6
    salvage(next(tmp_path.glob("*.part")))
    after = DeliveryLog("gw", "b2")
    copies(after, 1, 6, 1, ends=6, origin=MessageOrigin.RESUMED)
    write(tmp_path, after, 2, UNIX_US + MINUTE)
    summary = concluded(tmp_path)
    assert (summary.runs, summary.open) == ({"died": 1, "complete": 1}, 0)
    assert (summary.published, summary.copies, summary.delivered, summary.lost) == (10, 10, 10, 0)


def test_a_part_that_is_finished_during_the_report_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = DeliveryLog("gw", "b")
    segment = OpenSegment(tmp_path, log.header(0, UNIX_US))
    copies(log, 1, 5, 1, ends=5)
    for block in log.take(2, closing=True):
        segment.append(block)
    listed = inventory.paths(tmp_path)
    segment.finish()
    assert ingest.content(listed[0], "b") == next(tmp_path.glob("*.edl")).read_bytes()
    listings = iter([listed])
    monkeypatch.setattr(inventory, "paths", lambda folder: next(listings, sorted(folder.iterdir())))
    (found,) = inventory.take_inventory(tmp_path).wanted
    assert (found.path, found.blocks) == (str(next(tmp_path.glob("*.edl"))), "0-1")


HOUR_US = 3_600_000_000


@pytest.mark.parametrize(
    ("name", "readings", "events"),
    [
        # (monotonic, Unix) readings, and where an event at a monotonic instant is placed
        ("1970", [(0, 5_000_000), (60 * 10**6, UNIX_US + 60 * 10**6)], [(1_000_000, UNIX_US + 1_000_000)]),
        (
            "suspended for 8 hours",
            [(0, UNIX_US), (60 * 10**6, UNIX_US + 60 * 10**6), (61 * 10**6, UNIX_US + 61 * 10**6 + 8 * HOUR_US)],
            [(10**6, UNIX_US + 10**6), (62 * 10**6, UNIX_US + 62 * 10**6 + 8 * HOUR_US)],
        ),
        (
            "set back by 8 hours",
            [(0, UNIX_US), (60 * 10**6, UNIX_US + 60 * 10**6 - 8 * HOUR_US)],
            [(10**6, UNIX_US + 10**6), (61 * 10**6, UNIX_US + 61 * 10**6 - 8 * HOUR_US)],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_event_is_placed_by_the_nearest_reading_of_the_clock(
    tmp_path: Path, name: str, readings: list[tuple[int, int]], events: list[tuple[int, int]]
) -> None:
    log = DeliveryLog("gw", name)
    for at_us, unix_us in readings:
        log.anchor(at_us, unix_us)
    for number, (at_us, _) in enumerate(events, 1):
        copies(log, number, 1, at_us, ends=0)
        log.fate(at_us, "p", "s", number, 1, "t", "#", 1, Fate.EXPIRED, Cause.NONE, 5, 8)
    write(tmp_path, log, 100 * MINUTE, readings[0][1])
    rows = reference.figures(reference.read(tmp_path))["throughput"]
    width_s = rows[0]["width_s"]
    placed = {row["at_s"] for row in rows if row["fate"] == Fate.PUBLISHED}
    assert placed == {unix_us // 1_000_000 // width_s * width_s for _, unix_us in events}


def test_a_growing_file_that_was_copied_before_it_was_closed_counts_once(tmp_path: Path) -> None:
    """Its last blocks were provisional: those of the same numbers in the closed file have more rows."""
    log = DeliveryLog("gw", "b")
    directory = DeliveryLogDirectory(tmp_path, log.header, lambda line: None)
    (tmp_path / "copies").mkdir()
    for minute in range(4):
        now = minute * MINUTE
        copies(log, 1 + 5 * minute, 5, now, ends=5)
        directory.append(log.take(now), now, UNIX_US + now)
        for part in tmp_path.glob("*.part"):
            shutil.copy(part, tmp_path / "copies" / f"{minute}{part.name}")
    copied = concluded(tmp_path)
    assert (copied.published, copied.delivered, copied.runs) == (15, 15, {"open": 1}), "minute 3 is not over"
    directory.close(log.take(4 * MINUTE, closing=True), 4 * MINUTE, UNIX_US + 4 * MINUTE)
    summary = concluded(tmp_path)
    assert (summary.published, summary.delivered, summary.runs) == (20, 20, {"complete": 1})
    taken = inventory.take_inventory(tmp_path)
    assert {file.blocks for file in taken.wanted if file.file.endswith(".part")} == {""}
    assert taken.rows == summary.records


def test_small_files_become_one_batch_of_each_table(tmp_path: Path) -> None:
    """A batch of each block alone cost 42 ms per small file."""
    for number in range(20):
        log = DeliveryLog(f"n{number}", "b")
        log.anchor(0, UNIX_US)
        copies(log, 1, 2, 1, ends=2)
        write(tmp_path, log, 2)
    wanted = inventory.take_inventory(tmp_path).wanted
    columns = zip(*((file.path, file.file, file.boot, file.blocks) for file in wanted), strict=True)
    batch = pa.RecordBatch.from_arrays([pa.array(column) for column in columns], ["path", "file", "boot", "blocks"])
    assert [found.num_rows for found in ingest.decoded([batch])] == [20, 80, 60, 20]
