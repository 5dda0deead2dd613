"""Cuts what a remote says into packets; of one that is larger than may be, it keeps no more than the beginning.

    sieve.feed(chunk)
    while (frame := sieve.next_frame()) is not None: first, body = frame

The remote would send such a message again after every reconnection, for as long as nobody acknowledges it. Its
beginning has its packet identifier.
"""

from __future__ import annotations

from typing import Final

from edgebridge.wire.errors import PacketTooLarge
from edgebridge.wire.framing import Framer

CUT: Final = 0x100
"""Added to the first byte of a packet whose body is only the beginning of what came."""
BEGINNING: Final = 2 + 65_535 + 2
"""Bytes of the body that are kept: the topic of a PUBLISH, as long as it may be, and its packet identifier."""


class Sieve(Framer):
    """A framer that goes on behind a packet that is too large. It holds one packet of the size that is allowed."""

    __slots__ = ("_beginning", "_first", "_missing")

    def __init__(self, packet_bytes_max: int) -> None:
        super().__init__(packet_bytes_max)
        self._first = 0  # of the packet that is too large; 0: there is none
        self._missing = 0  # bytes of it that are still to come
        self._beginning = bytearray()

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the stream, however they were cut."""
        super().feed(self._skip(chunk) if self._missing else chunk)

    def next_frame(self) -> tuple[int, bytes] | None:
        """The next packet's first byte and body, or of one that is too large the first byte + CUT and what is kept.

        None: feed more. Raises MalformedPacket; the stream cannot be used any further then.
        """
        if not self._first:
            try:
                return super().next_frame()
            except PacketTooLarge:
                self._begin()
        if self._missing:
            return None
        first, self._first = self._first, 0
        return first | CUT, bytes(self._beginning)

    def _begin(self) -> None:
        """The packet at the beginning of the buffer is too large; its length is known."""
        self._first, at, length, shift = self._buffer[self._at], self._at + 1, 0, 0
        while True:
            octet = self._buffer[at]
            at += 1
            length |= (octet & 0x7F) << shift
            shift += 7
            if octet < 0x80:
                break
        self._missing = length
        self._beginning.clear()
        came = bytes(self._buffer[at:])
        self._buffer.clear()
        self._at = 0
        super().feed(self._skip(came))

    def _skip(self, chunk: bytes) -> bytes:
        """What of *chunk* stands behind the packet that is too large."""
        mine = min(self._missing, len(chunk))
        self._beginning += chunk[: min(mine, BEGINNING - len(self._beginning))]
        self._missing -= mine
        return chunk[mine:]
