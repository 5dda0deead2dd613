"""docs/promises.md names tests that exist, and every promise either has one or says "not yet"."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = "docs/promises.md"
ROW = re.compile(r"^\| (P\d+) \| (.*?) \| (.*?) \| *(.*?) *\|$", re.M)


def test_every_promise_has_tests_or_says_not_yet(root: Path) -> None:
    rows = ROW.findall((root / PAGE).read_text(encoding="utf-8"))
    assert [number for number, *_ in rows] == [f"P{number}" for number in range(1, 11)]
    for number, _, today, tests in rows:
        assert bool(re.findall(r"`tests/", tests)) is not today.startswith("not yet"), number


def test_the_tests_named_exist(root: Path) -> None:
    named = re.findall(r"`(tests/[^`:]+)(?:::(\w+))?`", (root / PAGE).read_text(encoding="utf-8"))
    assert named
    for file, function in named:
        assert f"def {function}" in (root / file).read_text(encoding="utf-8"), f"{file}::{function}"
