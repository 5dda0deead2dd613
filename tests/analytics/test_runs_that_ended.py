"""A run is judged only if it says that it ended: a crash or a running broker must not look like a loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from edgeanalytics import figures
from edgebroker.limits import LOG_SEGMENT_BYTES_MAX
from edgebroker.log_schema import Cause, Fate
from edgebroker.runtime.delivery_log import DeliveryLogDirectory
from edgebroker.storage.deliverylog.writer import DeliveryLog
from tests.support import plain_figures as reference

UNIX_US = 1_760_000_000_000_000
JUDGEMENTS = {
    "died": ("died", 0, 1),
    "running": ("open", 0, 1),
    "ended": ("complete", 0, 0),
    "forgot": ("complete", 1, 0),
}
"""Run -> state, copies lost, copies open."""


class Broker:
    """A broker's log, through the log directory that a gateway uses."""

    def __init__(self, folder: Path, boot: str, segment_bytes_max: int = LOG_SEGMENT_BYTES_MAX) -> None:
        self.log = DeliveryLog(f"gateway of {boot}", boot)  # none of them is the next run of another
        self.dir = DeliveryLogDirectory(
            folder / boot, self.log.header, lambda _: None, segment_bytes_max=segment_bytes_max
        )
        self.dir.start()

    def copy(self, number: int, *, ended: bool) -> None:
        """A message with one copy, which is delivered or stays in flight; then everything noted goes to the disk."""
        self.log.anchor(number, UNIX_US)
        self.log.published(number, "probe", number, 1, "t", 1, 8, 1)
        self.log.matched(number, "probe", "view", number, 1, 1)
        if ended:
            self.end(number, Fate.DELIVERED)
        self.dir.append(self.log.take(number, closing=True), number, UNIX_US)

    def end(self, number: int, fate: Fate) -> None:
        self.log.fate(number, "probe", "view", number, 1, "t", "#", 1, fate, Cause.NONE, 1, 8)

    def stop(self) -> None:
        self.dir.close(self.log.take(9, closing=True), 9, UNIX_US)

    def crash(self) -> None:
        """As the kernel does for a killed process, close the file as it is: nothing refers to it any more."""
        del self.dir


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four runs with message 2 in flight: one died, one runs on, one ended and told of it, one ended and forgot it."""
    folder = tmp_path_factory.mktemp("runs")
    for boot in JUDGEMENTS:
        broker = Broker(folder, boot, 1 if boot == "running" else LOG_SEGMENT_BYTES_MAX)
        broker.copy(1, ended=True)
        broker.copy(2, ended=False)
        if boot == "died":
            broker.crash()
            DeliveryLogDirectory(folder / boot, broker.log.header, lambda _: None).start()
        elif boot != "running":
            if boot == "ended":
                broker.end(2, Fate.QUEUED)
            broker.stop()
    return folder


def judged(audit: list[dict[str, Any]]) -> dict[str, tuple[str, int, int]]:
    """Run -> state, copies lost, copies open: as in `JUDGEMENTS`."""
    return {row["boot"]: (row["state"], row["lost"], row["open"]) for row in audit}


def test_every_file_is_finished_so_that_only_the_mark_tells_the_runs_apart(folder: Path) -> None:
    assert list(folder.rglob("*.part")) == []
    assert len(list((folder / "running").iterdir())) == 2


@pytest.mark.parametrize("boot", JUDGEMENTS)
def test_a_run_is_complete_if_it_ended_cleanly_and_open_otherwise(folder: Path, boot: str) -> None:
    audit = reference.figures(reference.read(folder))["audit"]
    assert judged(audit)[boot] == JUDGEMENTS[boot]


def test_a_run_that_rotated_and_then_ended_is_complete(tmp_path: Path) -> None:
    broker = Broker(tmp_path, "b", segment_bytes_max=1)
    broker.copy(1, ended=True)
    broker.stop()
    assert judged(reference.figures(reference.read(tmp_path))["audit"]) == {"b": ("complete", 0, 0)}


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_spark_judges_alike(spark: Any, folder: Path) -> None:
    assert judged(figures.compute(spark, folder, lambda _: None)["audit"]) == JUDGEMENTS
