"""The delivery log of a quiet gateway: few bytes for each row, and yet a crash costs no more than the last minute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgebroker.instants import MINUTE, SECOND
from edgebroker.log_schema import Cause, Fate
from edgebroker.runtime.delivery_log import DeliveryLogDirectory, salvage
from edgebroker.storage.deliverylog.format import decode_footer
from edgebroker.storage.deliverylog.reader import read_segment
from edgebroker.storage.deliverylog.writer import DeliveryLog

UNIX_US = 1_760_000_000_000_000
HOUR = 60 * MINUTE
EVERY = 48 * SECOND
"""Between two messages, each with one copy: 150 rows an hour."""


class QuietGateway:
    """A gateway that writes its log as the process does: every second, bit by bit."""

    def __init__(self, folder: Path, **options: int) -> None:
        self.folder = folder
        self.log = DeliveryLog("gw", "b1")
        self.directory = DeliveryLogDirectory(folder, self.log.header, lambda line: None, **options)
        self.directory.start()
        self.messages = 0

    def run(self, until: int, begin: int = 0) -> Iterator[int]:
        for now in range(begin, until, SECOND):
            if not now % MINUTE:
                self.log.anchor(now, UNIX_US + now)
            if not now % EVERY:
                self.publish(now)
            self.write(now)
            yield now

    def publish(self, now: int) -> None:
        self.messages += 1
        topic = f"site/north/sensor-{self.messages % 5}/temp"
        publisher = f"sensor-{self.messages % 5}"
        self.log.published(now, publisher, self.messages, 1, topic, 1, 60, 1)
        self.log.matched(now, publisher, "archive", self.messages, 1, 1)
        self.log.selectivity(now, "archive", "site/#", 1, 1)
        end = Fate.DELIVERED
        self.log.fate(now, publisher, "archive", self.messages, 1, topic, "site/#", 1, end, Cause.NONE, 3_000, 60)

    def write(self, now: int) -> None:
        is_more = True
        while is_more:
            is_more = self.log.step(now)
            self.directory.append(self.log.ready(), now, UNIX_US + now)
            if self.directory.wants_full_blocks(now):
                self.log.finish_waiting()

    def stop(self, now: int) -> None:
        self.directory.close(self.log.take(now, closing=True), now, UNIX_US + now)

    def numbers(self, suffix: str) -> list[int]:
        """The message numbers that the files hold, in order."""
        found: list[int] = []
        for file in sorted(self.folder.glob(f"*{suffix}")):
            segment = read_segment(file.read_bytes(), growing=suffix == ".part")
            assert segment.damage == []
            rows = segment.tables["delivery"]
            found += [
                number for number, fate in zip(rows["message"], rows["fate"], strict=True) if fate == Fate.PUBLISHED
            ]
        return sorted(found)


def test_150_rows_an_hour_take_at_most_40_bytes_each(tmp_path: Path) -> None:
    gateway = QuietGateway(tmp_path)
    *_, now = gateway.run(3 * HOUR)
    gateway.stop(now)
    files = list(tmp_path.iterdir())
    assert len(files) in (3, 4), "one an hour"
    assert gateway.numbers(".edl") == list(range(1, gateway.messages + 1))
    assert sum(file.stat().st_size for file in files) <= 40 * 2 * gateway.messages


def test_at_any_second_the_file_has_all_but_the_last_minute(tmp_path: Path) -> None:
    gateway = QuietGateway(tmp_path)
    for now in gateway.run(2 * HOUR):
        ended = now // MINUTE * MINUTE  # whatever the process had said by then
        if now % (7 * SECOND) == 0:
            safe = sorted(gateway.numbers(".edl") + gateway.numbers(".part"))
            assert safe[: (ended + EVERY - 1) // EVERY] == list(range(1, (ended + EVERY - 1) // EVERY + 1)), now


def test_digests_are_as_safe_as_rows(tmp_path: Path) -> None:
    gateway = QuietGateway(tmp_path)
    *_, _now = gateway.run(10 * MINUTE + SECOND)
    (part,) = tmp_path.glob("*.part")
    digests = read_segment(part.read_bytes(), growing=True).tables["digest"]
    counts = zip(digests["fate"], digests["count"], strict=True)
    assert sum(count for fate, count in counts if fate == Fate.DELIVERED) == 13  # of 14, one in the minute begun now


def test_a_start_keeps_what_a_crash_left_and_says_that_the_run_died(tmp_path: Path) -> None:
    gateway = QuietGateway(tmp_path)
    *_, _now = gateway.run(10 * MINUTE + SECOND)
    gateway.directory = DeliveryLogDirectory(tmp_path, gateway.log.header, lambda line: None)  # the file is closed
    (part,) = tmp_path.glob("*.part")
    assert "records kept" in salvage(part)
    assert gateway.numbers(".edl") == list(range(1, 14))
    (file,) = tmp_path.glob("*.edl")
    footer = decode_footer(file.read_bytes())
    assert footer is not None
    assert (footer.died, footer.final) == (True, False)


def test_a_block_takes_the_place_of_the_provisional_one_with_its_number(tmp_path: Path) -> None:
    gateway = QuietGateway(tmp_path)
    sizes = []
    for now in gateway.run(10 * MINUTE):
        if now % MINUTE == SECOND:
            (part,) = tmp_path.glob("*.part") if now > MINUTE else [tmp_path]
            sizes.append(part.stat().st_size)
    assert max(sizes[1:]) < 1_500, "nine versions of 200 to 1,000 bytes lie over each other"


def test_a_full_disk_loses_no_rows_that_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = QuietGateway(tmp_path)
    *_, _now = gateway.run(3 * MINUTE)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("edgebroker.runtime.delivery_log.write_all", full)
        *_, _now = gateway.run(6 * MINUTE, 3 * MINUTE)
    *_, now = gateway.run(8 * MINUTE, 6 * MINUTE)
    gateway.stop(now)
    assert gateway.directory.blocks_lost == 0
    assert gateway.numbers(".edl") == list(range(1, gateway.messages + 1))
