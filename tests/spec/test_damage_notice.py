"""What recovery found damaged is kept in a small file until an operator acknowledges it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgebroker.runtime.journal import files as files_module
from edgebroker.runtime.journal.damage_notice import DAMAGE_FILE, PLACES_MAX, DamageNotice
from edgebroker.runtime.journal.store import JournalWorker
from edgebroker.storage.journal.format import CONTROL_FILE
from edgebroker.storage.journal.options import JournalOptions

SMALL = JournalOptions(segment_bytes=64 * 1024)


def opened(path: Path) -> JournalWorker:
    return JournalWorker(path, SMALL, lambda lsn, records: None)


def test_where_nothing_is_damaged_there_is_no_file(tmp_path: Path) -> None:
    notice = DamageNotice(tmp_path)
    notice.record([])
    assert notice.unacknowledged() == notice.read() == notice.acknowledge() == []
    assert [*tmp_path.iterdir()] == []


def test_it_warns_over_restarts_until_it_is_acknowledged(tmp_path: Path) -> None:
    DamageNotice(tmp_path).record(["a"])
    running = DamageNotice(tmp_path)
    running.record(["b", "a"])
    assert running.unacknowledged() == ["a", "b"]
    assert DamageNotice(tmp_path).acknowledge() == ["a", "b"]
    assert running.unacknowledged() == []
    assert DamageNotice(tmp_path).acknowledge() == []


def test_what_was_acknowledged_and_is_found_again_does_not_warn_again(tmp_path: Path) -> None:
    DamageNotice(tmp_path).record(["a"])
    DamageNotice(tmp_path).acknowledge()
    for found, warns in ((["a"], []), (["a", "b"], ["b"]), ([], ["b"]), (["a"], ["b", "a"])):
        notice = DamageNotice(tmp_path)
        notice.record(found)
        assert notice.unacknowledged() == warns


def test_it_is_bounded(tmp_path: Path) -> None:
    notice = DamageNotice(tmp_path)
    notice.record(str(number) for number in range(2 * PLACES_MAX))
    assert len(DamageNotice(tmp_path).read()) == PLACES_MAX


@pytest.mark.parametrize("content", ["", "[]", '{"damage": 3, "acknowledged": []}', "\0" * 100, '{"damage": ["x"]}'])
def test_a_file_that_cannot_be_read_is_told_until_that_is_acknowledged(tmp_path: Path, content: str) -> None:
    (tmp_path / DAMAGE_FILE).write_text(content, encoding="utf-8")
    notice = DamageNotice(tmp_path)
    notice.record([])
    assert notice.unacknowledged() == [f"{DAMAGE_FILE} cannot be read: which damage it names is not known"]
    assert len(notice.acknowledge()) == 1
    assert DamageNotice(tmp_path).read() == []


def test_a_file_that_cannot_be_written_leaves_the_warning_of_this_run(tmp_path: Path) -> None:
    notice = DamageNotice(tmp_path / "missing")
    notice.record(["a"])
    assert notice.unacknowledged() == ["a"]
    assert "cannot be written" in notice.failure


def test_the_parents_of_a_new_folder_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    monkeypatch.setattr(files_module.os, "fsync", noted)
    opened(tmp_path / "a" / "b" / "journal").close(0)
    assert sorted(synced) == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")]
    synced.clear()
    opened(tmp_path / "a" / "b" / "journal").close(0)
    assert synced == []


def test_a_control_file_that_cannot_be_used_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / CONTROL_FILE).mkdir()
    worker = opened(tmp_path)
    assert worker.recovery_report is not None
    assert [damage.name for damage in worker.recovery_report.damage] == [CONTROL_FILE]
    worker.journal.append(b"one", 0)
    assert worker.run_due(10_000_000) == ""
    assert worker.journal.synced == 1
    assert worker.files.control_failure
    (tmp_path / CONTROL_FILE).rmdir()
    worker.close(20_000_000)
    assert worker.files.control_failure == ""
    assert opened(tmp_path).recovery_report is not None


def test_a_control_file_that_is_taken_away_is_made_again(tmp_path: Path) -> None:
    worker = opened(tmp_path)
    worker.journal.append(b"one", 0)
    worker.run_due(10_000_000)
    (tmp_path / CONTROL_FILE).unlink()
    worker.close(20_000_000)
    assert (tmp_path / CONTROL_FILE).stat().st_size == 1_024
