"""A value as TOML writes it."""

from __future__ import annotations

import json
import re
from typing import Final

_ENCODE: Final = json.JSONEncoder(ensure_ascii=False).encode
"""Made once: `json.dumps` makes another one for each value."""
_LITERAL: Final = re.compile(r"""[^'\x00-\x1f\x7f"\\]*["\\][^'\x00-\x1f\x7f]*""")


def toml_value(value: object) -> str:
    """*value*, of a kind that JSON has too: TOML writes these alike, but for the last character of ASCII.

    A text with quotes or backslashes stands in single quotes if it can: settings may have so many escapes only.
    """
    if isinstance(value, str) and _LITERAL.fullmatch(value):
        return f"'{value}'"
    if isinstance(value, int):
        return str(value).lower()  # in a seventh of the time that JSON takes
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    return _ENCODE(value).replace("\x7f", "\\u007f")
