"""A value as TOML writes it."""

from __future__ import annotations

import json
from typing import Final

_ENCODE: Final = json.JSONEncoder(ensure_ascii=False).encode
"""Made once: `json.dumps` makes another one for each value."""


def toml_value(value: object) -> str:
    """*value*, of a kind that JSON has too: TOML writes these alike, but for the last character of ASCII."""
    return _ENCODE(value).replace("\x7f", "\\u007f")
