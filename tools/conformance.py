"""Writes docs/conformance.md: every numbered statement of MQTT 3.1.1 and 5.0, and the tests that hold it.

The statements are data (`tests/spec/conformance/*.toml`); the tests name them themselves, by

    @pytest.mark.mqtt("MQTT-3.1.0-1")                       the same number in both versions
    @pytest.mark.mqtt(v311="MQTT-3.1.2-24", v5=("MQTT-3.1.2-22", "MQTT-3.1.2-8"))

and are read from their sources, not imported. `--check` writes nothing and says by its exit code whether the page is as
it would be written.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STATEMENTS = {
    "3.1.1": ROOT / "tests/spec/conformance/v311.toml",
    "5.0": ROOT / "tests/spec/conformance/v5.toml",
}
KEYWORDS = {"v311": "3.1.1", "v5": "5.0"}
PAGE = ROOT / "docs/conformance.md"
WHO = ("server", "client", "both")

HEAD = """\
# Conformance

Every numbered statement of MQTT 3.1.1 and MQTT 5.0 (appendix B of both standards), in our own words, with the tests
that would notice if the broker broke it. The standards decide, not these words:
[MQTT 3.1.1](https://docs.oasis-open.org/mqtt/mqtt/v3.1.1/os/mqtt-v3.1.1-os.html),
[MQTT 5.0](https://docs.oasis-open.org/mqtt/mqtt/v5.0/os/mqtt-v5.0-os.html).

`tools/conformance.py` writes this page from the list in `tests/spec/conformance` and from the marks of the tests. A
test fails if it is out of date, if a test names a statement that does not exist, or if a statement that binds a server
has neither a test nor a reason for having none. What the broker does differently from Mosquitto is in
[differences.md](differences.md).

"""


@dataclass(slots=True)
class Statement:
    """One numbered statement. *why* says why it has no test; *tests* are (file, name), in order."""

    number: str
    who: str
    text: str
    why: str = ""
    tests: list[tuple[str, str]] = field(default_factory=list)

    @property
    def binds_server(self) -> bool:
        return self.who != "client"


@dataclass(frozen=True, slots=True)
class Claim:
    """A test says that it holds a statement."""

    version: str
    number: str
    file: str
    test: str


def claims(folder: Path = ROOT / "tests") -> Iterator[Claim]:
    """What the tests below *folder* say, in the order of files and lines. Raises ValueError for an unreadable mark."""
    for source in sorted(folder.rglob("test_*.py")):
        text = source.read_text("utf-8")
        if "mark.mqtt(" not in text:
            continue
        for node in ast.parse(text).body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for version, number in _marks(node):
                yield Claim(version, number, source.relative_to(folder.parent).as_posix(), node.name)


def _marks(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, str]]:
    for decorator in function.decorator_list:
        for node in ast.walk(decorator):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "mqtt":
                for argument in node.args:
                    for version in STATEMENTS:
                        yield from ((version, number) for number in _numbers(argument))
                for keyword in node.keywords:
                    version = KEYWORDS[str(keyword.arg)]
                    yield from ((version, number) for number in _numbers(keyword.value))


def _numbers(node: ast.expr) -> tuple[str, ...]:
    value = ast.literal_eval(node)
    return (value,) if isinstance(value, str) else tuple(value)


def statements(claimed: Iterable[Claim]) -> dict[str, dict[str, Statement]]:
    """Version -> number -> statement, with its tests. Raises ValueError for a claim of what does not exist."""
    found = {
        version: {number: Statement(number, **line) for number, line in tomllib.loads(path.read_text("utf-8")).items()}
        for version, path in STATEMENTS.items()
    }
    for claim in claimed:
        if claim.number not in found[claim.version]:
            raise ValueError(f"{claim.file}: {claim.test}: MQTT {claim.version} has no statement {claim.number}")
        tests = found[claim.version][claim.number].tests
        if (claim.file, claim.test) not in tests:
            tests.append((claim.file, claim.test))
    return found


def summary(version: str, listed: Iterable[Statement]) -> str:
    """One line: how many statements there are, and how many of a server's have a test or a reason."""
    listed = list(listed)
    server = [one for one in listed if one.binds_server]
    tested = sum(bool(one.tests) for one in server)
    reasons = sum(bool(one.why) and not one.tests for one in server)
    client = sum(bool(one.tests) for one in listed if not one.binds_server)
    return (
        f"MQTT {version}: {len(listed)} statements, {len(server)} bind a server: {tested} have tests, "
        f"{reasons} a reason for none, {len(server) - tested - reasons} neither; "
        f"{client} of the {len(listed) - len(server)} that bind clients alone have tests too"
    )


def page(found: dict[str, dict[str, Statement]]) -> str:
    """The page as it should be."""
    parts = [HEAD]
    parts += [f"- {summary(version, listed.values())}\n" for version, listed in found.items()]
    for version, listed in found.items():
        parts.append(f"\n## MQTT {version}\n\n| Statement | Binds | In short | Tests |\n|---|---|---|---|\n")
        parts += [f"| {one.number} | {one.who} | {one.text} | {_held(one)} |\n" for one in listed.values()]
    return "".join(parts)


def _held(one: Statement) -> str:
    if one.tests:
        return "<br>".join(f"[{test.removeprefix('test_')}](../{file})" for file, test in one.tests)
    return f"none: {one.why}" if one.why else "none" if one.binds_server else ""


def main() -> int:
    """Write the page, or say what it would say. Exit code 1 if it is out of date."""
    parser = argparse.ArgumentParser(description="write docs/conformance.md from the statements and the tests' marks")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if the page is out of date")
    parser.add_argument("--count", action="store_true", help="write nothing; say how many statements have tests")
    parser.add_argument("--open", action="store_true", help="list the statements of servers without test and reason")
    options = parser.parse_args()
    try:
        found = statements(claims())
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if options.open:
        for version, listed in found.items():
            for one in listed.values():
                if one.binds_server and not one.tests and not one.why:
                    print(f"{version}  {one.number}  {one.text}")
        return 0
    if options.check:
        return int(not PAGE.exists() or PAGE.read_text("utf-8") != page(found))
    if not options.count:
        PAGE.write_text(page(found), "utf-8")
    print("\n".join(summary(version, listed.values()) for version, listed in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
