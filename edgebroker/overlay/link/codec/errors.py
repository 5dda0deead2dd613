"""The error of a peer that breaks the link protocol (docs/link-protocol.md)."""

from __future__ import annotations

from typing import Any, Final

from edgebroker.errors import EdgebrokerError

SHOWN_MAX: Final = 80
"""Characters of a value that an error message shows."""
_ITEMS_SHOWN: Final = 8
_BITS_SHOWN: Final = 64


class FrameBroken(EdgebrokerError):
    """Bytes of a peer violate the link protocol; the message says how. The connection ends."""


def shown(value: Any, is_inside: bool = False) -> str:
    """Return the beginning of *value* as text, in bounded time. `repr` would format all of it, and raises ValueError
    for numbers of more than 4,300 digits.
    """
    if isinstance(value, int) and value.bit_length() > _BITS_SHOWN:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, dict):
        return f"a map of {len(value)}"
    if isinstance(value, list | tuple):
        if is_inside:
            return f"a list of {len(value)}"
        rest = ", ..." if len(value) > _ITEMS_SHOWN else ""
        return f"[{', '.join(shown(each, True) for each in value[:_ITEMS_SHOWN])}{rest}]"[:SHOWN_MAX]
    return repr(value[:SHOWN_MAX] if isinstance(value, str | bytes) else value)[:SHOWN_MAX]
