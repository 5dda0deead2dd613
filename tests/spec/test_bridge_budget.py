"""The schedule and the daily byte budget of a bridge on the local clock."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from edgebridge.bridge.budget import BudgetRecord, DailyBudget, ScheduleSpanInvalid, parse_span, span_of
from edgebroker.instants import HOUR, MINUTE
from edgebroker.runtime.bridges.state import BudgetStore, local_time
from edgebroker.runtime.operator_log import OperatorLog

LINES: list[bytes] = []
NOTICES = OperatorLog(LINES.append)

SPANS = {
    "22:00-06:00 open": [(22 * 60, True), (21 * 60 + 59, False), (0, True), (5 * 60 + 59, True), (6 * 60, False)],
    "08:00-12:30 closed": [(8 * 60, True), (12 * 60 + 29, True), (12 * 60 + 30, False), (0, False)],
    "00:00-24:00 2000": [(0, True), (24 * 60 - 1, True)],
}


@pytest.mark.parametrize("text", SPANS)
def test_a_span_is_read_and_written_the_same(text: str) -> None:
    span = parse_span(text)
    assert str(span) == text
    assert [(minute, span.covers(minute)) for minute, _ in SPANS[text]] == SPANS[text]


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("22:00-06:00", "has 1 words; write HH:MM-HH:MM open, closed or BYTES-A-SECOND"),
        ("22-06 open", "'22-06' are no hours; write them as 22:00-06:00, up to 24:00"),
        ("24:00-25:00 open", "are no hours"),
        ("22:00-22:00 open", "is all of the day or nothing of it; all of it is 00:00-24:00"),
        ("22:00-06:00 shut", "'shut' says nothing of a span; write open, closed or 0 to 1,000,000,000"),
        ({"hours": "22:00-06:00", "rate": 7}, "it has 'rate'"),
        ({"hours": "22:00-06:00", "closed": True, "rate_bytes_s": 7}, "both closed and a rate"),
        ({"closed": True}, "it has no hours"),
    ],
)
def test_what_is_no_span_is_refused_with_the_reason(written: str | dict[str, object], why: str) -> None:
    with pytest.raises(ScheduleSpanInvalid) as refused:
        span_of(written) if isinstance(written, dict) else parse_span(written)
    assert why in str(refused.value)


def test_a_table_says_the_same_as_a_line() -> None:
    assert span_of({"hours": "22:00-06:00", "rate_bytes_s": 500}) == parse_span("22:00-06:00 500")
    assert span_of({"hours": "22:00 - 06:00", "closed": True}) == parse_span("22:00-06:00 closed")
    assert span_of({"hours": "22:00-06:00"}) == parse_span("22:00-06:00 open")


def test_the_clock_on_the_wall_shows_an_hour_twice_or_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    try:
        autumn, spring = 1_792_886_400, 1_774_742_400  # 0:00 UTC on 25 October and on 29 March 2026
        day = local_time(autumn).day
        assert [local_time(autumn + hours * 3_600) for hours in (0, 1, 2)] == [(day, 120), (day, 120), (day, 180)]
        assert [local_time(spring + hours * 3_600).minute for hours in (0, 1)] == [60, 180]
        assert local_time(spring - 3_601).day == local_time(spring).day - 1
        monkeypatch.setattr(time, "time", lambda: autumn + 59.999)
        assert local_time().minute == 120, "the clock that a timer is set by"
        assert local_time(autumn + 100 * 86_400).day > local_time(autumn).day, "in another year"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_what_was_spent_is_read_again_and_nonsense_is_not(tmp_path: Path) -> None:
    async def spend() -> None:
        budget_store = BudgetStore(tmp_path, NOTICES)
        budget_store.record("a", BudgetRecord(7, 100, 5))
        budget_store.record("b", BudgetRecord(7, 1))
        budget_store.record("a", BudgetRecord(7, 200, 6))
        budget_store.forget("b")
        await budget_store.close()

    asyncio.run(spend())
    assert BudgetStore(tmp_path, NOTICES).spent("a") == BudgetRecord(7, 200, 6)
    assert BudgetStore(tmp_path, NOTICES).spent("b") == BudgetRecord()
    for nonsense in ("", "[1]", '{"a": 7}', '{"a": {"day": "x"}}'):
        (tmp_path / "bridges-spent.json").write_text(nonsense)
        LINES.clear()
        assert BudgetStore(tmp_path, NOTICES).spent("a") == BudgetRecord()
        assert b"it is set aside as bridges-spent.json.damaged" in LINES[0]
        assert (tmp_path / "bridges-spent.json.damaged").read_text() == nonsense
    os.mkfifo(tmp_path / "bridges-spent.json")
    assert BudgetStore(tmp_path, NOTICES).spent("a") == BudgetRecord(), "and nobody waits for who would write to a pipe"


YESTERDAY, TODAY, TOMORROW, ONCE = 99, 100, 101, 3
"""Days; the last is what a machine without a clock shows when it has no network."""


@pytest.mark.parametrize(
    ("shown", "spent"),
    [
        ([(TODAY, 0), (TODAY, 23)], 700),
        ([(TOMORROW, 0)], 0),
        ([(ONCE, 0), (ONCE, 23)], 700),
        ([(ONCE, 0), (TODAY, 1)], 700),
        ([(ONCE, 0), (TOMORROW, 1)], 0),
        ([(ONCE, 0), (ONCE, 24)], 0),
        ([(YESTERDAY, 0), (YESTERDAY, 1), (TODAY, 2)], 700),
        ([(ONCE, 0), (ONCE, 12), (TODAY, 13), (ONCE, 14), (ONCE, 30)], 700),
    ],
)
def test_a_day_begins_when_the_clock_shows_it_first(shown: list[tuple[int, int]], spent: int) -> None:
    daily_budget = DailyBudget(1_000)
    daily_budget.restore(BudgetRecord(TODAY, 700))
    for day, hours in shown:
        daily_budget.set_day(day, hours * HOUR)
    assert daily_budget.spent == spent


def test_boots_without_a_clock_add_up_to_a_day() -> None:
    noted = BudgetRecord(TODAY, 1_000)
    boots = 0
    while noted.octets and boots < 100:
        boots += 1
        daily_budget = DailyBudget(1_000)
        daily_budget.restore(noted)
        for minute in range(150):
            daily_budget.set_day(ONCE, minute * MINUTE)
            if daily_budget.needs_checkpoint:
                noted = daily_budget.checkpoint()
    assert boots == 12, "each runs for two hours and a half and counts two, as it is killed in between"


def test_what_is_noted_is_a_hundredth_off_at_most() -> None:
    daily_budget = DailyBudget(10_000_000)
    daily_budget.set_day(TODAY, 0)
    noted = 0
    for _ in range(20_000):
        daily_budget.charge(500)
        if daily_budget.needs_checkpoint:
            daily_budget.checkpoint()
            noted += 1
    assert noted == 101, "one of them at their end"
    daily_budget = DailyBudget(10_000_000)
    daily_budget.restore(BudgetRecord(TODAY, 9_999_999))
    daily_budget.charge(1)
    assert daily_budget.needs_checkpoint, "their end is told at once"
