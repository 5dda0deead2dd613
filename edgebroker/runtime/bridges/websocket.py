"""The client's side of MQTT over WebSocket (RFC 6455, MQTT 5.0 section 6); loads wsproto."""

from __future__ import annotations

from typing import Final

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Message,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

SUBPROTOCOL: Final = "mqtt"


class TunnelError(Exception):
    """The WebSocket could not be opened or has ended; the text says why."""


class WebSocketTunnel:
    """Encodes MQTT bytes into WebSocket frames and decodes received frames, without a socket."""

    def __init__(self, host: str, path: str) -> None:
        """*host*: value of the Host header, with the port if it is not the default one."""
        self._socket = WSConnection(ConnectionType.CLIENT)
        self._request = Request(host=host, target=path, subprotocols=[SUBPROTOCOL])
        self.is_open = False
        """Whether the server accepted the handshake."""
        self.failure: TunnelError | None = None
        """Why the WebSocket has ended; None while it has not."""

    def opening_request(self) -> bytes:
        """Returns the HTTP request that opens the WebSocket."""
        return self._socket.send(self._request)

    def encode(self, data: bytes) -> bytes:
        """Returns *data* as a binary frame [MQTT-6.0.0-1]."""
        return self._socket.send(Message(data=data))

    def closing_frame(self) -> bytes:
        """Returns the close frame, or nothing if the server closed first."""
        try:
            return self._socket.send(CloseConnection(code=1000))
        except LocalProtocolError:  # the server closed first
            return b""

    def feed(self, chunk: bytes) -> tuple[list[bytes], bytes]:
        """Returns (bytes of MQTT, bytes to reply with). Bytes before a `failure` are included."""
        received: list[bytes] = []
        replies = b""
        try:
            self._socket.receive_data(chunk)
            for event in self._socket.events():
                match event:
                    case BytesMessage(data=data):
                        received.append(bytes(data))
                    case Ping():
                        replies += self._socket.send(event.response())
                    case AcceptConnection(subprotocol=chosen) if chosen == SUBPROTOCOL:
                        self.is_open = True
                    case _ if cause := _failure(event):
                        self.failure = TunnelError(cause)
                        break
        except (LocalProtocolError, RemoteProtocolError) as error:
            self.failure = TunnelError(f"no WebSocket there: {error}")
        return received, replies


def _failure(event: Event) -> str:
    """Returns why *event* ends the WebSocket; empty: it does not."""
    match event:
        case AcceptConnection(subprotocol=chosen):
            return f"the WebSocket speaks {chosen or 'nothing in particular'}, not mqtt"
        case RejectConnection(status_code=status):
            return f"no WebSocket there: HTTP status {status}"
        case TextMessage():
            return "the WebSocket carries text"  # [MQTT-6.0.0-1]
        case CloseConnection(code=code, reason=reason):
            return f"the WebSocket was closed: {reason or code}"
    return ""
