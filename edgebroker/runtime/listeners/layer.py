"""The base class of the layers between a socket and a client protocol, and the counts of clients they refused."""

from __future__ import annotations

import enum
from collections import Counter
from typing import Any

from edgebroker.runtime.loop.reactor import ClientProtocol
from edgebroker.runtime.loop.stream import Transport
from edgebroker.runtime.operator_log import Level, OperatorLog


class ConnectionRefusalCause(enum.Enum):
    """Why a connection was refused before its CONNECT. The value is the code in the operator's log and the label in
    metrics.
    """

    PLAIN = "no-tls"
    HANDSHAKE = "tls-handshake"
    NO_CERTIFICATE = "no-client-certificate"
    CERTIFICATE = "client-certificate"
    UPGRADE = "websocket-upgrade"
    FRAME = "websocket-frame"
    ORIGIN = "websocket-origin"
    PROXY_SOURCE = "proxy-source"
    PROXY_HEADER = "proxy-header"
    FULL = "listener-full"


class ConnectionRefusals:
    """Counts all refusals and logs a few of each cause a minute: a port scan causes a thousand a second."""

    def __init__(self, operator_log: OperatorLog) -> None:
        self.counts: Counter[ConnectionRefusalCause] = Counter()
        self._operator_log = operator_log

    def record(self, cause: ConnectionRefusalCause, listener: str, peer: str, why: str) -> None:
        """Records that *listener* refused a client at *peer*."""
        self.counts[cause] += 1
        self._operator_log.log(Level.WARNING, cause.value, f"turned away: {why}", listener=listener, peer=peer)


class Layer:
    """A protocol for the transport `below` (a socket, or another layer), and a transport for the protocol `above`.

    This base class passes everything on. A close from above ends the upper layer at once; the lower one sends the rest.
    """

    __slots__ = ("above", "below", "client_protocol")

    def __init__(self, above: ClientProtocol | Layer) -> None:
        self.above = above
        self.client_protocol: ClientProtocol = above.client_protocol if isinstance(above, Layer) else above
        self.below: Any = None

    # -- a protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: Transport) -> None:
        """Reports the connection to the upper layer."""
        self.below = transport
        self.above.connection_made(self)

    def data_received(self, data: bytes) -> None:
        """Passes *data* up."""
        self.above.data_received(data)

    def pause_writing(self) -> None:
        """Reports that the write buffer is full."""
        self.above.pause_writing()

    def resume_writing(self) -> None:
        """Reports that the write buffer has room again."""
        self.above.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Reports that the socket is closed."""
        self.above.connection_lost(exc)
        # they refer to us: the reference cycle would have to wait for the garbage collector
        del self.above, self.client_protocol

    # -- a transport --------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Sends *data*."""
        self.below.write(data)

    def close(self) -> None:
        """Closes after everything written is sent."""
        self.below.close()

    def abort(self) -> None:
        """Closes at once."""
        self.below.abort()

    def pause_reading(self) -> None:
        """Stops reading until `resume_reading`; data received before may still be passed up."""
        self.below.pause_reading()

    def resume_reading(self) -> None:
        """Resumes reading."""
        self.below.resume_reading()

    def is_closing(self) -> bool:
        return bool(self.below.is_closing())

    def get_write_buffer_size(self) -> int:
        return int(self.below.get_write_buffer_size())

    def set_write_buffer_limits(self, high: int) -> None:
        """Sets the number of unsent bytes above which `pause_writing` is called."""
        self.below.set_write_buffer_limits(high=high)

    def get_extra_info(self, name: str) -> Any:
        """As for an asyncio transport: `peername`, `socket`."""
        return self.below.get_extra_info(name)
