"""Every numbered sentence of docs/filters.md has a test that carries its number, and no test carries another."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
SPECIFICATION = HERE.parents[1] / "docs" / "filters.md"


def cited() -> Iterator[str]:
    for source in HERE.glob("test_filter*_*.py"):
        for node in ast.walk(ast.parse(source.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "clause":
                yield from (argument.value for argument in node.args if isinstance(argument, ast.Constant))


def test_the_numbers_of_the_specification_and_of_the_tests_are_the_same() -> None:
    stated = re.findall(r"^- \*\*([FP])-(\d+)\*\*", SPECIFICATION.read_text("utf-8"), re.MULTILINE)
    for part in "FP":
        numbers = [int(number) for letter, number in stated if letter == part]
        assert numbers == list(range(1, len(numbers) + 1))
    assert {f"{letter}-{number}" for letter, number in stated} == set(cited())


def test_every_numbered_sentence_says_must() -> None:
    for paragraph in re.findall(r"^- \*\*[FP]-\d+\*\*.*?(?=^- |^$|\Z)", SPECIFICATION.read_text("utf-8"), re.M | re.S):
        assert "MUST" in paragraph, paragraph
