"""What is asked at the HTTP door: a path, and names with values behind it; what is wrong with it is said in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from edgebroker.likeness import most_alike
from edgebroker.world.http import Answer

JSON: Final = "application/json"
FIELDS_MAX: Final = 16

Query = dict[str, str]


class QueryRefused(Exception):
    """A question that cannot be understood; the text says why and what can be asked."""


def in_json(value: dict[str, Any], code: HTTPStatus = HTTPStatus.OK) -> Answer:
    """An answer for programs."""
    return Answer(code, JSON, (json.dumps(value) + "\n").encode())


def parts_of(target: str) -> tuple[str, Query]:
    """The path and what is asked for. Raises QueryRefused."""
    try:
        parts = urlsplit(target)
        pairs = parse_qsl(
            parts.query, keep_blank_values=True, strict_parsing=bool(parts.query), max_num_fields=FIELDS_MAX
        )
    except ValueError as error:
        raise QueryRefused(f"not a path with a query: {error}") from None
    return parts.path, dict(pairs)


def choice(query: Query, name: str, default: str, known: Mapping[str, Any] | list[str]) -> str:
    """The value of *name*, which is one of *known*. Raises QueryRefused."""
    value = query.get(name, default)
    if value not in known:
        raise QueryRefused(f"{name} is {value!r}; {nearest(value, known)}")
    return value


def whole(query: Query, name: str, default: int, least: int, most: int) -> int:
    """The value of *name*, a number between *least* and *most*. Raises QueryRefused."""
    text = query.get(name, str(default))
    # At most 9 digits: int() of very many takes long.
    if not (text.isascii() and text.isdigit() and len(text) < 10) or not least <= int(text) <= most:
        raise QueryRefused(f"{name} is {text!r}; write a number, {least} to {most:,}")
    return int(text)


def nearest(name: str, known: Any) -> str:
    """Which of *known* was meant by *name*, or what there is."""
    found = most_alike(name, known)
    if found:
        return f"did you mean {found}?"
    return f"there are {', '.join(sorted(known))}" if known else "it takes no question"
