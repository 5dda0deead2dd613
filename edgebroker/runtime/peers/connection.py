"""One TCP connection to a peer: dialling, reading and writing, and a window for unacknowledged bytes.

A kernel takes all that its send buffer holds, megabytes on a long fast path, and there no class goes before another.
So the connection asks how many of its bytes the peer's kernel has not acknowledged. Beyond three quarters of the
*window* nothing is written until half of it is left. The bytes acknowledged meanwhile, in a round trip or more, set
the window: what the path carries in HEADWAY and two round trips, and at most twice the window before. After a pause
the window begins anew.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import sys
import termios
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol, cast

from edgebroker.instants import MILLISECOND, NEVER, SECOND, Duration, Instant
from edgebroker.limits import KIB
from edgebroker.names import Address
from edgebroker.runtime.loop.reactor import clock

if TYPE_CHECKING:
    import ssl

    from edgebroker.overlay.link.connection import LinkConnection

WINDOW_FIRST: Final = 16 * KIB
"""TCP sends 14 KB before it hears anything (RFC 6928)."""
WINDOW_MIN: Final = 3 * KIB
"""A packet under way, and one behind it: three seconds of a line of 1,000 bytes a second."""
HEADWAY: Final[Duration] = 250 * MILLISECOND
"""As long as `overlay.link.budget` lets be said at once: so long the line is fed if this process is busy."""
ROUND_TRIP_MAX: Final[Duration] = SECOND
"""A satellite's is 0.6 s; what is longer stood in a queue."""
LOOK_FIRST: Final[Duration] = MILLISECOND
LOOK_LAST: Final[Duration] = 40 * MILLISECOND
PAUSE: Final[Duration] = 10 * SECOND
"""After so long without being met a window says nothing of the line as it is now."""


class SendWindow:
    """The gate of one connection."""

    __slots__ = (
        "_acknowledged",
        "_begun_at",
        "_opened_at",
        "_under_way",
        "_wrote_at",
        "is_shut",
        "measure_after",
        "window",
    )

    def __init__(self, now: Instant) -> None:
        self.window = WINDOW_FIRST
        """Bytes."""
        self.is_shut = False
        """Nothing more is to be written now."""
        self.measure_after: Duration = LOOK_FIRST
        """While it is shut: how long until the next `look`."""
        self._under_way = 0  # at most
        self._wrote_at: Instant = now
        self._opened_at: Instant = -NEVER
        self._begun_at: Instant = now  # since then the line has been busy
        self._acknowledged = 0  # and has carried so much

    def writable_bytes(self, now: Instant) -> int:
        """So many bytes may be written now."""
        if now - self._wrote_at > PAUSE and self.window > WINDOW_FIRST:
            self.window = WINDOW_FIRST
            if not self.is_shut:
                # Nobody looked since, and by the count of before all of this window may be taken: nothing would ever be
                # written then, and nobody look. So less is believed, and whatever is written makes somebody look.
                self._under_way = min(self._under_way, 3 * WINDOW_FIRST // 4)
                self._begin(now)
        return 0 if self.is_shut else max(0, self.window - self._under_way)

    def record_written(self, octets: int, now: Instant) -> bool:
        """So many bytes were written. Whether to `look` before there are more."""
        self._wrote_at = now
        self._under_way += octets
        return 4 * self._under_way > 3 * self.window

    def measure(self, under_way: int, round_trip: Duration, now: Instant) -> None:
        """*under_way* bytes are not acknowledged; *round_trip* is the shortest that was seen, 0 if none was."""
        self._acknowledged += self._under_way - under_way
        self._under_way = under_way
        round_trip = min(round_trip, ROUND_TRIP_MAX)
        if self.is_shut:
            self._measure(round_trip, now)
            self.is_shut = 2 * under_way > self.window
            self._opened_at = now
            self.measure_after = min(self.measure_after * 3 // 2, LOOK_LAST)
        elif 4 * under_way > 3 * self.window:
            self.is_shut = True
            self.measure_after = LOOK_FIRST
            if now - self._opened_at > round_trip + HEADWAY:  # it may have been idle meanwhile
                self._begin(now)

    def _begin(self, now: Instant) -> None:
        self._begun_at = now
        self._acknowledged = 0

    def _measure(self, round_trip: Duration, now: Instant) -> None:
        """Set the window, if that what was carried is enough to tell how fast the line is."""
        took = now - self._begun_at
        if 4 * self._acknowledged >= self.window and took >= max(1, round_trip):
            wanted = self._acknowledged * (HEADWAY + 2 * round_trip) // took
            self.window = max(WINDOW_MIN, min(wanted, 2 * self.window))
            self._begin(now)


DIAL_S: Final = 10.0
"""For one address, with TLS: a satellite takes 2 s, and three lost SYNs are repeated within 7 s (RFC 6298)."""


class DialError(Exception):
    """Nobody could be reached; the text says why at each address."""


async def dial(
    addresses: Iterable[Address],
    line: Callable[[], asyncio.Protocol],
    context: ssl.SSLContext | None,
    patience_s: float = DIAL_S,
    server_name: str = "",
) -> None:
    """Connect *line* to the first of *addresses* that answers. Raises NoAnswer.

    With TLS its certificate must be for *server_name*. Empty: for anybody, who is looked at later: a gateway has one
    name, wherever it is reached, and the link holds it to that.
    """
    loop = asyncio.get_running_loop()
    reasons: list[str] = []
    for address in addresses:
        try:
            name = None if context is None else server_name
            dialling = loop.create_connection(line, address.host, address.port, ssl=context, server_hostname=name)
            await asyncio.wait_for(dialling, patience_s)
        except TimeoutError:
            reasons.append(f"{address}: no answer within {patience_s:g} s")
        except (OSError, UnicodeError) as error:
            unverified = getattr(error, "verify_message", "")  # of ssl's errors, which are not imported without TLS
            reason = f"its certificate is not accepted: {unverified}" if unverified else reason_of(error)
            reasons.append(f"{address}: {reason}")
        else:
            return
    raise DialError("; ".join(reasons) or "the topology has no address for it")


def reason_of(error: Exception) -> str:
    """Why a connection came to nothing, or ended, in words."""
    if type(error).__module__ == "ssl":
        return f"TLS: {(getattr(error, 'reason', None) or str(error)).replace('_', ' ').lower()}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


WRITE_BYTES: Final = 64 * KIB
"""What the socket is given at once, and what may wait before it: all else stays in the outbox, where classes and
congestion see it."""
TCP_INFO_BYTES: Final = 152
MIN_RTT_AT: Final = 148
"""`tcpi_min_rtt` of <linux/tcp.h>, in microseconds: the shortest round trip of the last minutes."""


class PeerConnectionCallbacks(Protocol):
    """Who holds the lines."""

    def connection_made(self, line: PeerConnection, certified: str | None) -> None:
        """The connection is there; *certified* is the name in the certificate that was shown."""

    def data_received(self, stream: LinkConnection, data: bytes) -> None:
        """*data* came."""

    def writable(self) -> None:
        """A socket takes bytes again."""

    def connection_lost(self, line: PeerConnection, error: Exception | None) -> None:
        """The socket of *line* is closed."""


class PeerConnection(asyncio.Protocol):
    """The socket of one peer. *peer* is whom we dialled; None: who it is, its hello says."""

    def __init__(self, host: PeerConnectionCallbacks, peer: str | None) -> None:
        self.peer = peer
        self.stream: LinkConnection | None = None
        """None: the connection is not, or no longer, wanted."""
        self.transport: asyncio.Transport
        self.address = "?"
        """Where the other end is."""
        self._callbacks = host
        self._reads_on = False
        self._is_full = False  # the transport takes nothing
        self._socket: socket.socket | None = None
        self._send_window = SendWindow(clock())
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
            from edgebroker.runtime.listeners.tls import certificate_of  # OpenSSL: 4 MiB that only TLS costs

            name = certificate_of(shown).common_name
        self._callbacks.connection_made(self, name)

    def data_received(self, data: bytes) -> None:
        """Bytes arrived. What is much is read in turns, and nothing comes after it until all is read."""
        stream = self.stream
        if stream is not None:
            self._callbacks.data_received(stream, data)
            if stream.has_more and not self._reads_on:
                self._reads_on = True
                self.transport.pause_reading()
                asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        if self.stream is not None and self.stream.has_more:
            self._callbacks.data_received(self.stream, b"")
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
            was_paused, stream.paused = stream.paused, self._is_full or self._send_window.is_shut
            if was_paused and not stream.paused:
                self._callbacks.writable()

    def _look(self) -> None:
        """See how much is under way; while it is too much, soon again."""
        self._looks = None
        if self._socket is None or self.stream is None or self.transport.is_closing():
            return
        gate = self._send_window
        queued, round_trip = _under_way(self._socket)
        gate.measure(queued + self.transport.get_write_buffer_size(), round_trip, clock())
        if gate.is_shut:
            self._looks = asyncio.get_running_loop().call_later(gate.measure_after / SECOND, self._look)
        self._weigh()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over, by whichever side."""
        if self._looks is not None:
            self._looks.cancel()
        self._callbacks.connection_lost(self, exc)

    def flush(self) -> int:
        """Write what there is to say, as far as there is room, and close if that was the last. Returns bytes."""
        stream, transport = self.stream, self.transport
        written = 0
        if stream is None or transport.is_closing():
            return written
        now = clock()
        while not stream.paused:
            room = WRITE_BYTES if self._socket is None else min(WRITE_BYTES, self._send_window.writable_bytes(now))
            data = stream.flush(now, room)
            if not data:
                break
            written += len(data)
            transport.write(data)
            if self._socket is not None and self._send_window.record_written(len(data), now):
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
