"""Replaying CSV files: what a cell means, which row leaves when, and what happens to rows that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgebroker.instants import SECOND
from edgedevices import InputInvalid
from edgedevices.message import DeviceMessage, is_publishable, level
from edgedevices.replay import LOOKAHEAD_ROWS, CsvFile, CsvReplay, CsvRowInvalid, time_us_of, typed


@pytest.fixture
def replay(tmp_path: Path) -> Any:
    def make(text: str | bytes, topic: str = "t", time_column: str = "t", **options: Any) -> CsvReplay:
        path = tmp_path / "recorded.csv"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        make.file = CsvFile(path, time_column)  # type: ignore[attr-defined]
        return CsvReplay(make.file, "meter", topic, **options)  # type: ignore[attr-defined]

    return make


def everything(source: CsvReplay) -> list[tuple[int, DeviceMessage]]:
    found = []
    while (due_us := source.due_us) is not None:
        found.append((due_us, source.emit()))
    return found


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None), ("null", None), ("NULL", None), ("NaN", None), (" ", None),
        ("true", True), ("False", False),
        ("0", 0), ("-17", -17), (" 42 ", 42), ("9223372036854775807", 9223372036854775807),
        ("1.5", 1.5), ("-.5", -0.5), ("2.", 2.0), ("1e3", 1000.0), ("+4.0", 4.0), ("0.1", 0.1),
        ("007", "007"), ("00.5", "00.5"), ("1e999", "1e999"), ("inf", "inf"), ("1,5", "1,5"), ("x", "x"),
        (" padded ", " padded "), ("12345678901234567890123", 12345678901234567890123.0),
    ],
)  # fmt: skip
def test_cells_become_values(text: str, value: object) -> None:
    found = typed(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "time_us"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01 00:00:01.5", 1_500_000),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1970-01-02", 86_400_000_000),
        ("1700000000", 1_700_000_000_000_000),
        ("1700000000.25", 1_700_000_000_250_000),
        ("1700000000123", 1_700_000_000_123_000),
        ("1700000000123456", 1_700_000_000_123_456),
        ("1700000000123456789", 1_700_000_000_123_457),
        ("2024-02-29T12:00:00.000001+00:00", 1_709_208_000_000_001),
    ],
)
def test_times_are_iso_8601_or_unix(text: str, time_us: int) -> None:
    assert time_us_of(text) == time_us


@pytest.mark.parametrize("text", ["", "yesterday", "12:00", "2024-13-01", "1e30", "nan"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(CsvRowInvalid):
        time_us_of(text)


@given(st.datetimes(allow_imaginary=False))
def test_every_moment_keeps_its_microseconds(moment: Any) -> None:
    from datetime import datetime, timedelta

    assert timedelta(microseconds=time_us_of(moment.isoformat())) == moment - datetime(1970, 1, 1)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(replay: Any, delimiter: str) -> None:
    rows = [["t", "site", "note"], ["0", "north", '"a,b;c"'], ["1", "south", '"d"']]
    source = replay("\n".join(delimiter.join(row) for row in rows) + "\n", "site/{site}/x")
    first, second = everything(source)
    assert first[1].topic == "site/north/x"
    assert first[1].body == {"device": "meter", "seq": 1, "t": 0, "site": "north", "note": "a,b;c"}
    assert second[1].body["note"] == "d"


def test_a_byte_order_mark_and_line_breaks_in_quotes_are_read(replay: Any) -> None:
    source = replay(b'\xef\xbb\xbft,note\r\n0,"two\r\nlines"\r\n')
    assert [message.body["note"] for _, message in everything(source)] == ["two\r\nlines"]


def test_rows_leave_at_the_pace_of_their_times(replay: Any) -> None:
    text = "t,v\n100,1\n101,2\n107.5,3\n"
    assert [due for due, _ in everything(replay(text))] == [0, SECOND, 7_500_000]
    assert [due for due, _ in everything(replay(text, speed=10.0))] == [0, 100_000, 750_000]
    assert [due for due, _ in everything(replay(text, speed=None))] == [0, 0, 0]


def test_rows_somewhat_out_of_order_leave_in_order_of_time(replay: Any) -> None:
    source = replay("t,v\n3,c\n1,a\n2,b\n")
    assert [(due, message.body["v"]) for due, message in everything(source)] == [
        (0, "a"),
        (SECOND, "b"),
        (2 * SECOND, "c"),
    ]
    assert source.late_rows == 0


def test_a_row_that_comes_far_too_late_leaves_at_once_and_is_counted(replay: Any) -> None:
    times = [*range(10, 20 + LOOKAHEAD_ROWS), 0]
    source = replay("t\n" + "\n".join(map(str, times)) + "\n")
    sent = everything(source)
    assert len(sent) == len(times)
    assert source.late_rows == 1
    shaper_options = [due for due, _ in sent]
    assert shaper_options == sorted(shaper_options)


def test_limit_and_columns(replay: Any) -> None:
    source = replay("t,a,b\n1,2,3\n2,3,4\n3,4,5\n", columns=["b"], limit=2)
    assert [message.body for _, message in everything(source)] == [
        {"device": "meter", "seq": 1, "b": 3},
        {"device": "meter", "seq": 2, "b": 4},
    ]


def test_a_recorded_device_or_seq_column_keeps_its_value(replay: Any) -> None:
    ((_, message),) = everything(replay("t,device,seq\n1,pump,99\n"))
    assert message.body == {"device": "pump", "seq": 99, "t": 1}
    assert (message.device, message.seq) == ("meter", 1)


def test_bad_rows_are_counted_with_their_lines_and_the_others_published(replay: Any) -> None:
    source = replay(b"t,site\n1,a\nnever,b\n3\n\n4,\n5,\xff\n6,f\n7,g,h\n", "site/{site}")
    assert [message.topic for _, message in everything(source)] == ["site/a", "site/f"]
    file = replay.file
    assert file.rows_read == 7
    assert file.bad_count == 5
    assert (
        file.bad_rows
        == [
            (3, "time 'never' is neither ISO 8601 nor Unix time"),
            (4, "1 fields where the header has 2"),
            (6, "{site} of the topic is empty"),
            (7, "not UTF-8"),
            (9, "3 fields where the header has 2"),
        ]
        or sorted(file.bad_rows) == file.bad_rows
    )


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("t,site\n1,a\n", {"topic": "x/{sit}"}, "--topic: no column 'sit'; did you mean 'site'?"),
        ("t,site\n1,a\n", {"time_column": "when"}, "--time-column: no column 'when'; there are: t, site"),
        ("t,site\n1,a\n", {"columns": ["sites"]}, "--columns: no column 'sites'; did you mean 'site'?"),
        ("t,site\n1,a\n", {"topic": "x/+"}, "--topic"),
        ("t,site\n1,a\n", {"topic": "x/{site"}, "--topic"),
        ("t,site\n1,a\n", {"topic": ""}, "--topic"),
        ("t,t\n1,a\n", {}, "column 't' occurs more than once"),
        ("", {}, "is empty"),
    ],
)
def test_what_cannot_work_is_said_before_anything_is_sent(
    replay: Any, text: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputInvalid) as refusal:
        replay(text, **options)
    assert words in str(refusal.value)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputInvalid, match="No such file"):
        CsvFile(tmp_path / "none.csv", "t")


@given(st.text(max_size=40))
def test_any_text_becomes_one_topic_level(text: str) -> None:
    found = level(text)
    assert "/" not in found
    assert not found or is_publishable(found)
    if is_publishable(text) and "/" not in text:
        assert found == text.strip()
