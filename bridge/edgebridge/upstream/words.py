"""What the other side says, as people read it."""

from __future__ import annotations

from typing import Final

from edgebridge.wire.properties import Properties, Property, text
from edgebridge.wire.reasons import ReasonCode

CHARS_MAX: Final = 200  # of a text that somebody else chose


def in_words(reason: ReasonCode, properties: Properties) -> str:
    """A reason code, with the reason string if there is one."""
    said = printable(text(properties, Property.REASON_STRING)[:CHARS_MAX])
    return f"{reason.name.lower().replace('_', ' ')} (0x{reason:02X})" + (f": {said}" if said else "")


def printable(text: str) -> str:
    """*text* without what would move a cursor, colour a terminal or begin a line: such characters are spelt out."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
