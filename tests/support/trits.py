"""Trits from the letters in which the papers write them."""

from __future__ import annotations

from edgebroker.matching.outcomes import TritVector


def parse_trits(text: str) -> TritVector:
    """Parse one letter of `YMN` per link, link 0 first. Raises ValueError for any other letter."""
    yes = maybe = 0
    for link, letter in enumerate(text):
        if letter == "Y":
            yes |= 1 << link
        elif letter == "M":
            maybe |= 1 << link
        elif letter != "N":
            raise ValueError(f"a trit is Y, M or N: {letter!r}")
    return TritVector(yes, maybe)
