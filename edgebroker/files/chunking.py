"""Content-defined chunks: a file is cut where its own bytes say so, so that two versions of it share most chunks.

The cut is made by a Gear hash (Xia et al., "Ddelta", 2014): for each byte, `hash = (hash << 1) + GEAR[byte]` modulo
2**64, so that the hash depends on the last 64 bytes. A chunk ends behind the first byte, from the BYTES_MIN-th on, at
which the hash is below a threshold. A byte that is inserted changes the chunk that it is in, and rarely the next one.
Only publishers cut files: a receiver needs the lengths in the manifest alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from edgebroker.digests import sha256
from edgebroker.limits import CHUNK_BYTES_MAX, CHUNK_BYTES_MIN

WINDOW: Final = 64
"""Bytes that the hash depends on: each is shifted out of 64 bits after as many others."""
SPREAD: Final = 48 * 1024
"""Mean bytes between the least length and the cut. Chunks of random bytes have 64 KiB, and few the greatest length."""
THRESHOLD: Final = ((1 << 64) - 1) // SPREAD
"""The upper bits of the hash decide, which the most bytes take part in."""
MASK: Final = (1 << 64) - 1

GEAR: Final = tuple(int.from_bytes(sha256(bytes((byte,))).digest()[:8]) for byte in range(256))
"""For each byte the first eight bytes of its SHA-256: numbers that anybody can make again without a table."""


def end_of_chunk_plainly(data: bytes, at: int, gear: tuple[int, ...]) -> int:
    """Where the chunk ends that begins at *at* in *data*. *gear*: the 256 numbers of the hash, the same in each call.

    *data* has at least CHUNK_BYTES_MAX bytes from *at* on, or is the rest of its file. Raises IndexError: *at* is not
    in it.
    """
    if not 0 <= at < len(data):
        raise IndexError("a chunk begins inside the data")
    stop = min(len(data), at + CHUNK_BYTES_MAX)
    least = at + CHUNK_BYTES_MIN
    if least >= stop:
        return stop
    hashed = 0
    for byte in data[least - WINDOW : least - 1]:
        hashed = (hashed << 1) + gear[byte] & MASK
    for here, byte in enumerate(data[least - 1 : stop], least):
        hashed = (hashed << 1) + gear[byte] & MASK
        if hashed < THRESHOLD:
            return here
    return stop


if TYPE_CHECKING:
    end_of_chunk = end_of_chunk_plainly
else:
    try:
        from edgebroker.files.gear.boundaries import end_of_chunk  # compiled: 1 ns a byte instead of 100
    except ImportError:
        end_of_chunk = end_of_chunk_plainly


def chunks_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks of a file that is read in *pieces* of any length, in their order. Nothing for an empty file.

    At most CHUNK_BYTES_MAX bytes and one piece are in memory.
    """
    rest = b""
    for piece in pieces:
        rest += piece
        at = 0
        while len(rest) - at >= CHUNK_BYTES_MAX:
            end = end_of_chunk(rest, at, GEAR)
            yield rest[at:end]
            at = end
        rest = rest[at:]
    at = 0
    while at < len(rest):
        end = end_of_chunk(rest, at, GEAR)
        yield rest[at:end]
        at = end
