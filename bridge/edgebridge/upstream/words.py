"""What the other side says, as people read it."""

from __future__ import annotations

from typing import Final

from edgebridge.wire.properties import Properties, Property, text
from edgebridge.wire.reasons import ReasonCode

CHARS_MAX: Final = 200  # of a text that somebody else chose


def in_words(reason: ReasonCode, properties: Properties) -> str:
    """A reason code, with the reason string if there is one."""
    said = text(properties, Property.REASON_STRING)[:CHARS_MAX]
    return f"{reason.name.lower().replace('_', ' ')} (0x{reason:02X})" + (f": {said}" if said else "")
