"""Hashes of the slices of a stream, so that each receiver checks every slice before it hands it on.

The content hash of a stream is the root of a Merkle tree over its slices, as in RFC 6962: a leaf is SHA-256 of a zero
byte and the slice, an inner node SHA-256 of a one byte and its two children; a node without a sibling moves up. Each
slice travels with the siblings on its way to the root, 17 of them in a stream of 8 GiB: 0.8 % of a slice of 64 KiB. A
hash of the whole alone would show a wrong slice at the end, and not who sent it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edgebroker.digests import sha256

HASH_BYTES: Final = 32
_LEAF: Final = b"\0"
_INNER: Final = b"\1"


def slice_hash(content: bytes) -> bytes:
    """Return the leaf of a slice."""
    found = sha256(_LEAF)
    found.update(content)
    return found.digest()


class SliceHashes:
    """The Merkle tree of a stream, at its source: 64 bytes for each slice."""

    __slots__ = ("_levels",)

    def __init__(self, leaves: Sequence[bytes]) -> None:
        """leaves: `slice_hash` of each slice, in order; at least one."""
        self._levels = [[*leaves]]
        while len(row := self._levels[-1]) > 1:
            above = [sha256(_INNER + row[at] + row[at + 1]).digest() for at in range(0, len(row) - 1, 2)]
            self._levels.append(above + row[len(row) & ~1 :])

    @property
    def root(self) -> bytes:
        """Return the content hash of the stream."""
        return self._levels[-1][0]

    def proof(self, number: int) -> bytes:
        """Return the siblings on the way from slice *number* to the root."""
        found = []
        for row in self._levels[:-1]:
            if (number ^ 1) < len(row):
                found.append(row[number ^ 1])
            number >>= 1
        return b"".join(found)


def is_proven(content: bytes, proof: bytes, number: int, count: int, root: bytes) -> bool:
    """Return whether *content* is slice *number* of the *count* slices that have this *root*."""
    found = slice_hash(content)
    at = 0
    while count > 1:
        if (number ^ 1) < count:
            sibling = proof[at : at + HASH_BYTES]
            at += HASH_BYTES
            found = sha256(_INNER + (sibling + found if number & 1 else found + sibling)).digest()
        number >>= 1
        count = (count + 1) >> 1
    return found == root and at == len(proof)
