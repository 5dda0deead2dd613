"""MQTT over WebSocket, between a socket (or TLS) and a door (MQTT 5.0 section 6, RFC 6455)."""

from __future__ import annotations

from urllib.parse import urlsplit

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, RejectConnection, RejectData, Request
from wsproto.utilities import RemoteProtocolError

from edgebroker.world.doors.frames import Code, FrameError, Frames, close_frame, framed
from edgebroker.world.doors.layer import Layer
from edgebroker.world.doors.refusals import Refusals, Turned
from edgebroker.world.doors.thismachine import names_this_machine
from edgebroker.world.reactor import WRITE_BUFFER_BYTES, Door
from edgebroker.world.settings.listener import ListenerSettings

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
        self, above: Door | Layer, settings: ListenerSettings, refusals: Refusals, is_local: bool = False
    ) -> None:
        """*is_local*: only this machine can reach the listener."""
        super().__init__(above)
        self._is_local = is_local
        self._settings = settings
        self._refusals = refusals
        self._head = b""
        self._frames = Frames()
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
            said = frames.take(data)
        except FrameError as error:
            self._give_up(Turned.FRAME, error.reason, close_frame(error.code, error.reason))
            return
        if said:
            self.above.data_received(said)
        self._answer()
        if frames.closed is not None:
            self._is_over = True
            self.below.close()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._answer()
        super().resume_writing()

    def write(self, data: bytes) -> None:
        """Send *data* as one message: the packets of one flush share a frame."""
        if self._is_open and not self._is_over:
            self.below.write(framed(data))

    def close(self) -> None:
        """Say good-bye, and close."""
        if self._is_open and not self._is_over:
            self.below.write(close_frame(Code.NORMAL))
        self._is_over = True
        self.below.close()

    def _answer(self) -> None:
        """Send the pong that is due. Who pings and never reads gets the latest alone, when there is room again."""
        has_room = not self._is_over and self.below.get_write_buffer_size() <= WRITE_BUFFER_BYTES
        if has_room and (answers := self._frames.answers()):
            self.below.write(answers)

    # -- the upgrade --------------------------------------------------------------------------------------------

    def _upgrade(self, data: bytes) -> None:
        self._head += data
        if not self._head[:1].isalpha():  # of HTTP it is the method; the first byte of a CONNECT is 0x10
            why = f"the first byte is 0x{self._head[0]:02x}; this listener speaks WebSocket alone"
            self._give_up(Turned.UPGRADE, why, b"")
            return
        end = self._head.find(HEAD_END, 0, HEAD_BYTES_MAX)
        if end < 0:
            if len(self._head) >= HEAD_BYTES_MAX:
                self._give_up(Turned.UPGRADE, f"a request of more than {HEAD_BYTES_MAX} bytes", _TOO_LARGE)
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
            self._give_up(Turned.UPGRADE, str(error), answer)
            return
        except UnicodeError:  # wsproto decodes what h11 lets through: a Host that is no IDNA, other headers not ASCII
            self._give_up(Turned.UPGRADE, "a header with other characters than ASCII", _BAD_REQUEST)
            return
        if not isinstance(asked, Request):
            self._give_up(Turned.UPGRADE, "no WebSocket request", _BAD_REQUEST)
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

    def _refusal(self, asked: Request, early: bytes) -> tuple[Turned, int, str] | None:
        """(cause, HTTP status, why) if there is to be no WebSocket."""
        settings = self._settings
        if settings.websocket_path not in (ANY, asked.target.partition("?")[0]):
            return Turned.UPGRADE, 404, f"MQTT is at {settings.websocket_path}"
        if not any(name in asked.subprotocols for name in PROTOCOLS):
            return Turned.UPGRADE, 400, 'ask for the sub-protocol "mqtt" [MQTT-6.0.0-3]'
        if early:
            return Turned.UPGRADE, 400, "data before the answer"
        origin = next((value.decode("latin-1") for name, value in asked.extra_headers if name == b"origin"), "")
        if origin and not _is_welcome(origin, asked.host, settings.websocket_origins, self._is_local):
            return Turned.ORIGIN, 403, f"pages of {origin[:200]} may not connect; see websocket_origins"
        return None

    def _give_up(self, cause: Turned, why: str, last: bytes) -> None:
        connection = self.door.connection
        self._refusals.note(cause, connection.entrance.name, connection.peer, why)
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
