"""MQTT inside a WebSocket on the client's side (RFC 6455, MQTT 5.0 section 6); loads wsproto."""

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
    """There is no WebSocket; the text says why."""


class WebSocketTunnel:
    """Bytes of MQTT in, frames out, and back."""

    def __init__(self, host: str, path: str) -> None:
        """*host* as HTTP names it, with its port if it is not the usual one."""
        self._socket = WSConnection(ConnectionType.CLIENT)
        self._request = Request(host=host, target=path, subprotocols=[SUBPROTOCOL])
        self.is_open = False
        """Whether the other end has agreed."""
        self.failure: TunnelError | None = None
        """Why there is nothing more to be said or heard."""

    def opening_request(self) -> bytes:
        """What to say first."""
        return self._socket.send(self._request)

    def encode(self, data: bytes) -> bytes:
        """*data* as a frame [MQTT-6.0.0-1]."""
        return self._socket.send(Message(data=data))

    def closing_frame(self) -> bytes:
        """What to say last."""
        try:
            return self._socket.send(CloseConnection(code=1000))
        except LocalProtocolError:  # the other end has said so before
            return b""

    def feed(self, chunk: bytes) -> tuple[list[bytes], bytes]:
        """(bytes of MQTT, what to answer); what came before a `failure` is there too."""
        taken: list[bytes] = []
        answers = b""
        try:
            self._socket.receive_data(chunk)
            for event in self._socket.events():
                match event:
                    case BytesMessage(data=data):
                        taken.append(bytes(data))
                    case Ping():
                        answers += self._socket.send(event.response())
                    case AcceptConnection(subprotocol=chosen) if chosen == SUBPROTOCOL:
                        self.is_open = True
                    case _ if why := _failure(event):
                        self.failure = TunnelError(why)
                        break
        except (LocalProtocolError, RemoteProtocolError) as error:
            self.failure = TunnelError(f"no WebSocket there: {error}")
        return taken, answers


def _failure(event: Event) -> str:
    """Why *event* is the end; empty: it is not."""
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
