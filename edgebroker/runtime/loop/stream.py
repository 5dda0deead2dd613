"""A connected socket as a transport for client protocols and layers; `write` sends at once.

It has the methods of asyncio's transports that those use, and takes a third of their time. A `SocketPoller` calls
`readable` and `writable`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final, Protocol

READ_BYTES: Final = 64 * 1024
"""Taken from a socket at once. More would let one client keep the others waiting longer, less costs system calls."""
FULL_BYTES: Final = 64 * 1024
"""With more than this unsent the protocol is told to pause, with a quarter of it to go on."""
NEWCOMER_TURNS: Final = 3
"""So often is heard of a client before it has its place: handshakes of TLS or WebSocket, CONNECT."""


class Transport(Protocol):
    """What doors use of the transport below them: a stream, or a layer on one."""

    def write(self, data: bytes) -> None:
        """Send *data*, or keep what the system does not take yet."""

    def close(self) -> None:
        """Read nothing more; send what was given, then close."""

    def abort(self) -> None:
        """Close at once."""

    def pause_reading(self) -> None:
        """Nothing more, until `resume_reading`."""

    def resume_reading(self) -> None:
        """Go on reading."""

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""

    def get_write_buffer_size(self) -> int:
        """Unsent bytes."""

    def set_write_buffer_limits(self, high: int) -> None:
        """Above *high* unsent bytes the protocol is told to pause, at a quarter of it to go on."""

    def get_extra_info(self, name: str) -> Any:
        """As of asyncio's transports: `peername`, `socket`."""


class StreamProtocol(Protocol):
    """What is above a transport: a door, or a layer below one. As `asyncio.Protocol`."""

    def connection_made(self, transport: Transport) -> None:
        """A client dialled."""

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""

    def pause_writing(self) -> None:
        """The client does not read as fast as we write."""

    def resume_writing(self) -> None:
        """The client has caught up."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed, by whichever side."""


class SocketPoller(Protocol):
    """Who notices that a socket can be read or written."""

    def watch(self, descriptor: int, stream: SocketStream, reading: bool, writing: bool) -> None:
        """From now on call `readable` if *reading*, `writable` if *writing*, when it is time for it."""

    def end(self, stream: SocketStream) -> None:
        """Call `gone` soon, but not now."""

    def listen(self, descriptor: int, accept: Callable[[], SocketStream | None] | None) -> None:
        """From now on call *accept*, which raises nothing, when somebody dials this socket, and open what it returns,
        if anything. None: not any more.
        """


class SocketStream:
    """One socket, from `open` until `connection_lost` of its protocol."""

    __slots__ = (
        "_descriptor",
        "_full_bytes",
        "_is_closing",
        "_is_full",
        "_is_lost",
        "_is_reading",
        "_loop",
        "_peer",
        "_protocol",
        "_receive",
        "_received",
        "_send",
        "_socket",
        "_unsent",
        "_watch",
        "newcomer_turns",
    )

    def __init__(
        self,
        connected: socket.socket,
        watch: SocketPoller,
        protocol: StreamProtocol,
        loop: asyncio.AbstractEventLoop,
        peer: Any = None,
    ) -> None:
        """*connected* does not block. *peer* is the address of the other end, as the system tells it."""
        self._socket = connected
        self._receive = connected.recv
        self._send = connected.send
        self._descriptor = connected.fileno()
        self._watch = watch
        self._protocol: Any = protocol  # None when it has lost us, as what it receives by
        self._received: Any = protocol.data_received
        self._loop = loop
        self._peer = peer
        self._unsent = bytearray()
        self._full_bytes = FULL_BYTES
        self._is_full = False
        self._is_reading = False
        self._is_closing = False
        self._is_lost = False
        self.newcomer_turns = NEWCOMER_TURNS
        """How often it is still to be served as one that is new."""

    def open(self) -> None:
        """Introduce the client to the protocol, and begin to read."""
        self._is_reading = True
        try:
            self._watch.watch(self._descriptor, self, True, False)
        except OSError as error:  # the system watches no more sockets
            self._is_closing = self._is_lost = True
            self._socket.close()
            self._loop.call_exception_handler({"message": "edgebroker: somebody could not come in", "exception": error})
            return
        try:
            self._protocol.connection_made(self)
        except Exception as error:
            self._fail(error)

    # -- what the watch says ------------------------------------------------------------------------------------

    def readable(self) -> None:
        """Something arrived, or the peer is gone."""
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
        """There is room for more of what is unsent."""
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
                self._end()
            else:
                self._watch.watch(self._descriptor, self, self._is_reading, False)
        if self._is_full and len(self._unsent) <= self._full_bytes // 4:
            self._is_full = False
            try:
                self._protocol.resume_writing()
            except Exception as error:
                self._fail(error)

    # -- a transport --------------------------------------------------------------------------------------------

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
                self._unsent += data  # which somebody may count
                self.abort()
                return
            if sent == len(data):
                return
            self._unsent += memoryview(data)[sent:]
            self._watch.watch(self._descriptor, self, self._is_reading, True)
        if not self._is_full and len(self._unsent) > self._full_bytes:
            self._is_full = True
            self._protocol.pause_writing()

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._is_reading = False
        if self._unsent:
            self._watch.watch(self._descriptor, self, False, True)
        else:
            self._end()

    def abort(self) -> None:
        self._is_closing = True
        self._end()

    def pause_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._watch.watch(self._descriptor, self, False, bool(self._unsent))

    def resume_reading(self) -> None:
        if not self._is_reading and not self._is_closing:
            self._is_reading = True
            self._watch.watch(self._descriptor, self, True, bool(self._unsent))

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
        """The protocol has a bug: its connection goes, no other."""
        context = {"message": f"edgebroker: {self._peer} is cut off", "exception": error}
        self._loop.call_exception_handler(context)
        self.abort()

    def _end(self) -> None:
        """Nothing goes in or out any more. The protocol hears of it later: it may be in the middle of something."""
        if self._is_lost:
            return
        self._is_lost = True
        self._is_reading = False
        self._watch.watch(self._descriptor, self, False, False)
        self._watch.end(self)

    def gone(self) -> None:
        """The protocol may hear of the end now; then the socket is closed."""
        try:
            self._protocol.connection_lost(None)
        except Exception as error:
            context = {"message": f"edgebroker: the end of {self._peer} was not taken well", "exception": error}
            self._loop.call_exception_handler(context)
        finally:
            self._socket.close()
            self._unsent.clear()
            self._protocol = self._received = None  # they hold us: else the collector would have to find both
