"""Parses the target of an HTTP request: a path, and a query of names and values. Errors name the allowed values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from edgebroker.names import most_alike
from edgebroker.runtime.http.server import HttpResponse

JSON: Final = "application/json"
FIELDS_MAX: Final = 16

Query = dict[str, str]


class QueryInvalid(Exception):
    """The query cannot be understood; the text says why and what is allowed."""


def json_response(value: dict[str, Any], code: HTTPStatus = HTTPStatus.OK) -> HttpResponse:
    """Returns *value* as a JSON response."""
    return HttpResponse(code, JSON, (json.dumps(value) + "\n").encode())


def parse_target(target: str) -> tuple[str, Query]:
    """Returns the path and the query of *target*. Raises QueryInvalid."""
    try:
        parts = urlsplit(target)
        pairs = parse_qsl(
            parts.query, keep_blank_values=True, strict_parsing=bool(parts.query), max_num_fields=FIELDS_MAX
        )
    except ValueError as error:
        raise QueryInvalid(f"not a path with a query: {error}") from None
    return parts.path, dict(pairs)


def read_choice(query: Query, name: str, default: str, known: Mapping[str, Any] | list[str]) -> str:
    """Returns the value of *name*, which is one of *known*. Raises QueryInvalid."""
    value = query.get(name, default)
    if value not in known:
        raise QueryInvalid(f"{name} is {value!r}; {suggestion(value, known)}")
    return value


def read_integer(query: Query, name: str, default: int, least: int, most: int) -> int:
    """Returns the value of *name*, a number between *least* and *most*. Raises QueryInvalid."""
    text = query.get(name, str(default))
    # At most 9 digits: int() of a long text takes long.
    if not (text.isascii() and text.isdigit() and len(text) < 10) or not least <= int(text) <= most:
        raise QueryInvalid(f"{name} is {text!r}; write a number, {least} to {most:,}")
    return int(text)


def suggestion(name: str, known: Any) -> str:
    """Returns text that names the one of *known* that is most like *name*, or all of them."""
    found = most_alike(name, known)
    if found:
        return f"did you mean {found}?"
    return f"there are {', '.join(sorted(known))}" if known else "it takes no question"
