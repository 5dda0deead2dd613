"""MQTT over WebSocket on the server's side (MQTT 5.0 section 6, RFC 6455), with a sans-I/O decoder of frames.

    decoder = WebSocketDecoder()
    payload = decoder.feed(chunk)          # raises WebSocketFrameError(code, reason)
    socket.write(decoder.take_replies())   # pongs, and the answer to a close
    socket.write(encode_message(packet))

An MQTT packet may be spread over frames and messages, and share them (MQTT 5.0 section 6), so nothing is collected:
what has arrived of a frame goes up at once. wsproto, which the tests compare this with, takes 5 us for an empty
frame, and 64 KiB may hold 10,922 of them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final
from urllib.parse import urlsplit

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, RejectConnection, RejectData, Request
from wsproto.utilities import RemoteProtocolError

from edgebroker.runtime.listeners.layer import ConnectionRefusalCause, ConnectionRefusals, Layer
from edgebroker.runtime.listeners.local_names import names_this_machine
from edgebroker.runtime.loop.reactor import WRITE_BUFFER_BYTES, ClientProtocol
from edgebroker.runtime.settings.sections import ListenerSettings

FRAME_BYTES_MAX: Final = 268_435_460
"""The longest MQTT packet: 256 MiB less one, and a header of 5 bytes (MQTT 5.0 section 2.1.4). Nobody needs more."""
CONTROL_BYTES_MAX: Final = 125  # RFC 6455 section 5.5


class CloseCode(IntEnum):
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


class WebSocketFrameError(Exception):
    """The peer broke the protocol, or sent what MQTT does not allow: (code, reason)."""

    def __init__(self, code: CloseCode, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class WebSocketDecoder:
    """What a client sends, taken apart. `closed` is the client's close code, once it said good-bye."""

    __slots__ = ("_good_bye", "_left", "_mask", "_pinged", "_rest", "_within", "close_code")

    def __init__(self) -> None:
        self.close_code: int | None = None
        self._rest = b""  # the beginning of a frame: less than a header, or a control frame that is not complete
        self._left = 0  # bytes to come of the frame's payload
        self._mask = b""  # from the byte on that is next
        self._within = False  # the next frame continues a message
        self._pinged = b""  # mask and payload of the latest ping, if it was not answered: it will do (section 5.5.3)
        self._good_bye = b""  # the answer to a close, if it was not sent

    def feed(self, chunk: bytes) -> bytes:
        """What *chunk* has inside its frames. Raises FrameError."""
        if self._rest:
            chunk = self._rest + chunk
            self._rest = b""
        masked: list[bytes] = []
        keys: list[bytes] = []  # as long; all is unmasked at once, for 64 KiB may hold 9,362 frames of one byte
        at, end = 0, len(chunk)
        while at < end and self.close_code is None:
            if not self._left:
                if end - at < 2:
                    break
                first, length, body = chunk[at], chunk[at + 1], at + 2
                if first & RESERVED:
                    raise WebSocketFrameError(
                        CloseCode.PROTOCOL_ERROR, "reserved bits are set, and no extension was agreed"
                    )
                if not length & MASKED:
                    raise WebSocketFrameError(CloseCode.PROTOCOL_ERROR, "a frame from a client is not masked")
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
                        raise WebSocketFrameError(CloseCode.PROTOCOL_ERROR, "a length is not as short as it could be")
                    if length > FRAME_BYTES_MAX:
                        raise WebSocketFrameError(CloseCode.TOO_BIG, f"a frame of {length} bytes")
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
        if at < end and self.close_code is None:
            self._rest = chunk[at:]
        return _unmasked(b"".join(masked), b"".join(keys))

    def take_replies(self) -> bytes:
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
            raise WebSocketFrameError(CloseCode.PROTOCOL_ERROR, "a control frame is long, or in parts")
        stop = body + 4 + length
        opcode = first & OPCODE
        if opcode not in (CLOSE, PING, PONG):
            raise WebSocketFrameError(CloseCode.PROTOCOL_ERROR, f"opcode {opcode} means nothing")
        if stop > end:
            return 0
        if opcode == PING:
            self._pinged = chunk[body:stop]
        elif opcode == CLOSE:
            self._closed_by(_inside_control(chunk[body:stop]))
        return stop

    def _closed_by(self, payload: bytes) -> None:
        if len(payload) == 1:
            raise WebSocketFrameError(CloseCode.PROTOCOL_ERROR, "half a close code")
        self.close_code = int.from_bytes(payload[:2]) if payload else CloseCode.NO_STATUS
        self._good_bye = close_frame(CloseCode.NORMAL)

    def _unexpected(self, opcode: int) -> None:
        if opcode == TEXT and not self._within:
            raise WebSocketFrameError(
                CloseCode.UNSUPPORTED_DATA, "a text frame; MQTT takes binary ones alone [MQTT-6.0.0-1]"
            )
        if opcode in (CONTINUATION, TEXT, BINARY):
            raise WebSocketFrameError(
                CloseCode.PROTOCOL_ERROR, "a message begins within another, or goes on where none began"
            )
        raise WebSocketFrameError(CloseCode.PROTOCOL_ERROR, f"opcode {opcode} means nothing")


def _inside_control(frame: bytes) -> bytes:
    """The payload of a control frame, of which mask and payload are given."""
    size = len(frame) - 4
    return _unmasked(frame[4:], (frame[:4] * (size // 4 + 1))[:size])


def _unmasked(masked: bytes, key: bytes) -> bytes:
    """As two large numbers: 64 KiB in 0.12 ms, and no loop over bytes."""
    return (int.from_bytes(masked) ^ int.from_bytes(key)).to_bytes(len(masked))


def encode_message(data: bytes) -> bytes:
    """*data* as one binary message from a server."""
    size = len(data)
    if size < 126:
        return b"\x82%c%b" % (size, data)
    if size < 65_536:
        return b"\x82\x7e%b%b" % (size.to_bytes(2), data)
    return b"\x82\x7f%b%b" % (size.to_bytes(8), data)


def close_frame(code: CloseCode, reason: str = "") -> bytes:
    """A close from a server; *reason* is cut to what a control frame holds."""
    words = reason.encode()[: CONTROL_BYTES_MAX - 2].decode("utf-8", "ignore").encode()
    return bytes((FINAL | CLOSE, 2 + len(words))) + code.to_bytes(2) + words


HEAD_BYTES_MAX = 8 * 1024
"""The request, with all that browsers and their cookies add to it; other servers allow 8 KiB too."""
ANY = "*"
HEAD_END = b"\r\n\r\n"
PROTOCOLS = ("mqtt", "mqttv3.1")
"""Sub-protocols, the one we prefer first; the second is what clients of MQTT 3.1 and 3.1.1 called it."""


class WebSocketLayer(Layer):
    """The server's side. The request has as much time as a CONNECT: until then the door waits, and gives up."""

    __slots__ = ("_frames", "_head", "_is_local", "_is_open", "_is_over", "_refusals", "_settings")

    def __init__(
        self,
        above: ClientProtocol | Layer,
        settings: ListenerSettings,
        refusals: ConnectionRefusals,
        is_local: bool = False,
    ) -> None:
        """*is_local*: only this machine can reach the listener."""
        super().__init__(above)
        self._is_local = is_local
        self._settings = settings
        self._refusals = refusals
        self._head = b""
        self._frames = WebSocketDecoder()
        self._is_open = False
        self._is_over = False

    def data_received(self, data: bytes) -> None:
        """Bytes of HTTP, then of frames, arrived."""
        if self._is_over:
            return
        if not self._is_open:
            self._upgrade(data)
            return
        frames = self._frames
        try:
            said = frames.feed(data)
        except WebSocketFrameError as error:
            self._give_up(ConnectionRefusalCause.FRAME, error.reason, close_frame(error.code, error.reason))
            return
        if said:
            self.above.data_received(said)
        self._answer()
        if frames.close_code is not None:
            self._is_over = True
            self.below.close()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._answer()
        super().resume_writing()

    def write(self, data: bytes) -> None:
        """Send *data* as one message: the packets of one flush share a frame."""
        if self._is_open and not self._is_over:
            self.below.write(encode_message(data))

    def close(self) -> None:
        """Say good-bye, and close."""
        if self._is_open and not self._is_over:
            self.below.write(close_frame(CloseCode.NORMAL))
        self._is_over = True
        self.below.close()

    def _answer(self) -> None:
        """Send the pong that is due. Who pings and never reads gets the latest alone, when there is room again."""
        has_room = not self._is_over and self.below.get_write_buffer_size() <= WRITE_BUFFER_BYTES
        if has_room and (answers := self._frames.take_replies()):
            self.below.write(answers)

    # -- the upgrade --------------------------------------------------------------------------------------------

    def _upgrade(self, data: bytes) -> None:
        self._head += data
        if not self._head[:1].isalpha():  # of HTTP it is the method; the first byte of a CONNECT is 0x10
            why = f"the first byte is 0x{self._head[0]:02x}; this listener speaks WebSocket alone"
            self._give_up(ConnectionRefusalCause.UPGRADE, why, b"")
            return
        end = self._head.find(HEAD_END, 0, HEAD_BYTES_MAX)
        if end < 0:
            if len(self._head) >= HEAD_BYTES_MAX:
                self._give_up(
                    ConnectionRefusalCause.UPGRADE, f"a request of more than {HEAD_BYTES_MAX} bytes", _TOO_LARGE
                )
            return
        request, early = self._head[: end + len(HEAD_END)], self._head[end + len(HEAD_END) :]
        self._head = b""
        protocol = WSConnection(ConnectionType.SERVER)
        try:
            protocol.receive_data(request)
            asked = next(iter(protocol.events()), None)
        except RemoteProtocolError as error:
            rejection = error.event_hint if isinstance(error.event_hint, RejectConnection) else None
            answer = protocol.send(rejection) if rejection is not None else _BAD_REQUEST
            self._give_up(ConnectionRefusalCause.UPGRADE, str(error), answer)
            return
        except UnicodeError:  # wsproto decodes what h11 lets through: a Host that is no IDNA, other headers not ASCII
            self._give_up(ConnectionRefusalCause.UPGRADE, "a header with other characters than ASCII", _BAD_REQUEST)
            return
        if not isinstance(asked, Request):
            self._give_up(ConnectionRefusalCause.UPGRADE, "no WebSocket request", _BAD_REQUEST)
            return
        if refusal := self._refusal(asked, early):
            cause, status, why = refusal
            headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
            answer = protocol.send(RejectConnection(status_code=status, headers=headers, has_body=True))
            self._give_up(cause, why, answer + protocol.send(RejectData(data=f"{why}\n".encode())))
            return
        chosen = next(name for name in PROTOCOLS if name in asked.subprotocols)
        self._is_open = True
        self.below.write(protocol.send(AcceptConnection(subprotocol=chosen)))

    def _refusal(self, asked: Request, early: bytes) -> tuple[ConnectionRefusalCause, int, str] | None:
        """(cause, HTTP status, why) if there is to be no WebSocket."""
        settings = self._settings
        if settings.websocket_path not in (ANY, asked.target.partition("?")[0]):
            return ConnectionRefusalCause.UPGRADE, 404, f"MQTT is at {settings.websocket_path}"
        if not any(name in asked.subprotocols for name in PROTOCOLS):
            return ConnectionRefusalCause.UPGRADE, 400, 'ask for the sub-protocol "mqtt" [MQTT-6.0.0-3]'
        if early:
            return ConnectionRefusalCause.UPGRADE, 400, "data before the answer"
        origin = next((value.decode("latin-1") for name, value in asked.extra_headers if name == b"origin"), "")
        if origin and not _is_welcome(origin, asked.host, settings.websocket_origins, self._is_local):
            return ConnectionRefusalCause.ORIGIN, 403, f"pages of {origin[:200]} may not connect; see websocket_origins"
        return None

    def _give_up(self, cause: ConnectionRefusalCause, why: str, last: bytes) -> None:
        connection = self.client_protocol.connection
        self._refusals.record(cause, connection.listener_context.name, connection.peer, why)
        self._is_over = True
        if last:
            self.below.write(last)
        self.below.close()


def _is_welcome(origin: str, host: str, origins: tuple[str, ...], is_local: bool) -> bool:
    """Whether a browser may connect that shows a page of *origin*.

    A page from elsewhere could use a gateway that only its visitor can reach. Without a list, the page must come from
    the same host, on whatever port, and where *is_local* that must be this machine; what is no browser names no origin.
    """
    if "*" in origins or origin in origins:
        return True
    if is_local and not names_this_machine(host):
        return False
    try:
        return urlsplit(origin).hostname == urlsplit(f"//{host}").hostname is not None
    except ValueError:
        return False


_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
