"""Random fleets whose truth is known: no loss is made up, and none that can be known is missed.

EDGEBROKER_REPORT_FLEETS=500 .venv/bin/pytest tests/analytics/test_random_fleets.py      as many as wanted
"""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from edgeanalytics import figures
from edgeanalytics.summary import summarise
from edgebroker.log_schema import Cause, Fate, MessageOrigin
from edgebroker.runtime.delivery_log import OpenSegment, salvage
from edgebroker.storage.deliverylog.writer import DeliveryLog
from tests.support import plain_figures as reference

FLEETS = int(os.environ.get("EDGEBROKER_REPORT_FLEETS", "100"))
UNIX_US = 1_760_000_000_000_000
HOUR_US = 3_600_000_000
Run = tuple[str, str]


@dataclass
class KnownRun:
    """What is known of one run."""

    files: dict[Path, int] = field(default_factory=dict)
    """File -> how many of its bytes are needed: all of the final one, of others those before the footer."""
    lost: int = 0
    duplicated: int = 0
    is_complete: bool = True
    """Whether it ended cleanly and every block of it is in some file, so that its losses can be known."""


@dataclass
class Waiting:
    """Copies that wait at the end of a run, for the next one to resume."""

    publisher: str
    subscriber: str
    qos: int


class RandomFleet:
    """The log directory of one or two gateways, and what happened to it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.runs: dict[Run, KnownRun] = {}
        self.published = 0
        names = [f"gw-{seed}", f"gw-{seed}" if self.random.random() < 0.3 else f"other-{seed}"]  # same-named ones, too
        for place, node in enumerate(names[: self.random.choice((1, 1, 2))]):
            self._gateway(folder / str(place), node, f"{seed}-{place}")
        self._spoil()

    def _gateway(self, folder: Path, node: str, identity: str) -> None:
        folder.mkdir(parents=True)
        waiting: list[Waiting] = []
        unix_us = UNIX_US
        for nth in range(self.random.choice((1, 2, 3))):
            unix_us += 24 * HOUR_US
            clock = self.random.choice((unix_us, unix_us, 5_000_000, unix_us - 8 * HOUR_US, unix_us + 8 * HOUR_US))
            waiting = self._run(folder, node, f"{identity}-{nth}", waiting, clock, unix_us)

    def _run(
        self, folder: Path, node: str, boot: str, waiting: list[Waiting], clock_us: int, unix_us: int
    ) -> list[Waiting]:
        """One run: it resumes what waits, publishes, and ends cleanly or is killed. Returns what waits then."""
        chance = self.random
        known = self.runs[node, boot] = KnownRun()
        log = DeliveryLog(node, boot, chance.choice((1, 1, 3, 0)), block_rows=chance.choice((7, 40, 200)))
        is_killed = chance.random() < 0.2
        now = chance.randrange(10**9)
        log.anchor(now, clock_us)
        number, blocks, open_copies = 0, 0, []
        for copy in waiting:
            number += 1
            origin = MessageOrigin.RESUMED
            log.published(now, copy.publisher, number, 1, "t", copy.qos, 8, 1, origin=origin)
            log.matched(now, copy.publisher, copy.subscriber, number, 1, copy.qos, origin)
            open_copies.append((copy, number, origin))
        for nth in range(files := chance.choice((1, 2, 3))):
            segment = OpenSegment(folder, log.header(now, clock_us + nth))
            for _ in range(chance.randrange(30)):
                now += chance.randrange(5_000_000)
                number += 1
                self._publish(log, number, now, known, open_copies)
                while open_copies and chance.random() < 0.4:
                    self._end(log, now, *open_copies.pop(chance.randrange(len(open_copies))), known)
                for block in log.take(now):
                    segment.append(block)
            log.anchor(now, unix_us + now)
            is_last = nth == files - 1
            if is_last and is_killed:
                known.is_complete = False
                self._kill(segment, known)
                break
            if is_last:
                for copy, message, origin in open_copies:
                    self._log_end(log, now, copy, message, origin, Fate.QUEUED, Cause.NONE)
            for block in log.take(now, closing=is_last):
                segment.append(block)
            blocks += len(segment.blocks)
            needed_bytes = 0 if is_last else segment.size
            is_needed = is_last or bool(segment.blocks)
            path = segment.finish(final=is_last, blocks_end=blocks)
            if is_needed:
                known.files[path] = needed_bytes or path.stat().st_size
        return [copy for copy, _, _ in open_copies if copy.qos]

    def _kill(self, segment: OpenSegment, known: KnownRun) -> None:
        has_blocks = bool(segment.blocks)
        path = segment.path
        segment.abandon()
        if has_blocks and self.random.random() < 0.7:
            salvage(path)
            return
        if has_blocks:
            known.files[path] = 0

    def _publish(self, log: DeliveryLog, number: int, now: int, known: KnownRun, open_copies: list[Any]) -> None:
        chance = self.random
        publisher, qos = f"p{chance.randrange(2)}", chance.choice((0, 1, 2))
        subscribers = [name for name in ("a", "b", "gateway:peer") if chance.random() < 0.5]
        log.published(now, publisher, number, 1, "t", qos, 8, len(subscribers))
        self.published += 1
        if not subscribers:
            log.filtered(now, publisher, number, 1, "t", qos, Cause.NO_SUBSCRIBER, 8)
        for subscriber in subscribers:
            log.matched(now, publisher, subscriber, number, 1, qos)
            if chance.random() < 0.01:
                known.lost += 1
            else:
                open_copies.append((Waiting(publisher, subscriber, qos), number, MessageOrigin.CLIENT))

    def _end(
        self, log: DeliveryLog, now: int, copy: Waiting, number: int, origin: MessageOrigin, known: KnownRun
    ) -> None:
        fate, cause = self.random.choice(
            ((Fate.DELIVERED, Cause.NONE), (Fate.EXPIRED, Cause.NONE), (Fate.DROPPED, Cause.QUEUE_FULL))
        )
        self._log_end(log, now, copy, number, origin, fate, cause)
        if self.random.random() < 0.01:
            known.duplicated += 1
            self._log_end(log, now, copy, number, origin, Fate.DELIVERED, Cause.NONE)

    def _log_end(
        self, log: DeliveryLog, now: int, copy: Waiting, number: int, origin: int, fate: Fate, cause: Cause
    ) -> None:
        log.fate(now, copy.publisher, copy.subscriber, number, 1, "t", "#", copy.qos, fate, cause, 5, 8, origin=origin)

    def _spoil(self) -> None:
        """Files go missing, are copied, cut short, or uploaded again, under the same name or another."""
        chance = self.random
        for known in self.runs.values():
            for file, needed_bytes in known.files.items():
                data, kind = file.read_bytes(), chance.random()
                if kind < 0.1:  # missing
                    file.unlink()
                    known.is_complete = False
                elif kind < 0.2:  # cut short
                    end = chance.randrange(1, len(data))
                    file.write_bytes(data[:end])
                    known.is_complete &= end >= needed_bytes
                elif kind < 0.4:  # copied, or cut short when it was uploaded for the first time
                    upload = self.folder / "upload"
                    upload.mkdir(exist_ok=True)
                    end = chance.choice((len(data), chance.randrange(1, len(data))))
                    name = chance.choice((file.name, "1-" + file.name))
                    (upload / name).write_bytes(data[:end])
                elif kind < 0.45:  # the first upload was whole, the second is not
                    shutil.copy(file, self.folder / ("whole-" + file.name))
                    file.write_bytes(data[: chance.randrange(1, len(data))])


@pytest.fixture(scope="module")
def fleets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[RandomFleet]]:
    folder = tmp_path_factory.mktemp("fleets")
    made = [RandomFleet(folder / f"{seed}", seed) for seed in range(FLEETS)]
    return folder, [fleet for fleet in made if list(fleet.folder.rglob("*.edl*"))]


def check(fleet: RandomFleet, audit: list[dict[str, Any]]) -> None:
    """What *audit* says of the runs of *fleet* is what happened."""
    seed = fleet.folder.name
    judged = {(row["node"], row["boot"]): row for row in audit}
    for run, known in fleet.runs.items():
        row = judged.get(run)
        if row is None:
            assert not known.is_complete or not known.files, (seed, run)
            continue
        assert (row["state"] == "complete") == known.is_complete, (seed, run, row)
        if known.is_complete:
            found, planted = (row["lost"], row["duplicated"]), (known.lost, known.duplicated)
            if row["sample_qos0"] == 1:
                assert found == planted, (seed, run, row)
            else:  # without rows, a loss and a duplicate in one flow may hide another pair
                assert all(0 < one <= two or one == two for one, two in zip(found, planted, strict=True)), (seed, run)
        else:
            assert row["lost"] == 0, (seed, run, row)
            assert row["duplicated"] <= known.duplicated, (seed, run, row)


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_no_loss_is_made_up_and_none_is_missed(fleets: tuple[Path, list[RandomFleet]]) -> None:
    planted = 0
    for fleet in fleets[1]:
        computed = reference.figures(reference.read(fleet.folder))
        check(fleet, computed["audit"])
        summary = summarise(computed)
        assert summary.published <= fleet.published, fleet.folder.name
        if all(known.is_complete for known in fleet.runs.values()):
            assert summary.published == fleet.published, fleet.folder.name
            assert summary.open == 0, fleet.folder.name
        planted += sum(known.lost for known in fleet.runs.values() if known.is_complete)
    assert planted > FLEETS // 5


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_spark_concludes_the_same_of_all_of_them_together(
    spark: Any, fleets: tuple[Path, list[RandomFleet]], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = {name: replace(shown, rows_max=10**6) for name, shown in figures.TABLES.items()}
    monkeypatch.setattr(figures, "TABLES", whole)
    computed = figures.compute(spark, fleets[0], lambda line: None)
    for fleet in fleets[1]:
        check(fleet, computed["audit"])
    expected = reference.figures(reference.read(fleets[0]))
    for name in figures.TABLES:
        assert computed[name] == expected[name], name
