"""The client's side of MQTT over WebSocket (MQTT 5.0 section 6), on asyncio's streams."""

from __future__ import annotations

import asyncio

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    RejectData,
    Request,
)
from wsproto.utilities import ProtocolError

from edgebroker.errors import BrokerNoAnswer

CHUNK_BYTES = 64 * 1024


class WebSocketStream:
    """Bytes in binary messages, in both directions. Made by `open_websocket`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, protocol: WSConnection) -> None:
        self._reader = reader
        self._writer = writer
        self._protocol = protocol

    async def read(self, n: int = -1, /) -> bytes:
        """Returns the next bytes; none after a close frame or the end of the connection."""
        received = b""
        while not received:
            chunk = await self._reader.read(n)
            if not chunk:
                return b""
            for event in _events(self._protocol, chunk):
                if isinstance(event, BytesMessage):
                    received += bytes(event.data)
                elif isinstance(event, Ping):
                    self._writer.write(self._protocol.send(event.response()))
                elif isinstance(event, CloseConnection):
                    return received
        return received

    def write(self, data: bytes, /) -> None:
        """Sends *data* as one message."""
        self._writer.write(self._protocol.send(BytesMessage(data)))

    async def drain(self) -> None:
        await self._writer.drain()

    def close(self) -> None:
        """Sends a close frame, and closes."""
        if self._protocol.state is ConnectionState.OPEN:
            self._writer.write(self._protocol.send(CloseConnection(1000)))
        self._writer.close()

    async def wait_closed(self) -> None:
        await self._writer.wait_closed()


async def open_websocket(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, path: str, is_secure: bool = False
) -> WebSocketStream:
    """Opens a WebSocket at *path* over a connection to *host*. Raises BrokerNoAnswer."""
    protocol = WSConnection(ConnectionType.CLIENT)
    writer.write(protocol.send(Request(host=host, target=path, subprotocols=["mqtt"])))
    status, body = 0, b""
    while chunk := await reader.read(CHUNK_BYTES):
        for event in _events(protocol, chunk):
            if isinstance(event, AcceptConnection):
                return WebSocketStream(reader, writer, protocol)
            if isinstance(event, RejectConnection):
                status = event.status_code
            if isinstance(event, RejectData):
                body += bytes(event.data)
    writer.close()
    answer = f"HTTP {status}: {body[:200].decode(errors='replace').strip()}" if status else "it does not answer"
    raise BrokerNoAnswer(
        f"no WebSocket at {'https' if is_secure else 'http'}://{host}{path}: {answer.removesuffix(': ')}"
    )


def _events(protocol: WSConnection, chunk: bytes) -> list[Event]:
    try:
        protocol.receive_data(chunk)
        return list(protocol.events())
    except ProtocolError as error:
        raise BrokerNoAnswer(f"that is no WebSocket: {error}") from None
