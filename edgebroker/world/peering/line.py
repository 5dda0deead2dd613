"""One connection with a peer: bytes from its socket to a stream of the overlay, and back."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import sys
import termios
from typing import TYPE_CHECKING, Final, Protocol, cast

from edgebroker.instants import SECOND, Duration
from edgebroker.limits import KIB
from edgebroker.overlay.address import Address
from edgebroker.world.peering.gate import Gate
from edgebroker.world.reactor import clock

if TYPE_CHECKING:
    from edgebroker.overlay.link.stream import Stream

WRITE_BYTES: Final = 64 * KIB
"""What the socket is given at once, and what may wait before it: all else stays in the outbox, where classes and
congestion see it."""
TCP_INFO_BYTES: Final = 152
MIN_RTT_AT: Final = 148
"""`tcpi_min_rtt` of <linux/tcp.h>, in microseconds: the shortest round trip of the last minutes."""


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
        self._is_full = False  # the transport takes nothing
        self._socket: socket.socket | None = None
        self._gate = Gate(clock())
        self._looks: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there, and the peer has proved itself if it must."""
        self.transport = cast(asyncio.Transport, transport)
        if name := transport.get_extra_info("peername"):
            self.address = str(Address(*name[:2]))
        self.transport.set_write_buffer_limits(high=WRITE_BYTES)
        if sys.platform == "linux":  # elsewhere the transport's own limits are all there is
            self._socket = transport.get_extra_info("socket")
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
        """The transport holds enough for now."""
        self._is_full = True
        self._weigh()

    def resume_writing(self) -> None:
        """It takes more again."""
        self._is_full = False
        self._weigh()

    def _weigh(self) -> None:
        """See whether anything may be written now."""
        stream = self.stream
        if stream is not None:
            was_paused, stream.paused = stream.paused, self._is_full or self._gate.is_shut
            if was_paused and not stream.paused:
                self._host.flows()

    def _look(self) -> None:
        """See how much is under way; while it is too much, soon again."""
        self._looks = None
        if self._socket is None or self.stream is None or self.transport.is_closing():
            return
        gate = self._gate
        queued, round_trip = _under_way(self._socket)
        gate.look(queued + self.transport.get_write_buffer_size(), round_trip, clock())
        if gate.is_shut:
            self._looks = asyncio.get_running_loop().call_later(gate.look_after / SECOND, self._look)
        self._weigh()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over, by whichever side."""
        if self._looks is not None:
            self._looks.cancel()
        self._host.gone(self, exc)

    def flush(self) -> int:
        """Write what there is to say, as far as there is room, and close if that was the last. Returns bytes."""
        stream, transport = self.stream, self.transport
        written = 0
        if stream is None or transport.is_closing():
            return written
        now = clock()
        while not stream.paused:
            room = WRITE_BYTES if self._socket is None else min(WRITE_BYTES, self._gate.room(now))
            data = stream.flush(now, room)
            if not data:
                break
            written += len(data)
            transport.write(data)
            if self._socket is not None and self._gate.wrote(len(data), now):
                self._look()
        if stream.is_over:
            if stream.out:  # what is said last waits in the transport, which is closed behind it
                data = stream.flush(now, 0)
                written += len(data)
                transport.write(data)
            transport.close()
        return written


def _under_way(wire: socket.socket) -> tuple[int, Duration]:
    """How many bytes the other end's kernel has not acknowledged, and the shortest round trip."""
    queued = struct.unpack("i", fcntl.ioctl(wire.fileno(), termios.TIOCOUTQ, bytes(4)))[0]  # SIOCOUTQ of tcp(7)
    info = wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    return queued, struct.unpack_from("I", info, MIN_RTT_AT)[0] if len(info) == TCP_INFO_BYTES else 0
