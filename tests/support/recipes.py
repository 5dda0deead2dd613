"""The programs that docs/recipes.md and other pages show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_DOCS = Path(__file__).parents[2] / "docs"


def recipe_lines(file: str, page: str = "recipes.md") -> list[str]:
    """The lines of the program *file* of *page*."""
    text = (_DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf"<!-- file: {file} -->\n```python\n(.*?)^```$", text, re.M | re.S)
    assert found is not None, file
    return found[1].splitlines()


def recipe(file: str, page: str = "recipes.md") -> dict[str, Any]:
    """What the program *file* of *page* defines, by name."""
    names: dict[str, Any] = {}
    exec("\n".join(recipe_lines(file, page)), names)
    return names
