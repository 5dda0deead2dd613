"""Laws of the delivery log: what is written is read; digests equal brute force; parts add up to the whole."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import reduce
from operator import xor
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from edgebroker.instants import MINUTE
from edgebroker.log_schema import DIGEST, SUM_MODULUS, Column, ColumnType, Fate, TraceParent
from edgebroker.storage.deliverylog import columns
from edgebroker.storage.deliverylog.format import ROWS_MAX, LogHeader, decode_head
from edgebroker.storage.deliverylog.reader import LogFile, read_segment
from edgebroker.storage.deliverylog.writer import DeliveryLog, sum_of_run, xor_of_run

whole = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300) | st.integers(-5, 70_000)
texts = st.text(max_size=8).filter(lambda text: text.isprintable())
names = st.sampled_from(["a", "b", "c"])
runs = st.tuples(
    st.integers(0, MINUTE // 3),  # time since the one before
    st.sampled_from(["published", "filtered", "matched", "fate", "selectivity", "anchor", "take"]),
    names,
    names,
    st.integers(0, 40),  # first: so small that numbers meet and repeat
    st.integers(1, 30),
    st.integers(0, 2),
    st.integers(0, 4_000),
)


def segment_of(log: DeliveryLog, blocks: list[bytes]) -> LogFile:
    return read_segment(log.header(0, 0) + b"".join(blocks), growing=True)


def play(log: DeliveryLog, facts: list[tuple[Any, ...]], now: int = 0) -> list[bytes]:
    """Tell *facts* to *log* and return every block."""
    blocks: list[bytes] = []
    for step, kind, one, other, first, count, qos, number in facts:
        now += step
        match kind:
            case "published":
                log.published(now, one, first, count, f"t/{other}", qos, number, 2)
            case "filtered":
                log.filtered(now, one, first, count, f"t/{other}", qos, 1 + number % 2, number)
            case "matched":
                log.matched(now, one, other, first, count, qos)
            case "fate":
                log.fate(now, one, other, first, count, "t", "t/#", qos, 3 + number % 4, number % 3, number, 9)
            case "selectivity":
                log.selectivity(now, one, f"f/{other}", count, first % (count + 1))
            case "anchor":
                log.anchor(now, now + number)
            case _:
                blocks += log.take(now)
    return blocks + log.take(now, closing=True)


def rows(segment: LogFile, table: str) -> list[tuple[Any, ...]]:
    return list(zip(*segment.tables[table].values(), strict=True))


@given(st.lists(whole, min_size=1, max_size=50), st.booleans())
def test_whole_numbers_survive(values: list[int], delta: bool) -> None:
    column = Column("x", ColumnType.INT, delta)
    assert columns.decode(column, columns.encode(column, values), len(values)) == values


@given(st.lists(texts, min_size=1, max_size=400))
def test_texts_survive(values: list[str]) -> None:
    column = Column("x", ColumnType.TEXT)
    assert columns.decode(column, columns.encode(column, values), len(values)) == values


@given(st.integers(0, 2**62), st.integers(1, 300))
def test_sum_and_xor_of_a_run_are_those_of_its_numbers(first: int, count: int) -> None:
    numbers = range(first, first + count)
    assert sum_of_run(first, count) == sum(numbers)
    assert xor_of_run(first, count) == reduce(xor, numbers)


@given(st.lists(runs, max_size=40), st.integers(0, 4), st.integers(1, 40))
def test_rows_are_the_facts_and_samples_keep_messages_whole(
    facts: list[tuple[Any, ...]], sample: int, block_rows: int
) -> None:
    log = DeliveryLog("n", "b", sample, block_rows)
    blocks = play(log, facts)
    segment = segment_of(log, blocks)
    expected: Counter[tuple[Any, ...]] = Counter()
    now = 0
    for step, kind, one, other, first, count, qos, number in facts:
        now += step
        for message in range(first, first + count):
            if qos == 0 and (sample == 0 or message % sample):
                continue
            if kind == "published":
                row = (now, message, one, "", f"t/{other}", "", qos, Fate.PUBLISHED, 0, 0, number, 2, "", "", 0, 0, 0)
            elif kind == "filtered":
                row = (
                    now,
                    message,
                    one,
                    "",
                    f"t/{other}",
                    "",
                    qos,
                    Fate.FILTERED,
                    1 + number % 2,
                    0,
                    number,
                    0,
                    "",
                    "",
                    0,
                    0,
                    0,
                )
            elif kind == "fate":
                row = (
                    now,
                    message,
                    one,
                    other,
                    "t",
                    "t/#",
                    qos,
                    3 + number % 4,
                    number % 3,
                    number,
                    9,
                    0,
                    "",
                    "",
                    0,
                    0,
                    0,
                )
            else:
                continue
            expected[row] += 1
    assert segment.damage == []
    assert Counter(rows(segment, "delivery")) == expected
    heads = [decode_head(block, 0) for block in blocks]
    assert log.rows_written == sum(head.rows for head in heads if head is not None)


traces = st.none() | st.builds(lambda name: TraceParent(name * 32, name * 16), st.sampled_from("abc"))


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 2), traces, st.booleans()), max_size=20),
    st.integers(0, 4),
    st.integers(1, 40),
)
def test_messages_with_a_trace_have_all_their_rows_and_only_they_bear_it(
    messages: list[tuple[int, int, TraceParent | None, bool]], sample: int, block_rows: int
) -> None:
    log = DeliveryLog("n", "b", sample, block_rows)
    blocks, first = [], 1
    expected: Counter[tuple[Any, ...]] = Counter()
    for count, qos, trace, is_wanted in messages:
        log.published(first, "p", first, count, "t", qos, 8, int(is_wanted), trace)
        if is_wanted:
            log.fate(first, "p", "s", first, count, "t", "t/#", qos, Fate.DELIVERED, 0, 9, 8, trace)
        else:
            log.filtered(first, "p", first, count, "t", qos, 1, 8, trace)
        blocks += log.take(first)
        for number in range(first, first + count):
            if qos or trace is not None or (sample and number % sample == 0):
                for fate in (Fate.PUBLISHED, Fate.DELIVERED if is_wanted else Fate.FILTERED):
                    expected[number, fate, *(trace or ("", ""))] += 1
        first += count
    segment = segment_of(log, blocks + log.take(first, closing=True))
    assert segment.damage == []
    names = ("message", "fate", "trace_id", "parent_id")
    assert Counter(zip(*(segment.tables["delivery"][name] for name in names), strict=True)) == expected


@given(st.lists(runs, max_size=40), st.integers(0, 4))
def test_digests_and_selectivity_equal_counting_every_number(facts: list[tuple[Any, ...]], sample: int) -> None:
    log = DeliveryLog("n", "b", sample)
    segment = segment_of(log, play(log, facts))
    numbers: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
    selectivity: Counter[tuple[Any, ...]] = Counter()
    now = 0
    for step, kind, one, other, first, count, qos, number in facts:
        now += step
        keys: dict[str, tuple[Any, ...]] = {
            "published": ("", qos, Fate.PUBLISHED, 0),
            "filtered": ("", qos, Fate.FILTERED, 1 + number % 2),
            "matched": (other, qos, Fate.MATCHED, 0),
            "fate": (other, qos, 3 + number % 4, number % 3),
        }
        if kind in keys:
            numbers[now // MINUTE, one, *keys[kind]] += range(first, first + count)
        if kind == "selectivity":
            selectivity[now // MINUTE, one, f"f/{other}", "evaluated"] += count
            selectivity[now // MINUTE, one, f"f/{other}", "matched"] += first % (count + 1)
    assert added_up(segment) == {
        key: (len(found), sum(found) % SUM_MODULUS, reduce(xor, found)) for key, found in numbers.items()
    }
    found_selectivity: Counter[tuple[Any, ...]] = Counter()
    for minute, subscriber, text, evaluated, matched in rows(segment, "filter"):
        found_selectivity[minute, subscriber, text, "evaluated"] += evaluated
        found_selectivity[minute, subscriber, text, "matched"] += matched
    assert found_selectivity == selectivity


def added_up(segment: LogFile) -> dict[tuple[Any, ...], tuple[int, int, int]]:
    """Digest records of the same flow and minute made one, as docs/edl.md says."""
    totals: dict[tuple[Any, ...], tuple[int, int, int]] = {}
    keys = len(DIGEST.columns) - 4
    for row in rows(segment, "digest"):
        *_, more, added, other, origin = row
        count, total, mixed = totals.get(row[:keys], (0, 0, 0))
        totals[row[:keys]] = (count + more, (total + added) % SUM_MODULUS, mixed ^ other)
        assert origin == 0
    return totals


@given(st.lists(runs, max_size=40), st.integers(0, 40))
def test_a_log_that_was_taken_in_parts_says_the_same(facts: list[tuple[Any, ...]], cut: int) -> None:
    whole_log, parts_log = DeliveryLog("n", "b"), DeliveryLog("n", "b")
    at_cut = sum(fact[0] for fact in facts[:cut])
    whole_segment = segment_of(whole_log, play(whole_log, facts))
    parts_segment = segment_of(parts_log, play(parts_log, facts[:cut]) + play(parts_log, facts[cut:], at_cut))
    assert added_up(parts_segment) == added_up(whole_segment)
    for table in ("delivery", "anchor"):
        assert sorted(rows(parts_segment, table)) == sorted(rows(whole_segment, table))


@given(st.lists(runs, max_size=40))
def test_the_same_facts_make_the_same_bytes(facts: list[tuple[Any, ...]]) -> None:
    assert play(DeliveryLog("n", "b"), facts) == play(DeliveryLog("n", "b"), facts)


def test_a_long_run_makes_blocks_of_bounded_size() -> None:
    log = DeliveryLog("n", "b")
    log.published(0, "p", 1, 100_000, "t", 1, 8, 1)
    segment = segment_of(log, log.take(0, closing=True))
    assert segment.tables["delivery"]["message"] == list(range(1, 100_001))
    assert segment.header == LogHeader("n", "b")
    assert ROWS_MAX < 100_000
