"""Copies of shared subscriptions: handed over they are no loss and no duplicate, and a client may have two copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgebroker.log_schema import Cause, Fate
from edgebroker.runtime.delivery_log import OpenSegment
from edgebroker.storage.deliverylog.writer import DeliveryLog

pytest.importorskip("pyspark", reason="the analytics are not installed")

from edgeanalytics import figures
from tests.support import plain_figures as reference

SHARED = "$share/g/t"
UNIX_US = 1_800_000_000_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Message 1 goes from member a to b and back to a; message 2 to a twice, as a member and by itself."""
    folder = tmp_path_factory.mktemp("groups")
    log = DeliveryLog("gateway", "boot", 1)
    segment = OpenSegment(folder, log.header(0, UNIX_US))
    log.anchor(0, UNIX_US)
    log.published(10, "p", 1, 1, "t", 1, 5, 1)
    for now, member, fate, cause in (
        (20, "a", Fate.DROPPED, Cause.HANDED_OVER),
        (30, "b", Fate.DROPPED, Cause.HANDED_OVER),
        (40, "a", Fate.DELIVERED, Cause.NONE),
    ):
        log.matched(now, "p", member, 1, 1, 1)
        log.fate(now, "p", member, 1, 1, "t", SHARED, 1, fate, cause, 10, 5)
    log.published(50, "p", 2, 1, "t", 1, 5, 2)
    for text in (SHARED, "t"):
        log.matched(50, "p", "a", 2, 1, 1)
        log.fate(60, "p", "a", 2, 1, "t", text, 1, Fate.DELIVERED, Cause.NONE, 10, 5)
    log.anchor(70, UNIX_US + 70)
    for block in log.take(80, closing=True):
        segment.append(block)
    segment.finish(final=True)
    return folder


def test_the_reference_finds_nothing_wrong(folder: Path) -> None:
    found = reference.figures(reference.read(folder))
    assert found["messages"] == []
    assert [(row["state"], row["lost"], row["duplicated"]) for row in found["audit"]] == [("complete", 0, 0)]


@pytest.mark.slow
def test_spark_agrees(spark: Any, folder: Path) -> None:
    computed, expected = figures.compute(spark, folder, lambda line: None), reference.figures(reference.read(folder))
    for table in ("messages", "audit", "flows"):
        assert computed[table] == expected[table]
