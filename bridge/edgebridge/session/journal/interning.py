"""Interning of texts during recovery: equal client identifiers and topics become one object."""

from __future__ import annotations

from typing import Final

from edgebridge.session.journal.text import read_text

INTERNED_BYTES_MAX: Final = 128
"""Longer texts are made anew each time..."""
INTERNED_TEXTS_MAX: Final = 16_384
"""...and so are all when so many are known: 5 MiB at most while a journal is read."""


class TextInterner:
    """Reads texts. 700,000 messages of ten publishers have ten texts between them, and not as many as there are."""

    __slots__ = ("_known", "end")

    def __init__(self) -> None:
        self.end = 0
        """Where the text that was read last ends."""
        self._known: dict[bytes, str] = {}

    def read(self, record: bytes, at: int) -> str:
        """The text at *at*, as `read_text` reads it, and with its errors."""
        start = at + 2
        if start > len(record):
            raise ValueError("a text ends beyond its record")
        octet = record  # compiled it is a pointer: a slice is one allocation, and no slice object
        end = start + (octet[at] << 8 | octet[at + 1])
        if end > len(record):
            raise ValueError("a text ends beyond its record")
        key = octet[at:end]  # its first bytes say how long it is
        found = self._known.get(key)
        if found is None:
            found, end = read_text(record, at)
            if end - start <= INTERNED_BYTES_MAX:
                if len(self._known) >= INTERNED_TEXTS_MAX:
                    self._known.clear()
                self._known[key] = found
        self.end = end
        return found
