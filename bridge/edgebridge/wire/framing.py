"""Where packets begin and end in a stream of bytes (MQTT 5.0 section 2.1, MQTT 3.1.1 section 2.2)."""

from __future__ import annotations

from edgebridge.wire.errors import MalformedPacket, PacketTooLarge


def frame_bounds(buffer: bytes | bytearray | memoryview, at: int, bytes_max: int) -> tuple[int, int, int] | None:
    """The packet that begins at *at*: its first byte, and where its body begins and ends. None: wait for more.

    *bytes_max* bounds the whole packet, first byte included, as Maximum Packet Size does. Raises PacketTooLarge as
    soon as the length is known, before the body has arrived, and MalformedPacket for a length of five bytes.
    """
    have = len(buffer)
    length = shift = 0
    body = at + 1
    while body < have:
        octet = buffer[body]
        body += 1
        length |= (octet & 0x7F) << shift
        if octet < 0x80:
            end = body + length
            if end - at > bytes_max:
                raise PacketTooLarge(
                    f"a packet of {end - at} bytes, the limit is {bytes_max}", v311="section 2.2.3", v5="MQTT-3.2.2-15"
                )
            return (buffer[at], body, end) if end <= have else None
        shift += 7
        if shift == 28:
            raise MalformedPacket("a remaining length of five bytes", v311="section 2.2.3", v5="section 2.1.4")
    return None


class Framer:
    """Cuts a stream into packets. If all are taken each time, it holds one unfinished packet and the last chunk."""

    __slots__ = ("_at", "_buffer", "_bytes_max")

    def __init__(self, packet_bytes_max: int) -> None:
        self._bytes_max = packet_bytes_max
        self._buffer = bytearray()
        self._at = 0

    @property
    def unread(self) -> int:
        """Bytes that were fed, and are in no packet that was taken."""
        return len(self._buffer) - self._at

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the stream, however they were cut."""
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += chunk

    def next_frame(self) -> tuple[int, bytes] | None:
        """The next packet's first byte and body; None if the stream ends inside a packet: feed more.

        Raises MalformedPacket or PacketTooLarge; the stream cannot be used any further then.
        """
        bounds = frame_bounds(self._buffer, self._at, self._bytes_max)
        if bounds is None:
            return None
        header, body, end = bounds
        self._at = end
        return header, bytes(self._buffer[body:end])
