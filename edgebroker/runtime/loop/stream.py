"""A connected socket as a transport for client protocols and layers; `write` sends at once.

It has those methods of asyncio's transports that they use, and takes a third of their time. A `SocketPoller` calls
`readable` and `writable`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final, Protocol

READ_BYTES: Final = 64 * 1024
"""The most that one read takes. With more one client would delay the others longer; less costs system calls."""
FULL_BYTES: Final = 64 * 1024
"""With more unsent bytes than this the protocol is paused, with a quarter of it resumed."""
HANDSHAKE_TURNS: Final = 3
"""So many times a new connection is served after the others: handshakes of TLS or WebSocket, and CONNECT."""


class Transport(Protocol):
    """The transport below a client protocol: a stream, or a layer on one. A part of `asyncio.Transport`."""

    def write(self, data: bytes) -> None:
        """Send *data*; buffer the part that the system does not take yet."""

    def close(self) -> None:
        """Stop reading; close when all buffered bytes are sent."""

    def abort(self) -> None:
        """Close at once, and discard unsent bytes."""

    def pause_reading(self) -> None:
        """Stop reading until `resume_reading`."""

    def resume_reading(self) -> None:
        """Read again after `pause_reading`."""

    def is_closing(self) -> bool:
        """Whether the transport is closed, or closes as soon as all bytes are sent."""

    def get_write_buffer_size(self) -> int:
        """The number of unsent bytes."""

    def set_write_buffer_limits(self, high: int) -> None:
        """Pause the protocol above *high* unsent bytes, and resume it at a quarter of that."""

    def get_extra_info(self, name: str) -> Any:
        """The address of the peer (`peername`), or the `socket`; None for any other name."""


class StreamProtocol(Protocol):
    """The protocol above a transport: of a client, or a layer below that. Equal to `asyncio.Protocol`."""

    def connection_made(self, transport: Transport) -> None:
        """A client has connected."""

    def data_received(self, data: bytes) -> None:
        """*data* has arrived, at least one byte."""

    def pause_writing(self) -> None:
        """More bytes are unsent than the limit: the client reads more slowly than the protocol writes."""

    def resume_writing(self) -> None:
        """The number of unsent bytes has fallen to a quarter of the limit."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, by either side."""


class SocketPoller(Protocol):
    """Reports that sockets can be read or written."""

    def watch(self, descriptor: int, stream: SocketStream, reading: bool, writing: bool) -> None:
        """From now on call `readable` if *reading*, and `writable` if *writing*, when the socket is ready for it."""

    def schedule_close(self, stream: SocketStream) -> None:
        """Call `finish_close` soon, but not now."""

    def listen(self, descriptor: int, accept: Callable[[], SocketStream | None] | None) -> None:
        """From now on call *accept*, which raises nothing, when a client connects to this listening socket, and open
        the stream that it returns, if any. None: stop listening.
        """


class SocketStream:
    """One connected socket, from `open` until `connection_lost` of its protocol."""

    __slots__ = (
        "_descriptor",
        "_full_bytes",
        "_is_closing",
        "_is_full",
        "_is_lost",
        "_is_reading",
        "_loop",
        "_peer",
        "_poller",
        "_protocol",
        "_receive",
        "_received",
        "_send",
        "_socket",
        "_unsent",
        "handshake_turns",
    )

    def __init__(
        self,
        connected: socket.socket,
        poller: SocketPoller,
        protocol: StreamProtocol,
        loop: asyncio.AbstractEventLoop,
        peer: Any = None,
    ) -> None:
        """*connected* is non-blocking. *peer* is the address of the other end, as the system reports it."""
        self._socket = connected
        self._receive = connected.recv
        self._send = connected.send
        self._descriptor = connected.fileno()
        self._poller = poller
        self._protocol: Any = protocol  # None after `connection_lost`, like the next
        self._received: Any = protocol.data_received
        self._loop = loop
        self._peer = peer
        self._unsent = bytearray()
        self._full_bytes = FULL_BYTES
        self._is_full = False
        self._is_reading = False
        self._is_closing = False
        self._is_lost = False
        self.handshake_turns = HANDSHAKE_TURNS
        """So many more times the poller serves the stream after the others. The poller counts it down."""

    def open(self) -> None:
        """Start reading, and call `connection_made` of the protocol."""
        self._is_reading = True
        try:
            self._poller.watch(self._descriptor, self, True, False)
        except OSError as error:  # epoll accepts no more sockets
            self._is_closing = self._is_lost = True
            self._socket.close()
            self._loop.call_exception_handler({"message": "edgebroker: somebody could not come in", "exception": error})
            return
        try:
            self._protocol.connection_made(self)
        except Exception as error:
            self._fail(error)

    # -- called by the poller -----------------------------------------------------------------------------------

    def readable(self) -> None:
        """Read once: bytes have arrived, or the peer has closed the connection."""
        if not self._is_reading:
            return
        try:
            data = self._receive(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.abort()
            return
        if not data:
            self.close()
            return
        try:
            self._received(data)
        except Exception as error:
            self._fail(error)

    def writable(self) -> None:
        """Send unsent bytes: the system takes more of them."""
        if self._is_lost or not self._unsent:
            return
        try:
            sent = self._send(self._unsent)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.abort()
            return
        del self._unsent[:sent]
        if not self._unsent:
            if self._is_closing:
                self._disconnect()
            else:
                self._poller.watch(self._descriptor, self, self._is_reading, False)
        if self._is_full and len(self._unsent) <= self._full_bytes // 4:
            self._is_full = False
            try:
                self._protocol.resume_writing()
            except Exception as error:
                self._fail(error)

    # -- the interface of `Transport` ---------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if self._is_lost:
            return
        if self._unsent:
            self._unsent += data
        else:
            try:
                sent = self._send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                self._unsent += data  # `get_write_buffer_size` counts it as lost
                self.abort()
                return
            if sent == len(data):
                return
            self._unsent += memoryview(data)[sent:]
            self._poller.watch(self._descriptor, self, self._is_reading, True)
        if not self._is_full and len(self._unsent) > self._full_bytes:
            self._is_full = True
            self._protocol.pause_writing()

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._is_reading = False
        if self._unsent:
            self._poller.watch(self._descriptor, self, False, True)
        else:
            self._disconnect()

    def abort(self) -> None:
        self._is_closing = True
        self._disconnect()

    def pause_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._poller.watch(self._descriptor, self, False, bool(self._unsent))

    def resume_reading(self) -> None:
        if not self._is_reading and not self._is_closing:
            self._is_reading = True
            self._poller.watch(self._descriptor, self, True, bool(self._unsent))

    def is_closing(self) -> bool:
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def set_write_buffer_limits(self, high: int) -> None:
        self._full_bytes = high

    def get_extra_info(self, name: str) -> Any:
        return {"peername": self._peer, "socket": self._socket}.get(name)

    # -- inside -------------------------------------------------------------------------------------------------

    def _fail(self, error: Exception) -> None:
        """Report an unexpected error of the protocol, and close this connection alone."""
        context = {"message": f"edgebroker: {self._peer} is cut off", "exception": error}
        self._loop.call_exception_handler(context)
        self.abort()

    def _disconnect(self) -> None:
        """Stop reading and writing. `connection_lost` is called later, since the protocol may be running right now."""
        if self._is_lost:
            return
        self._is_lost = True
        self._is_reading = False
        self._poller.watch(self._descriptor, self, False, False)
        self._poller.schedule_close(self)

    def finish_close(self) -> None:
        """Call `connection_lost` of the protocol, and close the socket."""
        try:
            self._protocol.connection_lost(None)
        except Exception as error:
            context = {"message": f"edgebroker: the end of {self._peer} was not taken well", "exception": error}
            self._loop.call_exception_handler(context)
        finally:
            self._socket.close()
            self._unsent.clear()
            self._protocol = self._received = None  # breaks a reference cycle, which only the collector could free
