"""Writes docs/promises-tests.md, the tests of each promise, and their number in docs/promises.md.

The list is `tests/spec/promises.toml`: promise -> files of tests, or single tests as `file::test`. `--check` writes
nothing and reports by its exit code whether both pages are as they would be written.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests/spec/promises.toml"
TABLE = ROOT / "docs/promises.md"
APPENDIX = ROOT / "docs/promises-tests.md"
ROW = re.compile(r"^(\| (P\d+) \|.*\|) [^|]*\|$", re.M)
TEST = re.compile(r"^(?:async )?def (test_\w+)", re.M)

HEAD = """\
# Promises: their tests

Every test that would notice if a [promise](promises.md) were broken: whole files, and single tests of other files.
`tools/promises.py` writes this page from `tests/spec/promises.toml`, and a test fails if it is out of date.
"""


def listed() -> dict[str, list[str]]:
    """Promise -> its tests. Raises ValueError for a test that does not exist."""
    promises: dict[str, list[str]] = tomllib.loads(LIST.read_text("utf-8"))
    for promise, tests in promises.items():
        for test in tests:
            file, _, name = test.partition("::")
            if not (ROOT / file).is_file():
                raise ValueError(f"{LIST.name}: {promise}: there is no file {file}")
            if name and name not in TEST.findall((ROOT / file).read_text("utf-8")):
                raise ValueError(f"{LIST.name}: {promise}: {file} has no test {name}")
    return promises


def appendix(promises: dict[str, list[str]]) -> str:
    """The appendix as it should be."""
    parts = [HEAD]
    for promise, tests in promises.items():
        parts.append(f"\n## {promise}\n\n")
        for test in tests:
            file, _, name = test.partition("::")
            parts.append(f"- [{file.removeprefix('tests/')}](../{file})" + (f": `{name}`\n" if name else "\n"))
    return "".join(parts)


def table(text: str, promises: dict[str, list[str]]) -> str:
    """*text*, the page with the table, with the number of files of tests in the last column of each row."""

    def counted(row: re.Match[str]) -> str:
        files = {test.partition("::")[0] for test in promises.get(row[2], ())}
        return f"{row[1]} {len(files)} |"

    return ROW.sub(counted, text)


def main() -> int:
    """Write both pages. Exit code 1: one is out of date (`--check`); 2: a test that is listed does not exist."""
    parser = argparse.ArgumentParser(description="write docs/promises-tests.md and the numbers in docs/promises.md")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a page is out of date")
    options = parser.parse_args()
    try:
        promises = listed()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    text = TABLE.read_text("utf-8")
    pages = {APPENDIX: appendix(promises), TABLE: table(text, promises)}
    stale = [page for page, wanted in pages.items() if not page.exists() or page.read_text("utf-8") != wanted]
    if options.check:
        return int(bool(stale))
    for page in stale:
        page.write_text(pages[page], "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
