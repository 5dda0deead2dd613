"""Children that we start are not misled by what lies in the folder that we are called from."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

import edgebroker
from edgelab.bench.subjects import edgebroker as installed
from edgelab.bench.subjects import relay
from edgelab.demo.child import child
from edgelab.processes import python

TRAP = 'raise SystemExit("a module of the current folder was imported")\n'


@pytest.fixture
def trapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder has modules named like some of Python's and of ours."""
    for name in ("json.py", "h11.py", "click.py", "selectors.py"):
        (tmp_path / name).write_text(TRAP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_child_imports_nothing_from_the_current_folder(trapped: Path) -> None:
    done = subprocess.run([*python(), "-m", "edgebroker", "check", "--help"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_processes_of_the_demo_import_nothing_from_it(trapped: Path) -> None:
    async def ended() -> int:
        async with child("one", trapped, "edgebroker", "check", "--help") as started:
            return await started.wait()

    assert asyncio.run(ended()) == 0


def test_the_processes_of_benchmarks_import_nothing_from_it(trapped: Path) -> None:
    assert installed().version.startswith(edgebroker.__version__)
    assert "-P" in relay().command(1, trapped)


def test_in_the_source_tree_a_child_still_finds_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(edgebroker.__file__).parent.parent)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    command = [*python(), "-S", "-c", "import edgebroker"]
    assert subprocess.run(command, check=False).returncode == 0
