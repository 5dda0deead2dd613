"""New inputs from known ones: bits and bytes changed, parts moved, lengths turned, words put in."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

BYTES_MAX = 4_096
"""Usual inputs grow to this size; the bounds of large ones are measured apart."""
EDGES = (0x00, 0x01, 0x20, 0x22, 0x2F, 0x7F, 0x80, 0xC0, 0xED, 0xFE, 0xFF)
NUMBERS = (b"0", b"-1", b"1e999", b"9" * 25, b"0.1e-400", b"00", b"65536", b"4294967296", b"18446744073709551616")
TEXTS = ("\u00e4", "\u20ac", "\U0001f600", "\ufeff", "\u2028", "\u0130", "e\u0301", "\u202e", "\0", "\r\n", "\x85")
FOREIGN = (*NUMBERS, *(text.encode() for text in TEXTS), b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80")


class Mutation:
    """Makes inputs, all by one source of chance."""

    def __init__(self, chance: Random, words: Sequence[bytes]) -> None:
        self._chance = chance
        self._words = (*words, *FOREIGN)

    def changed(self, data: bytes, other: bytes) -> bytes:
        """*data* with one to eight changes; parts may come from *other*."""
        found, chance = bytearray(data), self._chance
        for _ in range(min(chance.randrange(1, 5) * chance.randrange(1, 3), 8)):
            self._change(found, other)
        return bytes(found[:BYTES_MAX])

    def _change(self, found: bytearray, other: bytes) -> None:
        chance = self._chance
        size = len(found)
        at = chance.randrange(size + 1)
        some = 1 + int(chance.random() ** 3 * 60)
        match chance.randrange(12 if at < size else 4):
            case 0:
                word = chance.choice(self._words)
                found[at : at + chance.choice((0, 0, len(word)))] = word
            case 1:
                found[at:at] = chance.randbytes(1 + some // 8)
            case 2:
                start = chance.randrange(len(other) + 1)
                found[at : at + chance.choice((0, some))] = other[start : start + some]
            case 3:
                found[at:at] = found[max(0, at - some) : at] * chance.choice((1, 1, 2, 20))
            case 4:
                found[at] ^= 1 << chance.randrange(8)
            case 5:
                found[at] = chance.choice(EDGES)
            case 6:
                found[at] = (found[at] + chance.choice((-2, -1, 1, 2, 16))) & 0xFF
            case 7:
                del found[at : at + some]
            case 8:  # a piece of it somewhere else
                piece = found[at : at + some]
                to = chance.randrange(size + 1)
                found[to:to] = piece
            case 9:  # what may be a length: all that is left, and a little more or less
                left = max(0, size - at - 2 + chance.choice((-1, 0, 0, 1)))
                found[at : at + 2] = (left & 0xFFFF).to_bytes(2, chance.choice(("big", "little")))
            case 10:
                found[at] = chance.randrange(256)
            case _:
                del found[at:]
