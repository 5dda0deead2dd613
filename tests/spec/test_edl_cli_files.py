"""`edgebroker log` and files: copies of them, folders that nobody may read, targets that take nothing, odd texts."""

from __future__ import annotations

import csv
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from edgebroker.cli import main
from edgebroker.cli.log import as_csv
from edgebroker.log_schema import Cause, Fate
from edgebroker.runtime.delivery_log import DeliveryLogDirectory, segment_files
from edgebroker.storage.deliverylog.writer import DeliveryLog

TOPIC = '=cmd|x "q"\nnode=fake fate=delivered \x1b[31m\u00e9'


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["log", *map(str, arguments)])


def write(folder: Path, boot: str) -> None:
    """A finished file: one message, delivered once."""
    writer = DeliveryLog("gw", boot)
    log = DeliveryLogDirectory(folder, writer.header, pytest.fail)
    log.start()
    writer.published(1_000, "a client", 1, 1, TOPIC, 1, 8, 1)
    writer.matched(1_000, "a client", "s", 1, 1, 1)
    writer.fate(2_000, "a client", "s", 1, 1, TOPIC, "#", 1, Fate.DELIVERED, Cause.NONE, 1_000, 8)
    log.close(writer.take(4_000, closing=True), 0, 0)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    write(tmp_path / "log", "b1")
    return tmp_path / "log"


def test_texts_of_clients_stay_in_their_line_and_do_nothing_to_a_terminal(log: Path) -> None:
    lines = run("cat", log).stdout.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("node=gw boot=b1 t_us=") and 'publisher="a client"' in line for line in lines)
    assert all(f"topic={json.dumps(TOPIC)} " in line and line.isprintable() for line in lines)


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\r"])
def test_a_cell_of_csv_is_no_formula_and_its_text_is_known(sign: str) -> None:
    assert as_csv(f"{sign}HYPERLINK") == f"'{sign}HYPERLINK"
    assert as_csv("'quoted") == "''quoted", "one apostrophe is always ours"
    assert [as_csv(value) for value in ("a=b", "", -5, None)] == ["a=b", "", -5, None]


def test_exports_keep_texts_as_they_were(log: Path, tmp_path: Path) -> None:
    assert run("export", log, "--csv", tmp_path / "o.csv").exit_code == 0
    with (tmp_path / "o.csv").open(encoding="utf-8", newline="") as file:
        assert {row["topic"] for row in csv.DictReader(file)} == {f"'{TOPIC}"}, "no formula for a spreadsheet"
    assert run("export", log, "--json", tmp_path / "o.json").exit_code == 0
    assert {json.loads(line)["topic"] for line in (tmp_path / "o.json").read_text("utf-8").splitlines()} == {TOPIC}


def test_a_copy_of_a_file_counts_nothing_twice(log: Path) -> None:
    shutil.copytree(log, log / "backup")
    alone, both = (json.loads(run("stat", path, "--json").stdout) for path in (log / "backup", log))
    assert (alone["blocks_twice"], both["blocks_twice"]) == (0, 2)  # one with rows, one with digests
    assert {name: both[name] for name in ("records", "fates")} == {name: alone[name] for name in ("records", "fates")}
    assert "in another file already" in run("cat", log, log).stderr
    assert len(run("cat", log, log).stdout.splitlines()) == 2


def rows_in(database: Path) -> int:
    with sqlite3.connect(database) as connection:
        (count,) = connection.execute("SELECT count(*) FROM delivery").fetchone()
    return int(count)


def test_an_export_to_sqlite_may_be_repeated_as_the_log_grows(log: Path, tmp_path: Path) -> None:
    pytest.importorskip("sqlite_utils", reason="sqlite-utils is not installed")
    database = tmp_path / "log.db"
    for _ in range(2):
        assert run("export", log, "--sqlite", database).exit_code == 0
        assert rows_in(database) == 2
    write(log, "b2")
    assert run("export", log, "--sqlite", database).exit_code == 0
    assert rows_in(database) == 4


def test_a_database_that_is_none_is_said_in_a_line(log: Path, tmp_path: Path) -> None:
    pytest.importorskip("sqlite_utils", reason="sqlite-utils is not installed")
    (tmp_path / "notes.db").write_text("these are notes, and no database" * 40)
    result = run("export", log, "--sqlite", tmp_path / "notes.db")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "notes.db: file is not a database" in result.stderr


@pytest.mark.parametrize("form", ["--csv", "--json"])
def test_nothing_is_written_over_where_there_is_no_log(form: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "of-yesterday").write_text("worth keeping")
    assert run("export", tmp_path / "empty", form, tmp_path / "of-yesterday").exit_code == 2
    assert (tmp_path / "of-yesterday").read_text() == "worth keeping"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full disk to offer")
@pytest.mark.parametrize("form", ["--csv", "--json"])
def test_a_full_disk_is_said_in_a_line(form: str, log: Path) -> None:
    result = run("export", log, form, "/dev/full")
    assert (result.exit_code, result.stderr) == (2, "Error: cannot write /dev/full: No space left on device\n")


def test_a_linked_folder_is_read_and_each_only_once(log: Path, tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "gw").symlink_to(log)
    (log / "round").symlink_to(tmp_path / "all")
    assert [file.name for file in segment_files(tmp_path / "all")] == [file.name for file in segment_files(log)]
    assert len(segment_files(tmp_path / "all")) == 1


def test_a_folder_that_may_not_be_read_is_told(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("secret", "lost+found"):
        (log / name).mkdir()
    listed = os.scandir

    def refusing(folder: Any) -> Iterator[os.DirEntry[str]]:
        if Path(folder).name in ("secret", "lost+found"):
            raise PermissionError(13, "Permission denied", str(folder))
        return listed(folder)

    monkeypatch.setattr(os, "scandir", refusing)
    result = run("stat", log)
    assert (result.exit_code, result.stderr) == (2, f"{log / 'secret'}: Permission denied\n")
    assert "delivery 2" in result.stdout
    with pytest.raises(PermissionError):
        segment_files(log)


def test_a_folder_that_may_be_listed_but_not_searched_is_told(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (log / "half").mkdir()
    (log / "half" / "gateway.edl").touch()
    looked = Path.is_file

    def refusing(file: Path) -> bool:
        if file.parent.name == "half":
            raise PermissionError(13, "Permission denied", str(file))
        return looked(file)

    monkeypatch.setattr(Path, "is_file", refusing)
    result = run("stat", log)
    assert (result.exit_code, result.stderr) == (2, f"{log / 'half' / 'gateway.edl'}: Permission denied\n")
    assert "delivery 2" in result.stdout
