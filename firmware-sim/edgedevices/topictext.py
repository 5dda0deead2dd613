"""Topics made of texts that were not written to be topics: host names, CSV values."""

from __future__ import annotations

UNSAFE = str.maketrans(dict.fromkeys("/+#\0", "_"))


def level(text: str) -> str:
    """*text* as one topic level: blanks around it removed, `/`, `+`, `#` and U+0000 replaced by `_`."""
    return text.strip().translate(UNSAFE)


def is_publishable(topic: str) -> bool:
    """Whether *topic* may be published to: not empty, no wildcard, no U+0000, at most 65,535 bytes."""
    return bool(topic) and not set(topic) & set("+#\0") and len(topic.encode(errors="replace")) < 65_536
