"""A value as TOML writes it."""

from __future__ import annotations

import json


def toml_value(value: object) -> str:
    """*value*, of a kind that JSON has too: TOML writes these alike, but for the last character of ASCII."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
