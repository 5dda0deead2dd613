"""Code points that texts of MQTT should not hold; U+0000 and surrogates none can (MQTT 5.0 section 1.5.4)."""

from __future__ import annotations

import re
from typing import Final

_DISALLOWED: Final = re.compile(
    "[\x01-\x1f\x7f-\x9f\ufdd0-\ufdef"
    + "".join(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF))
    + "]"
)


def has_disallowed(text: str) -> bool:
    """Whether a control character or a non-character is in *text*.

    Who receives one may take the packet for malformed and close the connection. Mosquitto and its clients do so, and
    what a session sends again closes the next one too: such a message would keep all behind it from them.
    """
    return not text.isprintable() and _DISALLOWED.search(text) is not None
