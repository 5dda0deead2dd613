"""docs/architecture.md names the files and functions of six journeys, and they are those that run, in that order.

A journey is a numbered list behind the comment `<!-- journey: NAME -->`. Each line has a file and a function in it:

    1. `bridge/edgebridge/frontend/frontend.py` `Frontend.feed`: the reactor hands in what it has read from a socket.

NAME is one of `JOURNEYS` in tools/follow_publish.py, which plays it in simulation and records the calls; what is on a
disk or in Spark (`log`) is looked up in the sources alone.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
MARK = re.compile(r"^<!-- journey: (?P<name>[a-z-]+) -->\n(?P<steps>(?:\d+\. .*\n)+)", re.M)
STEP = re.compile(r"\d+\. `(?P<file>[^`]+\.py)` `(?P<function>[\w.]+)`: .+")

Step: TypeAlias = tuple[str, str]
"""A file, relative to the root, and a function with its class."""


def documented(text: str) -> dict[str, list[Step]]:
    """The journeys of a page. Raises AssertionError for a line that is no step."""
    journeys = {}
    for found in MARK.finditer(text):
        lines = found["steps"].splitlines()
        matches = [STEP.fullmatch(line) for line in lines]
        assert all(matches), f"no step: {[line for line, match in zip(lines, matches, strict=True) if match is None]}"
        assert [line.partition(".")[0] for line in lines] == [str(number) for number in range(1, len(lines) + 1)]
        journeys[found["name"]] = [(match["file"], match["function"]) for match in matches if match is not None]
    return journeys


def followed(steps: Sequence[Step], calls: Sequence[Step]) -> int:
    """How many of *steps* occur in *calls*, in their order: all of them, if the page is right."""
    remaining = iter(calls)
    return next((number for number, step in enumerate(steps) if step not in remaining), len(steps))


def is_defined(file: str, function: str) -> bool:
    """Whether *file* defines *function*, a function or `Class.method`."""
    body: Sequence[ast.stmt] = ast.parse((ROOT / file).read_bytes()).body
    for name in function.split("."):
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        found = [node for node in body if isinstance(node, kinds) and node.name == name]
        if not found:
            return False
        body = found[0].body
    return True


JOURNEYS = documented(PAGE.read_text(encoding="utf-8"))
RECORDED = ("publish", "publish-to-another-site", "acknowledge", "subscribe", "start")


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory, kernel_files: dict[str, str]) -> dict[str, list[Step]]:
    """All calls of each journey, recorded in a tree without compiled modules: in this one, or in a copy of it."""
    tree = ROOT
    if not all(file.endswith((".py", ".pyx")) for file in kernel_files.values()):
        tree = tmp_path_factory.mktemp("pure")
        subprocess.run([sys.executable, str(ROOT / "tools" / "puretree.py"), str(tree)], check=True)
    tool = tree / "tools" / "follow_publish.py"
    ran = subprocess.run(
        [sys.executable, str(tool), "--json"], capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    return {name: [tuple(call) for call in one["calls"]] for name, one in json.loads(ran.stdout).items()}


def test_the_page_has_all_journeys() -> None:
    assert set(JOURNEYS) == {*RECORDED, "log"}
    assert {name: len(steps) for name, steps in JOURNEYS.items() if not 6 <= len(steps) <= 14} == {}


@pytest.mark.parametrize("name", RECORDED)
def test_a_journey_takes_the_documented_steps_in_order(name: str, calls: dict[str, list[Step]]) -> None:
    steps = JOURNEYS[name]
    reached = followed(steps, calls[name])
    missed = [f"{file} {function}" for file, function in steps[reached : reached + 1]]
    assert reached == len(steps), f"step {reached + 1} of {name} is not taken there: {missed[0]}"


def test_every_documented_function_exists() -> None:
    wrong = [step for steps in JOURNEYS.values() for step in steps if not is_defined(*step)]
    assert wrong == []


def test_steps_are_found_in_order_only() -> None:
    calls = [("a.py", "f"), ("b.py", "C.g"), ("a.py", "f"), ("c.py", "h")]
    assert followed([("a.py", "f"), ("c.py", "h")], calls) == 2
    assert followed([("b.py", "C.g"), ("a.py", "f")], calls) == 2
    assert followed([("c.py", "h"), ("a.py", "f")], calls) == 1
    assert followed([("a.py", "g")], calls) == 0


def test_a_line_that_is_no_step_is_an_error() -> None:
    assert documented("<!-- journey: a -->\n1. `a.py` `f`: does it.\n") == {"a": [("a.py", "f")]}
    with pytest.raises(AssertionError, match="no step"):
        documented("<!-- journey: a -->\n1. a.py f\n")


def test_the_tool_refuses_what_it_does_not_know() -> None:
    tool = str(ROOT / "tools" / "follow_publish.py")
    ran = subprocess.run([sys.executable, tool, "nowhere"], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "Journeys: round-trip, publish" in ran.stderr


def test_the_tool_refuses_a_compiled_tree(tmp_path: Path) -> None:
    tool = tmp_path / "tools" / "follow_publish.py"
    tool.parent.mkdir()
    tool.write_text((ROOT / "tools" / "follow_publish.py").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "edgebroker").mkdir()
    (tmp_path / "edgebroker" / "publication.cpython-311-x86_64-linux-gnu.so").touch()
    ran = subprocess.run([sys.executable, str(tool)], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "puretree" in ran.stderr
