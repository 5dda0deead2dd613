"""Texts in journal records: the decoder, and the interner that makes equal client identifiers and topics one object.

The decoder reads what `wire.fields` reads, but its errors are cheap. Nobody reads the reason, but 64 KiB of damaged
records hold 5,400 texts: errors written for a peer would take 20 ms.
"""

from __future__ import annotations

from typing import Final

INTERNED_BYTES_MAX: Final = 128
"""Longer texts are made anew each time..."""
INTERNED_TEXTS_MAX: Final = 16_384
"""...and so are all when so many are known: 5 MiB at most while a journal is read."""


def read_text(record: bytes, at: int) -> tuple[str, int]:
    """The text at *at*, behind its length in two bytes, and where it ends. Raises ValueError."""
    start = at + 2
    end = start + (record[at] << 8 | record[at + 1]) if start <= len(record) else start
    if end > len(record):
        raise ValueError("a text ends beyond its record")
    # To make a UnicodeDecodeError takes 1 us. What is no UTF-8 is dropped instead, which its size tells.
    text = record[start:end].decode("utf-8", "ignore")
    if len(text) != end - start and len(text.encode()) != end - start:
        raise ValueError("a text is no UTF-8")
    if "\0" in text:
        raise ValueError("a text holds U+0000")
    return text, end


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
