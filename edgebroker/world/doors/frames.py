"""WebSocket frames (RFC 6455 section 5), sans-IO: bytes in, the bytes inside out. For a server that speaks MQTT.

    frames = Frames()
    said = frames.take(chunk)         # raises FrameError(code, reason)
    socket.write(frames.answers())    # pongs, and the answer to a close
    socket.write(framed(packet))

An MQTT packet may be spread over frames and messages, and share them (MQTT 5.0 section 6), so nothing is collected:
what has arrived of a frame goes up at once. wsproto, which the tests hold this against, takes 5 us for an empty frame,
and 64 KiB may hold 10,922 of them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

FRAME_BYTES_MAX: Final = 268_435_460
"""The longest MQTT packet: 256 MiB less one, and a header of 5 bytes (MQTT 5.0 section 2.1.4). Nobody needs more."""
CONTROL_BYTES_MAX: Final = 125  # RFC 6455 section 5.5


class Code(IntEnum):
    """Why a WebSocket is closed (RFC 6455 section 7.4.1)."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    NO_STATUS = 1005
    """Never sent; what a close without a code counts as."""
    TOO_BIG = 1009


CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
FINAL, RESERVED, OPCODE, MASKED = 0x80, 0x70, 0x0F, 0x80


class FrameError(Exception):
    """The peer broke the protocol, or sent what MQTT does not allow: (code, reason)."""

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class Frames:
    """What a client sends, taken apart. `closed` is the client's close code, once it said good-bye."""

    __slots__ = ("_good_bye", "_left", "_mask", "_pinged", "_rest", "_within", "closed")

    def __init__(self) -> None:
        self.closed: int | None = None
        self._rest = b""  # the beginning of a frame: less than a header, or a control frame that is not complete
        self._left = 0  # bytes to come of the frame's payload
        self._mask = b""  # from the byte on that is next
        self._within = False  # the next frame continues a message
        self._pinged = b""  # mask and payload of the latest ping, if it was not answered: it will do (section 5.5.3)
        self._good_bye = b""  # the answer to a close, if it was not sent

    def take(self, chunk: bytes) -> bytes:
        """What *chunk* has inside its frames. Raises FrameError."""
        if self._rest:
            chunk = self._rest + chunk
            self._rest = b""
        masked: list[bytes] = []
        keys: list[bytes] = []  # as long; all is unmasked at once, for 64 KiB may hold 9,362 frames of one byte
        at, end = 0, len(chunk)
        while at < end and self.closed is None:
            if not self._left:
                if end - at < 2:
                    break
                first, length, body = chunk[at], chunk[at + 1], at + 2
                if first & RESERVED:
                    raise FrameError(Code.PROTOCOL_ERROR, "reserved bits are set, and no extension was agreed")
                if not length & MASKED:
                    raise FrameError(Code.PROTOCOL_ERROR, "a frame from a client is not masked")
                length &= 0x7F
                if first & 0x08:
                    stop = self._control(chunk, first, length, body, end)
                    if not stop:
                        break
                    at = stop
                    continue
                if length >= 126:
                    octets = 2 if length == 126 else 8
                    if body + octets > end:
                        break
                    length = int.from_bytes(chunk[body : body + octets])
                    body += octets
                    if length < (126 if octets == 2 else 65_536):
                        raise FrameError(Code.PROTOCOL_ERROR, "a length is not as short as it could be")
                    if length > FRAME_BYTES_MAX:
                        raise FrameError(Code.TOO_BIG, f"a frame of {length} bytes")
                opcode = first & OPCODE
                if opcode != (CONTINUATION if self._within else BINARY):
                    self._unexpected(opcode)
                if body + 4 > end:
                    break
                self._mask = chunk[body : body + 4]
                self._left = length
                self._within = not first & FINAL
                at = body + 4
                if not length:
                    continue
            stop = min(at + self._left, end)
            size = stop - at
            masked.append(chunk[at:stop])
            keys.append((self._mask * (size // 4 + 1))[:size])
            self._left -= size
            if self._left:
                turn = size & 3
                self._mask = self._mask[turn:] + self._mask[:turn]
            at = stop
        if at < end and self.closed is None:
            self._rest = chunk[at:]
        return _unmasked(b"".join(masked), b"".join(keys))

    def answers(self) -> bytes:
        """What is to be sent for what was taken, once."""
        said, self._good_bye = self._good_bye, b""
        if self._pinged:
            payload = _inside_control(self._pinged)
            said = bytes((FINAL | PONG, len(payload))) + payload + said
            self._pinged = b""
        return said

    def _control(self, chunk: bytes, first: int, length: int, body: int, end: int) -> int:
        """Take a control frame; where it ends, 0 if it is not complete."""
        if length > CONTROL_BYTES_MAX or not first & FINAL:
            raise FrameError(Code.PROTOCOL_ERROR, "a control frame is long, or in parts")
        stop = body + 4 + length
        opcode = first & OPCODE
        if opcode not in (CLOSE, PING, PONG):
            raise FrameError(Code.PROTOCOL_ERROR, f"opcode {opcode} means nothing")
        if stop > end:
            return 0
        if opcode == PING:
            self._pinged = chunk[body:stop]
        elif opcode == CLOSE:
            self._closed_by(_inside_control(chunk[body:stop]))
        return stop

    def _closed_by(self, payload: bytes) -> None:
        if len(payload) == 1:
            raise FrameError(Code.PROTOCOL_ERROR, "half a close code")
        self.closed = int.from_bytes(payload[:2]) if payload else Code.NO_STATUS
        self._good_bye = close_frame(Code.NORMAL)

    def _unexpected(self, opcode: int) -> None:
        if opcode == TEXT and not self._within:
            raise FrameError(Code.UNSUPPORTED_DATA, "a text frame; MQTT takes binary ones alone [MQTT-6.0.0-1]")
        if opcode in (CONTINUATION, TEXT, BINARY):
            raise FrameError(Code.PROTOCOL_ERROR, "a message begins within another, or goes on where none began")
        raise FrameError(Code.PROTOCOL_ERROR, f"opcode {opcode} means nothing")


def _inside_control(frame: bytes) -> bytes:
    """The payload of a control frame, of which mask and payload are given."""
    size = len(frame) - 4
    return _unmasked(frame[4:], (frame[:4] * (size // 4 + 1))[:size])


def _unmasked(masked: bytes, key: bytes) -> bytes:
    """As two large numbers: 64 KiB in 0.12 ms, and no loop over bytes."""
    return (int.from_bytes(masked) ^ int.from_bytes(key)).to_bytes(len(masked))


def framed(data: bytes) -> bytes:
    """*data* as one binary message from a server."""
    size = len(data)
    if size < 126:
        return b"\x82%c%b" % (size, data)
    if size < 65_536:
        return b"\x82\x7e%b%b" % (size.to_bytes(2), data)
    return b"\x82\x7f%b%b" % (size.to_bytes(8), data)


def close_frame(code: Code, reason: str = "") -> bytes:
    """A close from a server; *reason* is cut to what a control frame holds."""
    words = reason.encode()[: CONTROL_BYTES_MAX - 2].decode("utf-8", "ignore").encode()
    return bytes((FINAL | CLOSE, 2 + len(words))) + code.to_bytes(2) + words
