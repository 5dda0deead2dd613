"""A row of the delivery log stands for a whole run of QoS 0 messages; readers see a row for each of them."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.frontend.connection import OutBatch
from edgebridge.frontend.federation.peer_copies import PeerCopyLedger
from edgebroker.cbor import encode_cbor
from edgebroker.header import EventHeader
from edgebroker.log_schema import DELIVERY, DIGEST, Cause, Fate
from edgebroker.node.ledger import Ledger
from edgebroker.overlay.messages import EventSeries, Forward
from edgebroker.storage.deliverylog import columns
from edgebroker.storage.deliverylog.format import (
    ROWS_MAX,
    RUN,
    BlockHead,
    decode_head,
    decode_rows,
)
from edgebroker.storage.deliverylog.reader import read_segment
from edgebroker.storage.deliverylog.writer import COUNT_MAX, DeliveryLog


def tables(log: DeliveryLog, blocks: list[bytes] | None = None) -> dict[str, dict[str, list[Any]]]:
    blocks = log.take(0, closing=True) if blocks is None else blocks
    segment = read_segment(log.header(0, 0) + b"".join(blocks), growing=True)
    assert segment.damage == []
    return segment.tables


def digests(log: DeliveryLog) -> dict[tuple[Any, ...], int]:
    """(publisher, subscriber, fate) -> count"""
    digest = tables(log)[DIGEST.name]
    names = ("publisher", "subscriber", "fate", "count")
    found: dict[tuple[Any, ...], int] = {}
    for publisher, subscriber, fate, count in zip(*(digest[name] for name in names), strict=True):
        key = (publisher, subscriber, Fate(fate))
        found[key] = found.get(key, 0) + count
    return found


def test_a_run_is_one_row_on_disk_and_a_row_for_each_sampled_message_when_read() -> None:
    log = DeliveryLog("n", "b", sample_qos0=10)
    log.published(5, "p", 1, 700, "t", 0, 8, 1, event=(7, 1_001))
    log.fate(9, "p", "s", 1, 700, "t", "t/#", 0, Fate.DELIVERED, Cause.NONE, 4, 8)
    blocks = log.take(0, closing=True)
    head = decode_head(blocks[0], 0)
    assert head is not None
    assert head.rows == 2
    delivery = tables(log, blocks)[DELIVERY.name]
    numbers = list(range(10, 701, 10))
    assert delivery["message"] == numbers + numbers
    assert delivery["event_sequence"] == [1_000 + number for number in numbers] + [0] * 70
    assert (set(delivery["topic"]), set(delivery["filter"])) == ({"t"}, {"", "t/#"})
    assert set(delivery) == {column.name for column in DELIVERY.columns}


def test_a_block_without_runs_has_no_columns_for_them() -> None:
    log = DeliveryLog("n", "b", sample_qos0=10)
    log.published(5, "p", 10, 1, "t", 0, 8, 1)
    block = log.take(0, closing=True)[0]
    assert tables(log, [block])[DELIVERY.name]["message"] == [10]
    other = DeliveryLog("n", "b", sample_qos0=10)
    other.published(5, "p", 10, 11, "t", 0, 8, 1)
    assert len(other.take(0, closing=True)[0]) > len(block)


def test_long_runs_are_divided_so_that_no_block_unfolds_beyond_its_bound() -> None:
    log = DeliveryLog("n", "b")
    log.published(0, "p", 1, 3 * COUNT_MAX + 5, "t", 0, 8, 1)
    blocks = log.take(0, closing=True)
    read = [tables(log, [block])[DELIVERY.name]["message"] for block in blocks]
    assert max(map(len, read)) <= ROWS_MAX
    assert [number for numbers in read for number in numbers] == list(range(1, 3 * COUNT_MAX + 6))


@pytest.mark.parametrize("counts", [[0, 1], [-1, 3], [ROWS_MAX, 1], [2**62, 1]])
def test_rows_that_stand_for_nothing_or_for_too_many_are_damage(counts: list[int]) -> None:
    count, step = RUN
    body = {count.name: columns.encode(count, counts), step.name: columns.encode(step, [1, 1])}
    head = BlockHead(0, 0, 2, len(encode_cbor(body)), 0, 0, 0, 0)
    with pytest.raises(columns.ColumnDamaged, match="stand for"):
        decode_rows(DELIVERY, head, body)


def test_numbers_of_a_run_wrap_as_all_numbers_do() -> None:
    count, step = RUN
    body = {
        name: columns.encode(column, [value])
        for column, name, value in (
            (count, count.name, 2),
            (step, step.name, 2**63 - 1),
            (DELIVERY.columns[1], "message", 2**63 - 1),
        )
    }
    rows = decode_rows(DELIVERY, BlockHead(0, 0, 1, 0, 0, 0, 0, 0), body)
    assert rows["message"] == [2**63 - 1, -2]


def test_messages_without_rows_are_told_to_the_log_as_one_run() -> None:
    log = DeliveryLog("n", "b", sample_qos0=100)
    ledger = Ledger(log)
    for number in range(1, 250):
        assert ledger.accept(5, "p", 1, f"t/{number % 7}", 0, 8, 2) == number
    ledger.accept(5, "q", 1, "t", 0, 8, 1)
    ledger.end_run(5)
    ledger.end_run(5)  # there is none
    assert digests(log) == {("p", "", Fate.PUBLISHED): 249, ("q", "", Fate.PUBLISHED): 1}
    assert tables(DeliveryLog("n", "b"), [])[DELIVERY.name]["message"] == []


def test_a_sampled_message_has_its_row_amid_such_a_run() -> None:
    log = DeliveryLog("n", "b", sample_qos0=100)
    ledger = Ledger(log)
    for number in range(1, 250):
        ledger.accept(5, "p", 1, f"t/{number}", 0, 8, 2)
    ledger.end_run(5)
    found = tables(log)
    assert found[DELIVERY.name]["topic"] == ["t/100", "t/200"]
    assert sum(found[DIGEST.name]["count"]) == 249
    assert sum(found[DIGEST.name]["sum"]) == sum(range(1, 250))


def series(sequence: int, count: int) -> EventSeries | Forward:
    first = Forward(EventHeader(7, sequence, 0, 0, 0, 0, 0, 0, 0, 0), "t", b"x" * count, 0, False, "p")
    return EventSeries(first, count) if count > 1 else first


@pytest.mark.parametrize("sample", [1, 100])
def test_a_series_to_a_peer_may_end_in_parts_and_in_any_order(sample: int) -> None:
    log = DeliveryLog("n", "b", sample_qos0=sample)
    ledger = Ledger(log)
    copies = PeerCopyLedger(ledger)
    for start in (1, 21):
        first = ledger.accept(5, "p", 20, "t", 0, 1, 1, event=(7, start))
        batch = OutBatch("p", first, 20, "t", "", 5, 1, ledger.is_sampled(first, 20), None)
        copies.open_batch("x", (7, start), batch, 5)
    copies.delivered("x", [series(1, 5), series(8, 1)], 9)
    copies.dropped("x", [series(21, 20)], Cause.QUEUE_FULL, Fate.DROPPED, 9)
    copies.dropped("x", [series(6, 2)], Cause.NONE, Fate.EXPIRED, 9)
    copies.delivered("x", [series(12, 2)], 9)
    assert (ledger.delivered, ledger.expired, ledger.dropped) == (8, 2, {Cause.QUEUE_FULL: 20})
    copies.close_books(9)
    ledger.end_run(9)
    assert digests(log) == {
        ("p", "", Fate.PUBLISHED): 40,
        ("p", "gateway:x", Fate.MATCHED): 40,
        ("p", "gateway:x", Fate.DELIVERED): 8,
        ("p", "gateway:x", Fate.DROPPED): 20,
        ("p", "gateway:x", Fate.EXPIRED): 2,
        ("p", "gateway:x", Fate.QUEUED): 10,
    }
