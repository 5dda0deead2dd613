"""One TCP connection to a peer: dialling, reading and writing, and a window for unacknowledged bytes.

A kernel takes all that its send buffer holds, megabytes on a long fast path, and in it no traffic class goes before
another. So the connection asks how many of its bytes the peer's kernel has not acknowledged. Beyond three quarters of
the *window* nothing is written until half of it is left. The bytes acknowledged meanwhile, in a round trip or more, set
the window: what the path carries in `HEADWAY` and two round trips, and at most twice the previous window. After an idle
period the window starts anew.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
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
"""TCP sends 14 KB before it receives an acknowledgement (RFC 6928)."""
WINDOW_MIN: Final = 3 * KIB
"""One packet on its way and one behind it: three seconds on a path of 1,000 bytes a second."""
HEADWAY: Final[Duration] = 250 * MILLISECOND
"""Bytes for this time are kept in the kernel, so that the path stays in use while this process is busy;
`overlay.link.budget` allows bursts as long.
"""
ROUND_TRIP_MAX: Final[Duration] = SECOND
"""A satellite's round trip is 0.6 s; a longer one includes time in a queue."""
POLL_FIRST: Final[Duration] = MILLISECOND
POLL_LAST: Final[Duration] = 40 * MILLISECOND
IDLE_RESET: Final[Duration] = 10 * SECOND
"""After this time without writes the window no longer describes the path."""


class SendWindow:
    """Decides how many bytes may be written to one connection."""

    __slots__ = (
        "_acknowledged",
        "_opened_at",
        "_sample_begun_at",
        "_unacknowledged",
        "_written_at",
        "is_shut",
        "measure_after",
        "window",
    )

    def __init__(self, now: Instant) -> None:
        self.window = WINDOW_FIRST
        """Bytes."""
        self.is_shut = False
        """Whether nothing may be written at present."""
        self.measure_after: Duration = POLL_FIRST
        """While `is_shut`: time until the next call of `measure`."""
        self._unacknowledged = 0  # an upper bound, until `measure` is called
        self._written_at: Instant = now
        self._opened_at: Instant = -NEVER
        self._sample_begun_at: Instant = now  # the path has been in use since then
        self._acknowledged = 0  # since then

    def writable_bytes(self, now: Instant) -> int:
        """Returns how many bytes may be written now."""
        if now - self._written_at > IDLE_RESET and self.window > WINDOW_FIRST:
            self.window = WINDOW_FIRST
            if not self.is_shut:
                # The count of unacknowledged bytes is old and may fill the first window. Nothing would be written, and
                # so nothing measured, ever. With a lower count something is written, and that is measured.
                self._unacknowledged = min(self._unacknowledged, 3 * WINDOW_FIRST // 4)
                self._begin_sample(now)
        return 0 if self.is_shut else max(0, self.window - self._unacknowledged)

    def record_written(self, count: int, now: Instant) -> bool:
        """Records *count* bytes as written. Returns whether to call `measure` before more are written."""
        self._written_at = now
        self._unacknowledged += count
        return 4 * self._unacknowledged > 3 * self.window

    def measure(self, unacknowledged: int, round_trip: Duration, now: Instant) -> None:
        """Sets the state from the kernel's figures: bytes not acknowledged, and the shortest round trip, 0 if there was
        none.
        """
        self._acknowledged += self._unacknowledged - unacknowledged
        self._unacknowledged = unacknowledged
        round_trip = min(round_trip, ROUND_TRIP_MAX)
        if self.is_shut:
            self._update_window(round_trip, now)
            self.is_shut = 2 * unacknowledged > self.window
            self._opened_at = now
            self.measure_after = min(self.measure_after * 3 // 2, POLL_LAST)
        elif 4 * unacknowledged > 3 * self.window:
            self.is_shut = True
            self.measure_after = POLL_FIRST
            if now - self._opened_at > round_trip + HEADWAY:  # the path may have been idle meanwhile
                self._begin_sample(now)

    def _begin_sample(self, now: Instant) -> None:
        self._sample_begun_at = now
        self._acknowledged = 0

    def _update_window(self, round_trip: Duration, now: Instant) -> None:
        """Sets the window, if enough bytes were acknowledged to tell how fast the path is."""
        elapsed = now - self._sample_begun_at
        if 4 * self._acknowledged >= self.window and elapsed >= max(1, round_trip):
            target = self._acknowledged * (HEADWAY + 2 * round_trip) // elapsed
            self.window = max(WINDOW_MIN, min(target, 2 * self.window))
            self._begin_sample(now)


HANDSHAKE_S: Final = 10.0
"""From accepting a connection to the end of its TLS handshake, however slowly its bytes come."""
TLS_HANDSHAKE: Final = 22
"""The type of the record with which a TLS client begins (RFC 8446 section 5.1)."""
RECORD_HEAD_BYTES: Final = 5
RECORD_BYTES_MAX: Final = 16 * KIB
"""The most bytes of such a record: type, version, a length of two bytes, and so many."""
DIAL_S: Final = 10.0
"""For one address, with TLS: a satellite takes 2 s, and three lost SYNs are repeated within 7 s (RFC 6298)."""


OFFLINE_ERRORS: Final = frozenset((errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL, socket.EAI_AGAIN))
"""This machine has no route, no interface, no address, or no name server."""


class DialError(Exception):
    """No address could be reached; the text says why for each. `is_offline`: because this machine has no network."""

    def __init__(self, reason: str, is_offline: bool = False) -> None:
        super().__init__(reason)
        self.is_offline = is_offline


async def dial(
    addresses: Iterable[Address],
    protocol_factory: Callable[[], asyncio.Protocol],
    context: ssl.SSLContext | None,
    timeout_s: float = DIAL_S,
    server_name: str = "",
) -> None:
    """Connects a protocol to the first of *addresses* that answers. Raises DialError.

    With TLS the certificate must be valid for *server_name*. Empty: any certificate of the authority; the caller checks
    its name later, because a gateway has one name at all its addresses.
    """
    loop = asyncio.get_running_loop()
    reasons: list[str] = []
    offline = 0
    for address in addresses:
        try:
            name = None if context is None else server_name
            attempt = loop.create_connection(
                protocol_factory, address.host, address.port, ssl=context, server_hostname=name
            )
            await asyncio.wait_for(attempt, timeout_s)
        except TimeoutError:
            reasons.append(f"{address}: no answer within {timeout_s:g} s")
        except (OSError, UnicodeError) as error:
            verify_message = getattr(error, "verify_message", "")  # of ssl.SSLError, which is not imported without TLS
            reason = f"its certificate is not accepted: {verify_message}" if verify_message else reason_of(error)
            reasons.append(f"{address}: {reason}")
            offline += getattr(error, "errno", None) in OFFLINE_ERRORS
        else:
            return
    is_offline = bool(reasons) and offline == len(reasons)
    raise DialError("; ".join(reasons) or "the topology has no address for it", is_offline)


def reason_of(error: Exception) -> str:
    """Returns why a connection failed or ended, as text."""
    if type(error).__module__ == "ssl":
        return f"TLS: {(getattr(error, 'reason', None) or str(error)).replace('_', ' ').lower()}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


WRITE_BYTES: Final = 64 * KIB
"""Limit of one write and of the transport's buffer: everything else stays in the outbox, where traffic classes and
congestion control see it.
"""
TCP_INFO_BYTES: Final = 152
MIN_RTT_OFFSET: Final = 148
"""`tcpi_min_rtt` of <linux/tcp.h>, in microseconds: the shortest round trip of the last minutes."""


class AcceptedPeer(asyncio.Protocol):
    """A socket that somebody opened to the peer listener, until it is known who that is. *open_connection* makes the
    `PeerConnection` on it when the TLS handshake is complete, or at once without TLS.

    The handshake begins when the first record of TLS is there: asyncio and OpenSSL take 300 KB from then on, which
    connections that say nothing, or not enough, shall not cost.
    """

    def __init__(
        self,
        callbacks: AcceptedPeerCallbacks,
        context: ssl.SSLContext | None,
        open_connection: Callable[[], PeerConnection],
    ) -> None:
        self.address = "?"
        """Where it comes from."""
        self.connection: PeerConnection | None = None
        self._callbacks = callbacks
        self._context = context
        self._open_connection = open_connection
        self._transport: asyncio.Transport
        self._first_record = bytearray()  # with TLS; as far as it has arrived
        self._handshake: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def is_identified(self) -> bool:
        """Whether it has shown a certificate of the federation's authority, or greeted as one of the peers."""
        connection = self.connection
        if connection is None or connection.stream is None:
            return False
        return connection.stream.certified is not None or connection.stream.is_open

    @property
    def has_begun(self) -> bool:
        """Whether anything has arrived."""
        stream = None if self.connection is None else self.connection.stream
        return bool(self._first_record) or (stream is not None and stream.has_begun)

    @property
    def is_over(self) -> bool:
        """Whether the socket is closed."""
        return self._transport.is_closing()

    def abort(self) -> None:
        """Close the socket at once."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Report the socket. Without TLS the connection is there."""
        self._transport = cast(asyncio.Transport, transport)
        if name := transport.get_extra_info("peername"):
            self.address = str(Address(*name[:2]))
        self._callbacks.accepted(self)
        if self._transport.is_closing():
            return
        if self._context is not None:
            self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_S, self._end_overdue)
            return
        self.connection = self._open_connection()
        self._transport.set_protocol(self.connection)
        self.connection.connection_made(self._transport)

    def data_received(self, data: bytes) -> None:
        """Collect the first record of TLS, and begin the handshake with it."""
        record, context = self._first_record, self._context
        record += data
        size = int.from_bytes(record[3:RECORD_HEAD_BYTES])
        if record[0] != TLS_HANDSHAKE or size > RECORD_BYTES_MAX:
            self.abort()
        elif len(record) >= RECORD_HEAD_BYTES + size and len(record) > RECORD_HEAD_BYTES and context is not None:
            self._transport.pause_reading()
            self._handshake = asyncio.get_running_loop().create_task(self._secure(context))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadline: the socket was closed before the handshake."""
        if self._deadline is not None:
            self._deadline.cancel()

    def _end_overdue(self) -> None:
        self._callbacks.overdue(self)
        self.abort()

    async def _secure(self, context: ssl.SSLContext) -> None:
        connection, loop = self._open_connection(), asyncio.get_running_loop()
        upgrade = loop.create_task(
            loop.start_tls(self._transport, connection, context, server_side=True, ssl_handshake_timeout=HANDSHAKE_S)
        )
        try:
            await asyncio.sleep(0)  # `start_tls` sets the protocol of the transport...
            await asyncio.sleep(0)  # ...and the loop calls its `connection_made`
            protocol = self._transport.get_protocol()
            if isinstance(protocol, asyncio.BufferedProtocol):
                _feed(protocol, self._first_record)
            secured = await upgrade
        except (OSError, TimeoutError):  # no TLS, no certificate, one of another authority, or too slow
            return
        finally:
            if self._deadline is not None:
                self._deadline.cancel()
        if secured is not None:
            self.connection = connection
            connection.connection_made(secured)


def _feed(protocol: asyncio.BufferedProtocol, data: bytes | bytearray) -> None:
    """Passes *data* to *protocol*, as its transport does."""
    while data:
        buffer = memoryview(protocol.get_buffer(len(data)))
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        protocol.buffer_updated(count)
        data = data[count:]


class AcceptedPeerCallbacks(Protocol):
    """Receives the sockets that are accepted from peers."""

    def accepted(self, peer: AcceptedPeer) -> None:
        """A socket was opened; it may be aborted at once."""

    def overdue(self, peer: AcceptedPeer) -> None:
        """The TLS handshake of *peer* is not complete in time; it is aborted."""


class PeerConnectionCallbacks(Protocol):
    """Receives the events of a `PeerConnection`."""

    def connection_made(self, connection: PeerConnection, certified: str | None) -> None:
        """Called when the socket is connected; *certified* is the name in the peer's verified certificate."""

    def data_received(self, stream: LinkConnection, data: bytes) -> None:
        """Called with bytes from the peer."""

    def writable(self) -> None:
        """Called when a socket accepts bytes again."""

    def connection_lost(self, connection: PeerConnection, error: Exception | None) -> None:
        """Called when the socket of *connection* is closed."""


class PeerConnection(asyncio.Protocol):
    """The socket of one peer. *peer*: the gateway that was dialled; None: an accepted one, named by its hello."""

    def __init__(self, callbacks: PeerConnectionCallbacks, peer: str | None) -> None:
        self.peer = peer
        self.stream: LinkConnection | None = None
        """None: the connection is not admitted, or was given up."""
        self.transport: asyncio.Transport
        self.address = "?"
        """The peer's address."""
        self._callbacks = callbacks
        self._is_made = False
        self._early: list[bytes] = []  # with TLS bytes may come before `connection_made`
        self._is_working_off = False
        self._is_buffer_full = False  # the transport's buffer
        self._socket: socket.socket | None = None
        self._send_window = SendWindow(clock())
        self._poll_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Reports the connection; with TLS the handshake is complete."""
        self.transport = cast(asyncio.Transport, transport)
        if name := transport.get_extra_info("peername"):
            self.address = str(Address(*name[:2]))
        self.transport.set_write_buffer_limits(high=WRITE_BYTES)
        if sys.platform == "linux":  # elsewhere only the transport's limits apply
            self._socket = transport.get_extra_info("socket")
        name = None
        if certificate := transport.get_extra_info("peercert"):
            from edgebroker.runtime.listeners.tls import certificate_of  # OpenSSL: 4 MiB, only with TLS

            name = certificate_of(certificate).common_name
        self._callbacks.connection_made(self, name)
        self._is_made = True
        early, self._early = self._early, []
        for data in early:
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        """Passes bytes to the link. A long input is worked off over several turns, during which reading pauses."""
        stream = self.stream
        if not self._is_made:
            self._early.append(data)
        if stream is not None:
            self._callbacks.data_received(stream, data)
            if stream.has_more and not self._is_working_off:
                self._is_working_off = True
                self.transport.pause_reading()
                asyncio.get_running_loop().call_soon(self._work_off)

    def _work_off(self) -> None:
        if self.stream is not None and self.stream.has_more:
            self._callbacks.data_received(self.stream, b"")
            asyncio.get_running_loop().call_soon(self._work_off)
        else:
            self._is_working_off = False
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        """Notes that the transport's buffer is full."""
        self._is_buffer_full = True
        self._update_paused()

    def resume_writing(self) -> None:
        """Notes that the transport's buffer has room again."""
        self._is_buffer_full = False
        self._update_paused()

    def _update_paused(self) -> None:
        """Pauses or resumes the link's output."""
        stream = self.stream
        if stream is not None:
            was_paused, stream.paused = stream.paused, self._is_buffer_full or self._send_window.is_shut
            if was_paused and not stream.paused:
                self._callbacks.writable()

    def _measure(self) -> None:
        """Measures the unacknowledged bytes, and again soon while the window is shut."""
        self._poll_timer = None
        if self._socket is None or self.stream is None or self.transport.is_closing():
            return
        window = self._send_window
        queued, round_trip = _tcp_state(self._socket)
        window.measure(queued + self.transport.get_write_buffer_size(), round_trip, clock())
        if window.is_shut:
            self._poll_timer = asyncio.get_running_loop().call_later(window.measure_after / SECOND, self._measure)
        self._update_paused()

    def connection_lost(self, exc: Exception | None) -> None:
        """Reports the end of the connection."""
        if self._poll_timer is not None:
            self._poll_timer.cancel()
        self._callbacks.connection_lost(self, exc)

    def flush(self) -> int:
        """Writes the link's output as far as there is room; closes after the last. Returns the bytes written."""
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
                self._measure()
        if stream.is_over:
            if stream.out:  # the last frames: the transport closes after it has sent them
                data = stream.flush(now, 0)
                written += len(data)
                transport.write(data)
            transport.close()
        return written


def _tcp_state(connected: socket.socket) -> tuple[int, Duration]:
    """Returns the number of bytes that the peer's kernel has not acknowledged, and the shortest round trip."""
    queued = struct.unpack("i", fcntl.ioctl(connected.fileno(), termios.TIOCOUTQ, bytes(4)))[0]  # SIOCOUTQ of tcp(7)
    info = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    return queued, struct.unpack_from("I", info, MIN_RTT_OFFSET)[0] if len(info) == TCP_INFO_BYTES else 0


NETLINK_GROUPS: Final = 0x1 | 0x10 | 0x40 | 0x100 | 0x400
"""RTMGRP_LINK, and the addresses and routes of IPv4 and IPv6 (linux/rtnetlink.h)."""
NEW_LINK: Final = 16
NEW_ADDRESS: Final = 20
NEW_ROUTE: Final = 24
IFF_LOWER_UP: Final = 1 << 16
"""The interface has a carrier."""
NETLINK_HEADER: Final = struct.Struct("=IHHII")
"""struct nlmsghdr: length, type, flags, sequence number, port."""
LINK_STATE: Final = struct.Struct("=BxHiII")
"""struct ifinfomsg: family, type, index, flags, changed flags."""
NETLINK_BYTES: Final = 64 * 1024
SIGN_PAUSE_S: Final = 1.0
"""One carrier leads to a dozen messages; they are one sign."""


def has_network_news(data: bytes) -> bool:
    """Return whether *data*, netlink messages, tell of a carrier, an address or a route that is there now."""
    at = 0
    while at + NETLINK_HEADER.size <= len(data):
        length, kind = NETLINK_HEADER.unpack_from(data, at)[:2]
        if kind in (NEW_ADDRESS, NEW_ROUTE):
            return True
        is_link = kind == NEW_LINK and at + NETLINK_HEADER.size + LINK_STATE.size <= len(data)
        if is_link and LINK_STATE.unpack_from(data, at + NETLINK_HEADER.size)[3] & IFF_LOWER_UP:
            return True
        at += max(NETLINK_HEADER.size, (length + 3) & ~3)
    return False


class NetworkWatch:
    """Calls *seen* at most once a second when this machine gets a carrier, an address or a route, as the kernel reports
    it over rtnetlink(7).

    A gateway in a vehicle has a network for half a minute at a time. With the back-off of a dead peer it would miss
    most of these windows.
    """

    def __init__(self, seen: Callable[[], None]) -> None:
        self._seen = seen
        self._socket: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Begin to watch. Does nothing where the kernel does not report it."""
        family = getattr(socket, "AF_NETLINK", None)
        if family is None:
            return
        try:
            self._socket = socket.socket(family, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
            self._socket.bind((0, NETLINK_GROUPS))
        except OSError:  # in a sandbox, or not Linux's
            self.close()
            return
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._read)

    def close(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _read(self) -> None:
        assert self._socket is not None
        try:
            is_news = has_network_news(os.read(self._socket.fileno(), NETLINK_BYTES))
        except OSError:  # more was reported than the buffer holds
            is_news = True
        if is_news and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SIGN_PAUSE_S, self._tell)

    def _tell(self) -> None:
        self._timer = None
        self._seen()
