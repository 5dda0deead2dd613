"""The decoder of texts in journal records: like `wire.fields`, but its errors are cheap.

Nobody reads the reason, but 64 KiB of damaged records hold 5,400 texts: errors written for a peer would take 20 ms.
"""

from __future__ import annotations


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
