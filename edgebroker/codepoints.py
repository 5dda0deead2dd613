"""Code points that texts of MQTT should not hold; U+0000 and surrogates none can (MQTT 5.0 section 1.5.4)."""

from __future__ import annotations

from itertools import chain
from typing import Final

_CONTROLS: Final = chain(range(0x01, 0x20), range(0x7F, 0xA0))
_NON_CHARACTERS: Final = chain(
    range(0xFDD0, 0xFDF0), (plane << 16 | low for plane in range(17) for low in (0xFFFE, 0xFFFF))
)
_DISALLOWED: Final = frozenset(map(chr, chain(_CONTROLS, _NON_CHARACTERS)))


def has_disallowed(text: str) -> bool:
    """Whether a control character or a non-character is in *text*.

    Who receives one may take the packet for malformed and close the connection. Mosquitto and its clients do so, and
    what a session sends again closes the next one too: such a message would keep all behind it from them.
    """
    return not (text.isprintable() or _DISALLOWED.isdisjoint(text))  # none of them is printable
