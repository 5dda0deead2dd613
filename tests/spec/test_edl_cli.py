"""`edgebroker log`: cat, stat, export, and what they answer to damage."""

from __future__ import annotations

import csv
import json
import sqlite3
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edgebroker.cli.log import command
from edgebroker.log_schema import DELIVERY, Cause, Fate, TraceParent
from edgebroker.runtime.delivery_log import DeliveryLogDirectory, segment_files
from edgebroker.storage.deliverylog.reader import read_segment
from edgebroker.storage.deliverylog.writer import DeliveryLog


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A directory with two segments of one boot: three messages, one of them dropped."""
    writer = DeliveryLog("gw", "b1", block_rows=2)
    folder = DeliveryLogDirectory(tmp_path / "log", writer.header, pytest.fail, segment_bytes_max=1)
    folder.start()
    writer.published(1_000, "p", 1, 3, "caf\N{LATIN SMALL LETTER E WITH ACUTE}", 1, 8, 1)
    writer.matched(1_000, "p", "s", 1, 3, 1)
    writer.fate(2_000, "p", "s", 1, 2, "caf", "#", 1, Fate.DELIVERED, Cause.NONE, 1_000, 8)
    writer.fate(3_000, "p", "s", 3, 1, "caf", "#", 1, Fate.DROPPED, Cause.QUEUE_FULL, 2_000, 8)
    writer.selectivity(1_000, "s", "#", 3, 3)
    *blocks, last = writer.take(4_000, closing=True)
    for block in blocks:
        folder.append([block], 0, 0)
    folder.close([last], 0, 0)
    return tmp_path / "log"


def damage(log: Path) -> Path:
    """Damage one block of the first segment with delivery rows."""
    for file in segment_files(log):
        data = bytearray(file.read_bytes())
        if b"EDLB\x00" in data:
            data[data.index(b"EDLB\x00") + 60] ^= 1
            file.write_bytes(data)
            return file
    raise AssertionError("no rows")


def test_cat_prints_a_line_per_record(log: Path) -> None:
    result = run("cat", log)
    assert result.exit_code == 0
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert len(lines) == 6
    assert any("fate=dropped cause=queue_full wait_us=2000 payload_bytes=8" in line for line in lines)


@pytest.mark.parametrize(("table", "count"), [("delivery", 6), ("digest", 4), ("filter", 1), ("trace", 0)])
def test_cat_json_prints_objects_of_the_asked_table(log: Path, table: str, count: int) -> None:
    result = run("cat", log, "--table", table, "--json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(rows) == count
    assert all((row["node"], row["boot"]) == ("gw", "b1") for row in rows)


def test_stat_sums_up(log: Path) -> None:
    summary = json.loads(run("stat", log, "--json").stdout)
    assert summary["records"] == {"delivery": 6, "digest": 4, "filter": 1, "anchor": 0, "trace": 0, "migration": 0}
    assert summary["fates"] == {"published": 3, "matched": 3, "delivered": 2, "dropped (queue_full)": 1}
    assert (summary["t_first_us"], summary["t_last_us"]) == (1_000, 3_000)
    assert (summary["nodes"], summary["boots"]) == (["gw"], ["b1"])
    assert (summary["damage"], summary["blocks_missing"], summary["unreadable"]) == (0, 0, 0)
    size = sum(file.stat().st_size for file in segment_files(log))
    assert summary["bytes"] == size
    assert summary["bytes_per_record"] == round(size / 11, 2)
    text = run("stat", log).stdout
    assert "fates             delivered 2, dropped (queue_full) 1, matched 3, published 3\n" in text


def test_stat_says_whether_the_run_has_ended(log: Path) -> None:
    assert "ended             cleanly\n" in run("stat", log).stdout
    assert json.loads(run("stat", log, "--json").stdout)["boots_open"] == []
    (final,) = (file for file in segment_files(log) if read_segment(file.read_bytes()).final)
    final.unlink()
    assert "ended             not yet or by a crash\n" in run("stat", log).stdout
    assert json.loads(run("stat", log, "--json").stdout)["boots_open"] == ["b1"]


def test_stat_counts_the_blocks_of_a_segment_that_is_not_there(log: Path) -> None:
    total = 0
    for file in segment_files(log):
        data = file.read_bytes()
        file.unlink()
        total += json.loads(run("stat", log, "--json").stdout)["blocks_missing"]
        file.write_bytes(data)
    assert total == len(segment_files(log)) - 2  # nobody can know that the first or the last one is missing


def test_export_csv_has_the_columns_of_the_one_list(log: Path, tmp_path: Path) -> None:
    assert run("export", log, "--csv", tmp_path / "out.csv").exit_code == 0
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["node", "boot", *(column.name for column in DELIVERY.columns)]
    assert sorted(int(row["message"]) for row in rows) == [1, 1, 2, 2, 3, 3]
    assert {row["topic"] for row in rows} == {"caf", "caf\N{LATIN SMALL LETTER E WITH ACUTE}"}


def test_export_json_and_to_standard_output(log: Path, tmp_path: Path) -> None:
    assert run("export", log, "--json", tmp_path / "out.json", "--table", "digest").exit_code == 0
    lines = (tmp_path / "out.json").read_text(encoding="utf-8").splitlines()
    assert run("export", log, "--json", "-", "--table", "digest").stdout.splitlines() == lines
    assert len(lines) == 4


def test_export_sqlite_makes_a_table_of_each(log: Path, tmp_path: Path) -> None:
    pytest.importorskip("sqlite_utils", reason="sqlite-utils is not installed")
    assert run("export", log, "--sqlite", tmp_path / "out.db").exit_code == 0
    database = sqlite3.connect(tmp_path / "out.db")
    counts = [
        database.execute(f"select count(*) from {name}").fetchone()[0]
        for name in ("delivery", "digest", "filter", "anchor")
    ]
    assert counts == [6, 4, 1, 0]
    assert database.execute("select message, wait_us from delivery where fate = 5").fetchall() == [(3, 2_000)]
    database.close()


TRACE = TraceParent("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")


@pytest.fixture
def traced(log: Path) -> Path:
    """The same, with a second run of the broker that says one message with a trace and one without."""
    writer = DeliveryLog("gw", "b2", sample_qos0=0)
    folder = DeliveryLogDirectory(log, writer.header, pytest.fail)
    folder.start()
    for number, trace in ((1, TRACE), (2, None)):
        writer.published(number, "p", number, 1, "t", 0, 8, 1, trace)
        writer.fate(5, "p", "s", number, 1, "t", "t", 0, Fate.DELIVERED, Cause.NONE, 4, 8, trace)
    folder.close(writer.take(6, closing=True), 0, 0)
    return log


@pytest.mark.parametrize("text", [TRACE.trace_id, TRACE.trace_id.upper(), f"00-{TRACE.trace_id}-{TRACE.parent_id}-01"])
def test_cat_shows_one_trace(traced: Path, text: str) -> None:
    lines = run("cat", traced, "--trace-id", text).stdout.splitlines()
    assert len(lines) == 2
    assert all(f" trace_id={TRACE.trace_id} parent_id={TRACE.parent_id}" in line for line in lines)
    assert ("fate=published" in lines[0], "fate=delivered" in lines[1]) == (True, True)
    assert run("cat", traced, "--trace-id", "0" * 32).stdout == ""
    assert run("cat", traced).stdout.count("trace_id") == 2, "others say nothing of it"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--trace-id", "4bf9"], "'4bf9' is neither a trace id, 32 hexadecimal digits, nor a traceparent"),
        (["--table", "digest", "--trace-id", "0" * 32], "records of digest have no trace"),
    ],
)
def test_a_trace_id_that_cannot_be_found_is_refused(log: Path, options: list[str], words: str) -> None:
    result = run("cat", log, *options)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())


def test_export_sqlite_goes_on_in_a_database_from_before_there_were_traces(traced: Path, tmp_path: Path) -> None:
    pytest.importorskip("sqlite_utils", reason="sqlite-utils is not installed")
    older = ", ".join(["node", "boot", *(column.name for column in DELIVERY.columns[:-5])])
    with sqlite3.connect(tmp_path / "out.db") as database:
        database.execute(f"create table delivery ({older})")
        database.execute("insert into delivery (boot) values ('old')")
    assert run("export", traced, "--sqlite", tmp_path / "out.db").exit_code == 0
    found = database.execute("select boot, trace_id, count(*) from delivery group by 1, 2").fetchall()
    assert found == [("b1", "", 6), ("b2", TRACE.trace_id, 2), ("old", "", 1)]
    database.close()


def test_export_sqlite_without_sqlite_utils_says_what_to_install(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sqlite_utils", None)
    result = run("export", log, "--sqlite", tmp_path / "out.db")
    assert result.exit_code == 2
    assert result.stderr == "sqlite-utils is not installed; install it with: pip install sqlite-utils\n"


def test_damage_is_told_on_stderr_and_the_rest_is_printed(log: Path) -> None:
    file = damage(log)
    result = run("cat", log, "--json")
    assert result.exit_code == 1
    lost = 6 - len(result.stdout.splitlines())
    assert lost in (1, 2, 3)  # one block; which one comes first is up to the names
    assert f"{file}: block 0 at offset" in result.stderr
    assert f"{lost} rows of delivery lost" in result.stderr
    summary = run("stat", log, "--json")
    assert summary.exit_code == 1
    assert json.loads(summary.stdout)["damage"] == 1


def test_files_that_are_no_log_are_named_and_the_others_read(log: Path) -> None:
    (log / "x.edl").write_text("hello")
    result = run("cat", log)
    assert result.exit_code == 2
    assert len(result.stdout.splitlines()) == 6
    assert "x.edl: no delivery log" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [["cat"], ["cat", "/no/such/place"], ["cat", "EMPTY"], ["export", "LOG"], ["cat", "LOG", "--table", "nonsense"]],
)
def test_wrong_use_is_exit_code_2(log: Path, tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "empty").mkdir()
    places = {"LOG": log, "EMPTY": tmp_path / "empty"}
    result = run(*(places.get(argument, argument) for argument in arguments))
    assert result.exit_code == 2
    assert "Error" in result.stderr


def test_export_takes_one_target(log: Path, tmp_path: Path) -> None:
    assert run("export", log, "--csv", tmp_path / "a", "--json", tmp_path / "b").exit_code == 2
