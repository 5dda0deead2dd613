"""`edgebroker journal`: check says whether a journal is whole, show prints its records, and neither touches it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edgebroker.cli.journal import command
from edgebroker.overlay.link.backlog import PageRow, encode_rows
from edgebroker.overlay.link.class_queue import LinkPage
from edgebroker.overlay.link.journal_records import paged_record
from edgebroker.runtime.journal.store import JournalWorker
from edgebroker.runtime.journal.wear import WEAR_FILE
from edgebroker.storage.journal.options import JournalOptions
from edgebroker.storage.journal.page_files import encode_page, page_name

SMALL = JournalOptions(segment_bytes=64 * 1024, snapshot_min_bytes=64 * 1024)
RECORDS = [b"\xf0first", b"\xf1second", b"\xf0third"]  # kinds that mean nothing to anybody


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def written(folder: Path) -> JournalWorker:
    """A journal with three commits in it, still open."""
    worker = JournalWorker(folder, SMALL, lambda lsn, records: None)
    for record in RECORDS:
        worker.journal.append(record, 0)
        assert worker.run_due(10_000_000) == ""
    return worker


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    written(tmp_path / "journal").close(20_000_000)
    return tmp_path / "journal"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def damage(journal: Path, record: bytes) -> Path:
    """Flip a bit of *record* where it is written last."""
    for path in journal.glob("*.ebj"):
        data = bytearray(path.read_bytes())
        at = data.rfind(record)
        if at > 0:
            data[at] ^= 4
            path.write_bytes(data)
            return path
    raise AssertionError("it is not there")


def test_a_whole_journal(journal: Path) -> None:
    before = contents(journal)
    result = run("check", journal)
    assert result.exit_code == 0
    assert "records     3, from 1 to 3" in result.output
    assert "ended       cleanly" in result.output
    assert result.output.endswith("everything is whole\n")
    assert contents(journal) == before


def test_check_for_programs(journal: Path) -> None:
    report = json.loads(run("check", journal, "--json").output)
    assert (report["records"], report["last"], report["replay_from"], report["damage"]) == (3, 3, 1, [])
    assert (report["ended"], report["owner"], report["torn"], report["quarantine"]) == ("cleanly", None, None, [])
    assert [(segment["first"], segment["last"]) for segment in report["segments"]] == [(1, 3)]


def test_damage_is_named_and_the_rest_is_shown(journal: Path) -> None:
    path = damage(journal, RECORDS[1])
    result = run("check", journal)
    assert result.exit_code == 1
    assert f"DAMAGE      {path.name} at " in result.output
    assert "lost are the records 2 to 2" in result.output
    report = json.loads(run("check", journal, "--json").output)
    assert [(one["file"], one["first"], one["last"]) for one in report["damage"]] == [(path.name, 2, 2)]
    shown = run("show", journal)
    assert shown.exit_code == 1
    assert [line.split()[0] for line in shown.stdout.splitlines()] == ["1", "3"]
    assert "the records 2 to 2" in shown.stderr


def test_nothing_is_intact(journal: Path) -> None:
    [path] = journal.glob("*.ebj")
    path.write_bytes(b"?" * path.stat().st_size)
    result = run("check", journal)
    assert (result.exit_code, result.output.splitlines()[-1]) == (1, "1 places are damaged")
    assert json.loads(run("check", journal, "--json").output)["segments"] == []


def test_a_torn_end_is_no_damage(tmp_path: Path) -> None:
    written(tmp_path).files.close()  # as a crash does
    damage(tmp_path, RECORDS[2])
    result = run("check", tmp_path)
    assert result.exit_code == 0
    assert "ended       by a crash" in result.output
    assert "torn        the last commit is not whole, from record 3 on" in result.output


def test_a_journal_in_use_is_read_too(tmp_path: Path) -> None:
    worker = written(tmp_path)
    report = json.loads(run("check", tmp_path, "--json").output)
    assert (report["records"], report["ended"]) == (3, "not yet")
    assert report["owner"].startswith("process ")
    assert "works with it" in run("check", tmp_path).output
    worker.close(20_000_000)


@pytest.mark.parametrize("verb", ["check", "show"])
def test_where_there_is_no_journal(tmp_path: Path, verb: str) -> None:
    missing = run(verb, tmp_path / "missing")
    assert (missing.exit_code, missing.stderr) == (2, f"{tmp_path / 'missing'}: there is no such folder\n")
    notes = tmp_path / "notes.txt"
    notes.write_text("hello", encoding="utf-8")
    assert run(verb, notes).stderr == f"{notes}: is a file; name the folder that it lies in\n"
    (tmp_path / "empty.ebj").write_bytes(bytes(8_192))
    empty = run(verb, tmp_path)
    assert (empty.exit_code, "there is no journal" in empty.stderr) == (2, True)


def test_the_data_folder_may_be_named(journal: Path) -> None:
    assert run("check", journal.parent).exit_code == 0


def test_show_prints_number_kind_and_bytes(journal: Path) -> None:
    lines = run("show", journal).output.splitlines()
    assert lines[0] == "1 240 hex=" + RECORDS[0].hex()
    found = [json.loads(line) for line in run("show", journal, "--json").output.splitlines()]
    assert found[1] == {"lsn": 2, "kind": 241, "hex": RECORDS[1].hex()}


@pytest.mark.parametrize(
    ("options", "lsns"),
    [
        (("--from", "2"), [2, 3]),
        (("--limit", "1"), [1]),
        (("--kind", "240"), [1, 3]),
        (("--kind", "240", "--from", "2", "--limit", "5"), [3]),
        (("--kind", "session"), []),
    ],
)
def test_show_chooses(journal: Path, options: tuple[str, ...], lsns: list[int]) -> None:
    result = run("show", journal, "--json", *options)
    assert result.exit_code == 0
    assert [json.loads(line)["lsn"] for line in result.output.splitlines()] == lsns


def test_an_unknown_kind_gets_the_nearest_name(journal: Path) -> None:
    result = run("show", journal, "--kind", "sesion")
    assert result.exit_code == 2
    assert "Did you mean 'session'?" in result.stderr


def test_check_tells_the_life_of_a_card(journal: Path) -> None:
    assert "nothing is known yet" in run("check", journal).output
    said = {"bytes": 10**10, "running_s": 864_000, "days": [10**9] * 7, "day_bytes": 0, "day_s": 0}
    (journal / WEAR_FILE).write_text(json.dumps(said), encoding="utf-8")
    assert "1,000,000,000 bytes a day; it lasts 43.8 years" in run("check", journal).output
    report = json.loads(run("check", journal, "--card-gb", "8", "--card-cycles", "1000", "--json").output)
    assert report["card_years"] == 21.9


def lose(journal: Path, how: str) -> str:
    """Let the only segment be gone, as *how* says. Returns its name."""
    [path] = journal.glob("*.ebj")
    if how == "deleted":
        path.unlink()
    else:
        path.write_bytes(bytes(path.stat().st_size) if how == "zeros" else b"")
    return path.name


@pytest.mark.parametrize("how", ["deleted", "zeros", "empty"])
def test_a_lost_segment_is_named_until_it_is_acknowledged(journal: Path, how: str) -> None:
    name = lose(journal, how)
    before = contents(journal)
    result = run("check", journal)
    assert result.exit_code == 1
    assert name in result.output
    assert "lost are the records 1 to 3, and those that were written behind them" in result.output
    assert contents(journal) == before
    shown = run("show", journal)
    assert (shown.exit_code, shown.stdout) == (1, "")

    written(journal).close(50_000_000)  # the gateway starts, finds it, and writes something else
    assert len([*journal.glob("quarantine/*")]) == (how != "deleted")
    result = run("check", journal)
    assert result.exit_code == 1
    assert f"earlier     {'missing' if how == 'deleted' else name}" in result.output
    assert result.output.splitlines()[-1].startswith("everything is whole that is left; 1 places were damaged")
    report = json.loads(run("check", journal, "--json").output)
    assert (report["damage"], len(report["unacknowledged"])) == ([], 1)

    result = run("acknowledge", journal)
    assert result.exit_code == 0
    assert "lost are the records 1 to 3" in result.output
    assert result.output.endswith("1 places of damage are acknowledged\n")
    assert run("check", journal).output.endswith("everything is whole\n")
    again = run("acknowledge", journal.parent, "--json")
    assert (again.exit_code, json.loads(again.output)["acknowledged"]) == (1, [])


def test_damage_is_acknowledged_before_a_gateway_has_found_it(journal: Path) -> None:
    lose(journal, "zeros")
    assert run("acknowledge", journal).exit_code == 0
    assert run("check", journal).exit_code == 1, "it is still there"
    worker = written(journal)
    assert worker.recovery_report is not None
    assert len(worker.recovery_report.damage) == 1
    assert worker.damage_notice.unacknowledged() == []
    worker.close(50_000_000)
    assert run("check", journal).exit_code == 0


def test_a_gateway_that_runs_hears_of_it(journal: Path) -> None:
    lose(journal, "deleted")
    worker = written(journal)
    assert len(worker.damage_notice.unacknowledged()) == 1
    assert run("acknowledge", journal).exit_code == 0
    assert worker.damage_notice.unacknowledged() == []
    worker.close(50_000_000)


def test_nothing_is_acknowledged_where_there_is_no_journal(tmp_path: Path) -> None:
    result = run("acknowledge", tmp_path)
    assert (result.exit_code, "there is no journal" in result.stderr) == (2, True)
    assert run("acknowledge", tmp_path / "missing").stderr == f"{tmp_path / 'missing'}: there is no such folder\n"


def test_pages_of_links_are_checked_and_told(tmp_path: Path) -> None:
    worker = written(tmp_path / "journal")
    page = LinkPage(7, 100, 109, 10, 640)
    data = encode_page(worker.journal.store, 7, encode_rows([PageRow(100, 0, None, b"")]))
    page.file_bytes, page.written_at, page.flows = len(data), 1, b"\0\1"
    worker.journal.append(paged_record("gw-yard", page, 0), 0)
    assert worker.run_due(30_000_000) == ""
    worker.close(40_000_000)
    path = tmp_path / "journal" / page_name(7)
    path.write_bytes(data)
    result = run("check", tmp_path)
    assert (result.exit_code, "1 parts of queues, with 10 messages" in result.output) == (0, True)
    [line] = [line for line in run("show", tmp_path).output.splitlines() if "link_paged" in line]
    assert "peer=gw-yard page=7 first=100 last=109 count=10" in line
    assert run("show", tmp_path, "--kind", "link_paged").output.splitlines() == [line]
    path.unlink()
    result = run("check", tmp_path)
    assert (result.exit_code, "lost are 10 messages of a queue" in result.output) == (1, True)
