"""A report that cannot be finished says so in a line, with an exit code of its own; and says what counts twice."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from click.testing import CliRunner, Result
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkRuntimeError

from edgeanalytics import inventory, session
from edgeanalytics.__main__ import main
from edgeanalytics.java import Java
from tests.support import plain_figures as reference


def report(monkeypatch: pytest.MonkeyPatch, compute: Any, *arguments: object) -> Result:
    monkeypatch.setattr("edgeanalytics.session.spark_session", lambda *_, **_options: nullcontext())
    monkeypatch.setattr("edgeanalytics.figures.compute", compute)
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


def by_reference(_spark: Any, folder: Path, *_: Any) -> Any:
    return reference.figures(reference.read(folder))


@pytest.fixture
def log(tmp_path: Path, gateway: Any, truth: Any) -> Path:
    folder = tmp_path / "log"
    folder.mkdir()
    gateway(folder, "gw", "b1", truth(), random.Random(1)).run(20)
    return folder


def test_an_interrupted_report_does_not_say_that_something_is_lost(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    result = report(monkeypatch, interrupted, log)
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr.splitlines()[-1] == "edgeanalytics: interrupted: nothing is said of these logs"


def test_a_page_that_cannot_be_written_costs_no_figures(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = report(monkeypatch, by_reference, log, "--out", "/dev/full")
    assert result.exit_code == 2
    assert "audit" in result.stdout
    assert "report" not in result.stdout
    assert "/dev/full cannot be written: No space left on device" in result.stderr


def test_where_nobody_may_write_no_report_is_begun(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)
    result = report(monkeypatch, lambda *_: pytest.fail("it was begun"), log, "--out", log / "o.html")
    assert result.exit_code == 2
    assert "may not be written" in result.stderr


def test_what_is_there_twice_is_counted_once_and_that_is_said(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = report(monkeypatch, by_reference, log).stdout.splitlines()
    shutil.copytree(log, log / "backup")
    lines = report(monkeypatch, by_reference, log).stdout.splitlines()
    assert [line for line in lines if not line.startswith("copies of")] == before
    assert any(line.startswith("copies of") and "each counts once" in line for line in lines)


def test_linked_folders_are_read_and_what_cannot_be_listed_ends_the_report(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "gw").symlink_to(log)
    (log / "round").symlink_to(tmp_path / "all")
    (log / "film.part").write_text("a download, and no log")
    assert [file.name for file in inventory.paths(tmp_path / "all")] == sorted(file.name for file in log.glob("*.edl"))
    (log / "secret").mkdir()
    listed = os.scandir

    def refusing(folder: Any) -> Iterator[os.DirEntry[str]]:
        if Path(folder).name == "secret":
            raise PermissionError(13, "Permission denied", str(folder))
        return listed(folder)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(inventory.NothingToRead, match="secret cannot be read: Permission denied"):
        inventory.paths(log)


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (Py4JNetworkError("x"), "Java has gone in the midst of it"),
        (ConnectionRefusedError(111, "Connection refused"), "Java has gone in the midst of it"),
        (PySparkRuntimeError("no space\nmany lines"), "Spark failed: no space"),
    ],
)
def test_what_ends_spark_is_a_line(trouble: Exception, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def stop(self) -> None:
            raise ConnectionRefusedError

    monkeypatch.setattr(session, "start", lambda *_, **_options: Gone())
    java = Java(Path("/nowhere"), "17", "PATH", needs_shim=False)
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # so that they are put back
    with pytest.raises(session.SparkFailed, match=words), session.spark_session(java):
        raise trouble


def test_only_small_reports_do_without_the_optimising_compiler(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "TieredStopAtLevel" in session.compiler_options(is_large=False)
    assert "TieredStopAtLevel" not in session.compiler_options(is_large=True)
    sizes: list[bool] = []
    monkeypatch.setattr("edgeanalytics.session.spark_session", lambda *_, is_large: nullcontext(sizes.append(is_large)))
    monkeypatch.setattr("edgeanalytics.figures.compute", by_reference)
    for limit in (10**6, 1):
        monkeypatch.setattr("edgeanalytics.__main__.ROWS_LARGE", limit)
        CliRunner().invoke(main, ["report", str(log)])
    assert sizes == [False, True]


class NoSpark(Exception):
    """Spark is not started in this test."""


@pytest.mark.parametrize(("said", "told"), [("", None), (None, None), ("10.0.0.7", "10.0.0.7")])
def test_another_machines_spark_is_told_no_empty_address(
    said: str | None, told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`SPARK_LOCAL_IP=""` made a report on another machine hang without a word."""
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # so that they are put back
    if said is None:
        monkeypatch.delenv("SPARK_LOCAL_IP")
    else:
        monkeypatch.setenv("SPARK_LOCAL_IP", said)
    seen: list[str | None] = []

    def start(*_: object, **_options: object) -> None:
        seen.append(os.environ.get("SPARK_LOCAL_IP"))
        raise NoSpark

    monkeypatch.setattr(session, "start", start)
    java = Java(Path("/nowhere"), "17", "PATH", needs_shim=False)
    with pytest.raises(session.SparkFailed), session.spark_session(java, "yarn"):
        pass
    assert seen == [told]


def test_a_spark_that_does_not_answer_ends_the_report_in_a_line(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]  # nobody listens there any more
    result = CliRunner().invoke(main, ["report", str(log), "--master", f"spark://127.0.0.1:{port}"])
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith(f"edgeanalytics: no Spark answers at 127.0.0.1:{port}")


def test_a_spark_without_workers_ends_the_report_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker ever takes the job, as where they do not reach this machine."""
    ended = threading.Event()

    class Waiting:
        conf = MappingProxyType({"spark.driver.host": "here"})

        def range(self, _: int) -> Any:
            return self

        def count(self) -> int:
            ended.wait()
            return 0

    monkeypatch.setattr(session, "WORKERS_WITHIN_S", 0.01)
    try:
        with pytest.raises(session.SparkFailed, match="gave no worker within") as failed:
            session.check_workers(Waiting(), "spark://far:7077")  # type: ignore[arg-type]
        assert "\n" not in str(failed.value)
    finally:
        ended.set()


def test_sigterm_leaves_no_files_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended:
        def stop(self) -> None:
            assert "PYTHONSAFEPATH" not in os.environ, "it is Java's alone"

    monkeypatch.setattr(session, "start", lambda *_, **_options: Ended())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # so that they are put back
    with pytest.raises(SystemExit) as ended, session.spark_session(Java(Path("/nowhere"), "17", "PATH", False)):
        signal.raise_signal(signal.SIGTERM)
    assert (ended.value.code, list(tmp_path.iterdir())) == (143, [])


def test_ctrl_c_stays_ours_and_nothing_is_told_that_was_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)
    with session.own_interrupts():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
def test_workers_import_nothing_from_the_current_folder(log: Path, tmp_path: Path) -> None:
    for name in ("json.py", "socket.py"):
        (tmp_path / name).write_text("raise SystemExit('a module of the current folder was imported')")
    command = [sys.executable, "-P", "-m", "edgeanalytics", "report", str(log), "--master", "local[1]"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
