"""What `DeliveryLog` promises beyond its laws: when blocks are finished, and that memory is bounded."""

from __future__ import annotations

import tracemalloc

import pytest

from edgebroker.instants import MINUTE, SECOND
from edgebroker.log_schema import MIGRATION, TABLES, TRACE, Cause, ColumnType, Fate, Table
from edgebroker.storage.deliverylog import writer
from edgebroker.storage.deliverylog.format import ROWS_MAX, as_full, decode_head, is_provisional
from edgebroker.storage.deliverylog.reader import read_segment
from edgebroker.storage.deliverylog.writer import DeliveryLog


def tables_of(blocks: list[bytes]) -> list[tuple[int, int]]:
    """(table, rows) of every block."""
    heads = [decode_head(block, 0) for block in blocks]
    return [(head.table, head.rows) for head in heads if head]


def test_nothing_is_taken_before_a_block_is_full_or_its_minute_over() -> None:
    log = DeliveryLog("n", "b", block_rows=3)
    log.published(0, "p", 1, 1, "t", 1, 8, 1)
    assert not log.due
    assert log.take(SECOND) == []
    log.published(SECOND, "p", 2, 2, "t", 1, 8, 1)
    assert log.due
    assert tables_of(log.take(SECOND)) == [(0, 3)]  # "full" is three rows or more
    log.published(SECOND, "p", 4, 1, "t", 1, 8, 1)
    provisional = log.take(MINUTE)
    assert tables_of(provisional) == [(0, 1), (1, 1)]
    assert all(map(is_provisional, provisional))
    full = log.take(MINUTE, closing=True)
    assert [as_full(block) for block in provisional] == full
    assert log.take(MINUTE, closing=True) == []


def test_a_fact_of_the_next_minute_finishes_the_one_before() -> None:
    log = DeliveryLog("n", "b")
    log.matched(0, "p", "s", 1, 1, 0)
    log.selectivity(1, "s", "t/#", 5, 4)
    log.matched(MINUTE, "p", "s", 2, 1, 0)
    assert tables_of(log.take(MINUTE)) == [(1, 1), (2, 1)]
    log.selectivity(2 * MINUTE, "s", "t/#", 1, 0)
    assert tables_of(log.take(2 * MINUTE)) == [(1, 2), (2, 1)], "with what is in provisional blocks already"


def test_closing_gives_everything_and_the_log_goes_on() -> None:
    log = DeliveryLog("n", "b")
    log.anchor(0, 5)
    log.fate(1, "p", "s", 7, 1, "t", "t", 1, Fate.QUEUED, Cause.NONE, 9, 8)
    first = log.take(2, closing=True)
    log.fate(3, "p", "s", 8, 1, "t", "t", 1, Fate.QUEUED, Cause.NONE, 9, 8)
    segment = read_segment(log.header(0, 0) + b"".join(first + log.take(4, closing=True)), growing=True)
    assert segment.damage == []
    assert segment.tables["delivery"]["message"] == [7, 8]
    assert segment.tables["digest"]["sum"] == [7, 8]
    assert segment.tables["anchor"] == {"t_us": [0], "unix_us": [5]}


@pytest.mark.parametrize("table", [TRACE, MIGRATION], ids=lambda table: table.name)
def test_rows_of_publishers_that_are_placed_wait_like_others(table: Table) -> None:
    def row(number: int) -> tuple[object, ...]:
        extremes = -(2**63), 2**63 - 1
        values: list[object] = [number]
        for place, column in enumerate(table.columns[1:]):
            values.append(extremes[(number + place) % 2] if column.type is ColumnType.INT else f"{number % 40}-{place}")
        return tuple(values)

    rows = [row(number) for number in range(1_030)]
    log = DeliveryLog("n", "b")
    log.placed(1, table, rows)
    assert tables_of(log.take(2)) == [(TABLES.index(table), 1_024)]
    provisional = log.take(MINUTE)
    assert (tables_of(provisional), is_provisional(provisional[0])) == ([(TABLES.index(table), 6)], True)
    log.placed(2 * MINUTE, table, rows[:1])
    segment = read_segment(log.header(0, 0) + b"".join(log.take(2 * MINUTE, closing=True)), growing=True)
    assert segment.damage == []
    assert [*zip(*segment.tables[table.name].values(), strict=True)] == rows[1_024:] + rows[:1]


def test_blocks_are_numbered_through() -> None:
    log = DeliveryLog("n", "b", block_rows=1)
    log.published(0, "p", 1, 3, "t", 2, 8, 1)
    heads = [decode_head(block, 0) for block in log.take(0, closing=True)]
    assert [head.sequence for head in heads if head] == [0, 1, 2, 3]


@pytest.mark.parametrize(("sample", "kept"), [(1, [5, 6, 7, 8, 9, 10]), (4, [8]), (5, [5, 10]), (0, []), (100, [])])
def test_qos_0_rows_are_chosen_by_number(sample: int, kept: list[int]) -> None:
    log = DeliveryLog("n", "b", sample)
    log.published(0, "p", 5, 6, "t", 0, 8, 1)
    log.published(0, "p", 5, 6, "t", 1, 8, 1)
    tables = read_segment(log.header(0, 0) + b"".join(log.take(0, closing=True)), growing=True).tables
    by_qos = zip(tables["delivery"]["message"], tables["delivery"]["qos"], strict=True)
    assert [number for number, qos in by_qos if qos == 0] == kept
    assert tables["digest"]["count"] == [6, 6]


def test_more_flows_than_the_bound_are_written_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "DIGESTS_MAX", 10)
    log = DeliveryLog("n", "b")
    for number in range(25):
        log.matched(0, "p", f"s{number}", number, 1, 0)
        log.selectivity(0, f"s{number}", "t", 1, 1)
    assert tables_of(log.take(0)) == [(1, 10), (2, 10), (1, 10), (2, 10)]
    assert tables_of(log.take(0, closing=True)) == [(1, 5), (2, 5)]


def test_settings_out_of_range_are_refused() -> None:
    for block_rows in (0, ROWS_MAX // 2 + 1):
        with pytest.raises(ValueError, match="block_rows"):
            DeliveryLog("n", "b", block_rows=block_rows)
    with pytest.raises(ValueError, match="sample_qos0"):
        DeliveryLog("n", "b", -1)


def test_memory_stays_below_4_mib_with_usual_texts() -> None:
    devices = [f"edgedevice-{number:03d}" for number in range(200)]
    topics = [f"site/north/truck-{number}/temperature" for number in range(200)]
    log = DeliveryLog("gateway", "boot")
    tracemalloc.start()
    try:
        for number in range(1, 8_001):
            now, device = number * 1_000, number % 200
            log.published(now, devices[device], number, 1, topics[device], 1, 90, 1)
            log.matched(now, devices[device], "dashboard", number, 1, 1)
            log.fate(now + 7, devices[device], "dashboard", number, 1, topics[device], "site/#", 1, 3, 0, 700, 90)
            if log.due:
                log.take(now)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * 2**20


def test_long_topics_do_not_pile_up() -> None:
    log = DeliveryLog("n", "b")
    kept = most = 0
    for number in range(200):
        topic = f"{number}" + "\N{GRINNING FACE}" * 16_000  # 64 KiB in UTF-8
        log.published(0, "p", number, 1, topic, 1, 8, 0)
        blocks = log.take(0)
        kept += sum(rows for _, rows in tables_of(blocks))
        most = max(most, *(rows for _, rows in tables_of(blocks)), 0, 0)
    assert most <= writer.TEXT_CHARS_MAX // 16_000 + 1
    assert kept >= 200 - most


def blocks_waiting(log: DeliveryLog) -> int:
    return len(log._making)


def test_a_block_is_made_in_steps_and_says_what_it_says_in_one_go() -> None:
    facts = [(number, f"p{number % 7}", f"t/{number % 300}") for number in range(1, 3_000)]
    quick, slow = DeliveryLog("n", "b"), DeliveryLog("n", "b")
    blocks: list[bytes] = []
    steps = 0
    for log in (quick, slow):
        for number, publisher, topic in facts:
            log.published(number, publisher, number, 1, topic, 1, number % 90, 1)
            log.selectivity(number, publisher, topic, 2, 1)
    while slow.step(2 * MINUTE):
        blocks += slow.ready()
        steps += 1
    assert steps > 20, "it did not come in one go"
    assert blocks == quick.take(2 * MINUTE)
    assert not slow.due


def test_a_block_is_made_before_the_next_is_full_although_nobody_asks_for_it() -> None:
    log = DeliveryLog("n", "b")
    for number in range(1, 40_000):
        log.published(number, f"p{number % 100}", number, 1, f"t/{number % 500}", 1, number % 90, 1)
        assert blocks_waiting(log) <= 1
    for number in range(1, 40_000):  # flows and filters that were never seen are no rows, and yet work
        log.matched(1, "p", f"s{number}", number, 1, 0)
        log.selectivity(1, f"s{number}", f"t/{number}", 1, 1)
        assert blocks_waiting(log) <= 3
    log.published(1, "p", 1, 50_000, "t", 1, 8, 1)
    assert blocks_waiting(log) <= 2


def test_blocks_that_nobody_has_time_for_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "FACTS_PER_STEP", 1_000_000)
    log = DeliveryLog("n", "b", block_rows=10)
    for number in range(1, 1_001):
        log.published(0, "p", number, 1, "t", 1, 8, 1)
        assert blocks_waiting(log) <= writer.MAKING_MAX
    segment = read_segment(log.header(0, 0) + b"".join(log.take(0, closing=True)), growing=True)
    assert segment.damage == []
    assert segment.tables["delivery"]["message"] == list(range(1, 1_001))


def test_finished_blocks_are_handed_out_in_order_and_a_few_at_a_time() -> None:
    log = DeliveryLog("n", "b", block_rows=1)
    for number in range(1, 101):
        log.published(0, "p", number, 1, "t", 1, 8, 1)
    while blocks_waiting(log):
        log.step(0)
    portions: list[list[bytes]] = []
    while log.due:
        portions.append(log.ready())
    assert [len(portion) for portion in portions] == [50, 25, 12, 6, 4, 3]
    heads = [decode_head(block, 0) for portion in portions for block in portion]
    assert [head.sequence for head in heads if head] == list(range(100))


def test_a_block_that_cannot_be_made_leaves_a_gap_and_the_log_goes_on() -> None:
    log = DeliveryLog("n", "b", block_rows=1)
    log.published(0, "p", 1, 1, "t", 1, 8, 1)
    blocks = log.take(0)
    log.published(0, "p", 2, 1, "no text: \ud800", 1, 8, 1)
    with pytest.raises(UnicodeEncodeError):
        log.take(0)
    log.published(0, "p", 3, 1, "t", 1, 8, 1)
    segment = read_segment(log.header(0, 0) + b"".join(blocks + log.take(0)), growing=True)
    assert segment.tables["delivery"]["message"] == [1, 3]
    assert ["block 1 of the log" in str(damage) for damage in segment.damage] == [True]
