"""Rows with a trace, beside those of files from before there were traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cbor2
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from edgeanalytics import ingest
from edgeanalytics.inventory import take_inventory
from edgebroker.log_schema import Fate, TraceParent
from edgebroker.runtime.delivery_log import OpenSegment
from edgebroker.storage.deliverylog import format as edl
from edgebroker.storage.deliverylog.writer import DeliveryLog
from tests.support import plain_figures as reference

TRACE = TraceParent("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
ROWS = [
    ("new", 1, "", ""),
    ("new", 1, "", ""),
    ("new", 2, *TRACE),
    ("new", 2, *TRACE),
    ("old", 1, "", ""),
    ("old", 1, "", ""),
    ("old", 2, "", ""),
    ("old", 2, "", ""),
]
"""boot, message, trace id, parent id"""


def as_before(block: bytes) -> bytes:
    """*block* as it was written when delivery rows had no trace."""
    head = edl.decode_head(block, 0)
    assert head is not None
    body = edl.decode_body(head, block[edl.BLOCK_HEAD_BYTES :])
    assert body is not None
    for name in ("trace_id", "parent_id"):
        body.pop(name, None)
    return edl.frame(head.table, head.sequence, head.rows, cbor2.dumps(body), head.t_first_us, head.t_last_us)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that say the same, message 2 with a trace: one by a broker of today, one by an older one."""
    folder = tmp_path_factory.mktemp("traces")
    for boot in ("new", "old"):
        log = DeliveryLog("gw", boot)
        for number, trace in ((1, None), (2, TRACE)):
            log.published(number, "p", number, 1, "t", 1, 8, 1, trace)
            log.matched(number, "p", "s", number, 1, 1)
            log.fate(5, "p", "s", number, 1, "t", "t", 1, Fate.DELIVERED, 0, 4, 8, trace)
        segment = OpenSegment(folder, log.header(0, 0))
        for block in log.take(6, closing=True):
            segment.append(block if boot == "new" else as_before(block))
        segment.finish(final=True)
    return folder


def seen(rows: Any) -> list[tuple[Any, ...]]:
    """As in `ROWS`."""
    return sorted((row["boot"], row["message"], row["trace_id"], row["parent_id"]) for row in rows)


def test_old_and_new_files_are_read_together(folder: Path) -> None:
    rows = reference.read(folder)
    assert rows["damage"] == []
    assert seen(rows["delivery"]) == ROWS
    assert {row["state"] for row in reference.figures(rows)["audit"]} == {"complete"}


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_spark_reads_them_alike(spark: Any, folder: Path) -> None:
    tables = ingest.read(spark, take_inventory(folder))
    assert tables.damage.count() == 0
    assert seen(tables.delivery.collect()) == ROWS
