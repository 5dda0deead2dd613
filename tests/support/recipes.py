"""The programs that docs/recipes.md shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_TEXT = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text(encoding="utf-8")


def recipe_lines(file: str) -> list[str]:
    """The lines of the program *file*."""
    found = re.search(rf"<!-- file: {file} -->\n```python\n(.*?)^```$", _TEXT, re.M | re.S)
    assert found is not None, file
    return found[1].splitlines()


def recipe(file: str) -> dict[str, Any]:
    """What the program *file* defines, by name."""
    names: dict[str, Any] = {}
    exec("\n".join(recipe_lines(file)), names)
    return names
