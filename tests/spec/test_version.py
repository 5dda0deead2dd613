"""Every build has a version of its own, with its commit; a newer one is higher, whatever the tree came from."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.version import Version

import edgebroker

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed; it makes the trees")

ROOT = Path(__file__).resolve().parents[2]
TIME_OF_COMMIT = "2030-01-02T03:04:05Z"
IDENTITY = {f"GIT_{who}_{what}": "nobody@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def run(folder: Path, *command: str, **environment: str) -> str:
    """What *command* prints; without EDGEBROKER_PURE=0 nothing is compiled."""
    known = {
        **os.environ,
        **IDENTITY,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "EDGEBROKER_PURE": "1",
        "EDGEBROKER_REQUIRE_EXT": "0",
    } | environment
    done = subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def version(folder: Path) -> str:
    return run(folder, sys.executable, "setup.py", "--version").splitlines()[-1]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small tree that is built as the large one: one package, one module to compile."""
    folder = tmp_path / "tree"
    (folder / "edgebroker").mkdir(parents=True)
    for name in ("setup.py", "README.md", "LICENSE", "edgebroker/__init__.py", "edgebroker/tokenbucket.py"):
        shutil.copy(ROOT / name, folder / name)
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    compiled = 'compiled = ["edgebroker/tokenbucket.py"]'
    (folder / "pyproject.toml").write_text(re.sub(r"(?s)^compiled = \[.*?^\]", compiled, settings, flags=re.M))
    return folder


def commit(tree: Path, at: str = TIME_OF_COMMIT) -> str:
    """Commits the tree; the short name of the commit."""
    if not (tree / ".git").exists():
        run(tree, "git", "init", "--quiet")
    run(tree, "git", "add", ".")
    run(tree, "git", "commit", "--quiet", "--allow-empty", "-m", "x", GIT_COMMITTER_DATE=at, GIT_AUTHOR_DATE=at)
    return run(tree, "git", "rev-parse", "--short=9", "HEAD")


def test_the_newest_release_is_in_the_changelog_with_its_date() -> None:
    newest = re.search(r"^## (\d+\.\d+\.\d+) - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest is not None
    assert edgebroker.__version__ == f"{newest[1]}+source"


def test_the_version_comes_from_the_tag_or_from_the_commit(tree: Path) -> None:
    first = commit(tree)
    assert version(tree) == f"0.2.1.dev20300102030405+g{first}", "a clone without tags"
    run(tree, "git", "tag", "v0.2.0")
    assert version(tree) == "0.2.0"
    second = commit(tree, "2030-01-02T03:04:06Z")
    assert version(tree) == f"0.2.1.dev20300102030406+g{second}"
    run(tree, "git", "tag", "v0.10.0")
    run(tree, "git", "tag", "v0.9.0", "HEAD~1")
    assert version(tree) == "0.10.0"
    third = commit(tree, "2030-01-02T03:04:07Z")
    assert version(tree) == f"0.10.1.dev20300102030407+g{third}"
    (tree / "README.md").write_text("changed\n")
    assert version(tree).endswith(f"+g{third}.changed")


def test_a_copy_without_git_has_the_time_of_its_newest_source(tree: Path) -> None:
    commit(tree.parent)  # the repository of something else
    for number, file in enumerate(tree.rglob("*.py")):
        os.utime(file, (1_900_000_000 + number, 1_900_000_000 + number))
    older = version(tree)
    assert re.fullmatch(r"0\.2\.1\.dev203003171746\d\d\+unknown", older)
    os.utime(tree / "edgebroker/tokenbucket.py", (1_900_000_100, 1_900_000_100))
    assert Version("0.2.0") < Version(older) < Version(version(tree)) < Version("0.2.1")


def test_an_sdist_and_a_wheel_of_it_say_what_they_are_made_of(tree: Path, tmp_path: Path) -> None:
    name = commit(tree)
    called = f"0.2.1.dev20300102030405+g{name}"
    run(tree, sys.executable, "setup.py", "-q", "sdist", "--dist-dir", str(tmp_path))
    shutil.unpack_archive(tmp_path / f"edgebroker-{called}.tar.gz", tmp_path)
    unpacked = tmp_path / f"edgebroker-{called}"
    assert version(unpacked) == called
    run(unpacked, sys.executable, "setup.py", "-q", "bdist_wheel", "--dist-dir", str(tmp_path))
    with zipfile.ZipFile(tmp_path / f"edgebroker-{called}-py3-none-any.whl") as wheel:
        text = wheel.read("edgebroker/__init__.py").decode()
    assert f'__version__ = "{called}"\n' in text
    assert f'__commit__ = "{name}"\n' in text
    assert "+source" in (tree / "edgebroker/__init__.py").read_text(), "the tree itself is left alone"


def test_a_wheel_that_could_not_be_compiled_runs_everywhere_and_says_what_that_costs(tree: Path) -> None:
    pytest.importorskip("Cython", reason="Cython is not installed")
    command = [sys.executable, "setup.py", "-q", "bdist_wheel", "--dist-dir", "wheels"]
    environment = {**os.environ, "CC": "false", "EDGEBROKER_PURE": "0", "EDGEBROKER_REQUIRE_EXT": "0"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=True)
    assert [file.name.endswith("-py3-none-any.whl") for file in (tree / "wheels").iterdir()] == [True]
    assert "pure Python, because compiling failed" in done.stderr
    assert f"pure Python: {edgebroker.PURE_COSTS}" in done.stderr, "pip install -v shows it"
