"""The base class of the layers between a socket and a client protocol, and the counts of clients they refused."""

from __future__ import annotations

import enum
from collections import Counter
from typing import Any

from edgebroker.runtime.loop.reactor import ClientProtocol
from edgebroker.runtime.loop.stream import Transport
from edgebroker.runtime.operator_log import Level, OperatorLog


class ConnectionRefusalCause(enum.Enum):
    """Why a client was turned away. The value is the code in the operator's log, and the label in metrics."""

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
    """`counts` has every one; the log tells a few of each cause a minute: a scan knocks a thousand times a second."""

    def __init__(self, log: OperatorLog) -> None:
        self.counts: Counter[ConnectionRefusalCause] = Counter()
        self._log = log

    def record(self, cause: ConnectionRefusalCause, listener: str, peer: str, why: str) -> None:
        """A client at *peer* was turned away by *listener*."""
        self.counts[cause] += 1
        self._log.log(Level.WARNING, cause.value, f"turned away: {why}", listener=listener, peer=peer)


class Layer:
    """A protocol to what is `below` (a socket, or another layer), a transport to what is `above`.

    As it stands, it passes everything on. Whoever closes from above is done at once; what is below sees to the rest.
    """

    __slots__ = ("above", "below", "client_protocol")

    def __init__(self, above: ClientProtocol | Layer) -> None:
        self.above = above
        self.client_protocol: ClientProtocol = above.client_protocol if isinstance(above, Layer) else above
        self.below: Any = None

    # -- a protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: Transport) -> None:
        """A client dialled."""
        self.below = transport
        self.above.connection_made(self)

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        self.above.data_received(data)

    def pause_writing(self) -> None:
        """The client does not read as fast as we write."""
        self.above.pause_writing()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self.above.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed, by whichever side."""
        self.above.connection_lost(exc)
        del self.above, self.client_protocol  # they hold us: else the collector would have to find all of us

    # -- a transport --------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send *data*."""
        self.below.write(data)

    def close(self) -> None:
        """Send what was given, then close."""
        self.below.close()

    def abort(self) -> None:
        """Close at once."""
        self.below.abort()

    def pause_reading(self) -> None:
        """Nothing more, until `resume_reading`; what has arrived here already may still go up."""
        self.below.pause_reading()

    def resume_reading(self) -> None:
        """Go on reading."""
        self.below.resume_reading()

    def is_closing(self) -> bool:
        return bool(self.below.is_closing())

    def get_write_buffer_size(self) -> int:
        return int(self.below.get_write_buffer_size())

    def set_write_buffer_limits(self, high: int) -> None:
        """Above *high* unsent bytes the door is told to pause."""
        self.below.set_write_buffer_limits(high=high)

    def get_extra_info(self, name: str) -> Any:
        """As of a transport: `peername`, `socket`."""
        return self.below.get_extra_info(name)
