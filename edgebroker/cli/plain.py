"""What clients chose, in a line for people: a topic may hold line breaks and what commands a terminal."""

from __future__ import annotations

import json
from typing import Any


def plain(value: Any) -> str:
    """A value behind `name=`: texts that are empty, have spaces or cannot be printed stand in quotes, as JSON."""
    if isinstance(value, str) and value and value.isprintable() and not set(value) & set(' "\\'):
        return value
    return json.dumps(value, ensure_ascii=not (isinstance(value, str) and value.isprintable()))


def harmless(text: str) -> str:
    """*text* in a sentence: as it is, or escaped if it cannot be printed."""
    return text if text.isprintable() else json.dumps(text)[1:-1]
