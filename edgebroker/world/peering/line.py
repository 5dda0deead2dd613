"""One connection with a peer: bytes from its socket to a stream of the overlay, and back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol, cast

from edgebroker.limits import KIB
from edgebroker.overlay.address import Address
from edgebroker.world.reactor import clock

if TYPE_CHECKING:
    from edgebroker.overlay.link.stream import Stream

WRITE_BYTES: Final = 64 * KIB
"""What the socket is given at most: what waits beyond it stays in the outbox, where classes and congestion see it."""


class Host(Protocol):
    """Who holds the lines."""

    def came(self, line: Line, certified: str | None) -> None:
        """The connection is there; *certified* is the name in the certificate that was shown."""

    def heard(self, stream: Stream, data: bytes) -> None:
        """*data* came."""

    def flows(self) -> None:
        """A socket takes bytes again."""

    def gone(self, line: Line, error: Exception | None) -> None:
        """The socket of *line* is closed."""


class Line(asyncio.Protocol):
    """The socket of one peer. *peer* is whom we dialled; None: who it is, its hello says."""

    def __init__(self, host: Host, peer: str | None) -> None:
        self.peer = peer
        self.stream: Stream | None = None
        """None: the connection is not, or no longer, wanted."""
        self.transport: asyncio.Transport
        self.address = "?"
        """Where the other end is."""
        self._host = host
        self._reads_on = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there, and the peer has proved itself if it must."""
        self.transport = cast(asyncio.Transport, transport)
        if name := transport.get_extra_info("peername"):
            self.address = str(Address(*name[:2]))
        self.transport.set_write_buffer_limits(high=WRITE_BYTES)
        name = None
        if shown := transport.get_extra_info("peercert"):
            from edgebroker.world.doors.tls import certificate_of  # OpenSSL: 4 MiB that only TLS costs

            name = certificate_of(shown).common_name
        self._host.came(self, name)

    def data_received(self, data: bytes) -> None:
        """Bytes arrived. What is much is read in turns, and nothing comes after it until all is read."""
        stream = self.stream
        if stream is not None:
            self._host.heard(stream, data)
            if stream.has_more and not self._reads_on:
                self._reads_on = True
                self.transport.pause_reading()
                asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        if self.stream is not None and self.stream.has_more:
            self._host.heard(self.stream, b"")
            asyncio.get_running_loop().call_soon(self._read_on)
        else:
            self._reads_on = False
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        """The peer, or the way to it, takes nothing for now."""
        if self.stream is not None:
            self.stream.paused = True

    def resume_writing(self) -> None:
        """It does again."""
        if self.stream is not None:
            self.stream.paused = False
            self._host.flows()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over, by whichever side."""
        self._host.gone(self, exc)

    def flush(self) -> int:
        """Write what there is to say, as far as there is room, and close if that was the last. Returns bytes."""
        stream, transport = self.stream, self.transport
        written = 0
        if stream is None or transport.is_closing():
            return written
        now = clock()
        while not stream.paused:
            data = stream.flush(now, WRITE_BYTES)
            if not data:
                break
            written += len(data)
            transport.write(data)
        if stream.is_over:
            transport.close()
        return written
