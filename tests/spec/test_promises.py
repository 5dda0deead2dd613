"""docs/promises.md has every promise once; each has tests that exist or says "not yet"; the appendix is up to date."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

PAGE = "docs/promises.md"
LIST = "tests/spec/promises.toml"
TOOL = "tools/promises.py"
ROW = re.compile(r"^\| (P\d+) \| (.*?) \| (.*?) \| *(\d+) *\|$", re.M)
PROMISES = [f"P{number}" for number in range(1, 11)]


def test_every_promise_has_tests_or_says_not_yet(root: Path) -> None:
    rows = ROW.findall((root / PAGE).read_text(encoding="utf-8"))
    assert [number for number, *_ in rows] == PROMISES
    for number, _, meaning, files in rows:
        assert bool(int(files)) is not meaning.startswith("not yet"), number


def test_the_tests_named_exist(root: Path) -> None:
    promises = tomllib.loads((root / LIST).read_text(encoding="utf-8"))
    assert list(promises) == PROMISES
    for number, tests in promises.items():
        assert tests == sorted(set(tests)), f"{number}: in order, each once"
        for test in tests:
            file, _, function = test.partition("::")
            assert f"def {function}" in (root / file).read_text(encoding="utf-8"), f"{number}: {test}"


def test_the_appendix_is_up_to_date(root: Path) -> None:
    checked = subprocess.run([sys.executable, str(root / TOOL), "--check"], check=False)
    assert checked.returncode == 0, f"python {TOOL}"
