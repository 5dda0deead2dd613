"""The connection of a bridge to its remote: addresses, TLS and WebSocket, as the settings ask for.

`TeardownAttempt` ends the session of a removed bridge at the remote: one attempt, for at most 30 s.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

from edgebridge.bridge.handshake import SessionTeardown
from edgebridge.bridge.options import BridgeOptions
from edgebroker.dataclasses import dataclass
from edgebroker.limits import KIB
from edgebroker.names import Address
from edgebroker.runtime.peers.connection import DialError, dial, reason_of
from edgebroker.runtime.private_files import FileUnreadable, read_bytes, read_setting_file
from edgebroker.runtime.settings.bridge_section import BridgeSettings
from edgebroker.runtime.settings.problems import Problem, ProblemCollector, SettingsRefused

if TYPE_CHECKING:
    import ssl

    from edgebroker.runtime.bridges.websocket import WebSocketTunnel

WRITE_BYTES: Final = 64 * KIB
"""Write buffer above which the remote counts as full: more messages stay in the session, where they are bounded and
counted.
"""
PIECE_BYTES: Final = 4 * KIB
"""Input handled in one turn. One read may bring 256 KiB, which are 15,000 small messages: 400 ms in which no other
client is served.
"""


class BridgeConnectionCallbacks(Protocol):
    """Receives the events of a `BridgeConnection`."""

    def dial_started(self, index: int) -> None:
        """Called before the address number *index* is dialled."""

    def socket_opened(self, connection: BridgeConnection) -> None:
        """Called when the socket is connected and the WebSocket handshake is under way."""

    def connection_made(self, connection: BridgeConnection) -> None:
        """Called when MQTT packets can be sent."""

    def data_received(self, connection: BridgeConnection, data: bytes) -> None:
        """Called with bytes from the remote."""

    def flow_changed(self, connection: BridgeConnection, is_full: bool) -> None:
        """Called when the write buffer is full, or has room again."""

    def connection_lost(self, connection: BridgeConnection, error: Exception | None) -> None:
        """Called when the connection has ended; *error* is None if it was closed without one."""


class BridgeConnection(asyncio.Protocol):
    """One socket from dialling to its end, with or without a WebSocket on it."""

    def __init__(self, callbacks: BridgeConnectionCallbacks, tunnel: WebSocketTunnel | None = None) -> None:
        self.transport: asyncio.Transport
        self._callbacks = callbacks
        self._tunnel = tunnel
        self._error: Exception | None = None
        self._unread = bytearray()  # received, and not delivered yet
        self._is_reading_allowed = True  # by the owner of the connection
        self._is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Starts the WebSocket handshake, if there is one."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_BYTES)
        if self._tunnel is None:
            self._callbacks.connection_made(self)
        else:
            self.transport.write(self._tunnel.opening_request())
            self._callbacks.socket_opened(self)

    def data_received(self, data: bytes) -> None:
        """Decodes WebSocket frames, if there are any, and delivers the bytes of MQTT."""
        tunnel = self._tunnel
        if tunnel is None:
            self._deliver(data)
            return
        was_open = tunnel.is_open
        received, replies = tunnel.feed(data)
        if replies:
            self.transport.write(replies)
        if tunnel.is_open and not was_open:
            self._callbacks.connection_made(self)
        for message in received:
            self._deliver(message)
        if tunnel.failure is not None:
            self._error = tunnel.failure
            self.transport.abort()

    def _deliver(self, data: bytes) -> None:
        """Delivers *data*, in pieces if it is long: reading pauses until the last piece is delivered."""
        if self._unread:
            self._unread += data
        elif len(data) <= PIECE_BYTES:
            self._callbacks.data_received(self, data)
        else:
            self._unread += data
            self._update_reading()
            self._deliver_piece()

    def _deliver_piece(self) -> None:
        """Delivers the next piece."""
        if not self._unread:  # closed meanwhile
            return
        piece = bytes(self._unread[:PIECE_BYTES])
        del self._unread[:PIECE_BYTES]
        if self._unread:
            asyncio.get_running_loop().call_soon(self._deliver_piece)
        self._callbacks.data_received(self, piece)
        if self._unread:
            return
        if self._is_closed:
            self._callbacks.connection_lost(self, self._error)
        else:
            self._update_reading()

    def pause_writing(self) -> None:
        """Reports that the write buffer is full."""
        self._callbacks.flow_changed(self, True)

    def resume_writing(self) -> None:
        """Reports that the write buffer has room again."""
        self._callbacks.flow_changed(self, False)

    def connection_lost(self, exc: Exception | None) -> None:
        """Reports the end of the connection, after the last piece of input."""
        self._is_closed = True
        self._error = self._error or exc
        if not self._unread:  # otherwise after the last piece
            self._callbacks.connection_lost(self, self._error)

    def write(self, packets: list[bytes]) -> None:
        """Sends *packets*."""
        if self._is_closed or self._error is not None:
            return
        data = packets[0] if len(packets) == 1 else b"".join(packets)
        self.transport.write(data if self._tunnel is None else self._tunnel.encode(data))

    def close(self) -> None:
        """Closes the connection after the write buffer is empty. Input that was not delivered is dropped."""
        self._unread.clear()
        if self._is_closed:
            return
        if self._tunnel is not None:
            self.transport.write(self._tunnel.closing_frame())
        self.transport.close()

    def allow_reading(self, is_allowed: bool) -> None:
        """Resumes reading, or pauses it."""
        self._is_reading_allowed = is_allowed
        self._update_reading()

    def _update_reading(self) -> None:
        if self.transport.is_closing():
            return
        if self._is_reading_allowed and not self._unread:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()


DEFAULT_PORTS: Final = (80, 443)


@dataclass(frozen=True, slots=True)
class DialTarget:
    """The addresses of a remote and how to connect to them."""

    addresses: tuple[Address, ...]
    context: ssl.SSLContext | None = None
    server_name: str | None = None
    websocket_path: str | None = None

    async def dial(self, callbacks: BridgeConnectionCallbacks, first: int) -> None:
        """Connects *callbacks* to the first address that answers, beginning with number *first*.

        Raises DialError if none answers.
        """
        reasons: list[str] = []
        for offset in range(len(self.addresses)):
            index = (first + offset) % len(self.addresses)
            address = self.addresses[index]
            callbacks.dial_started(index)
            tunnel = self._tunnel(address)
            name = self.server_name or address.host
            try:
                await dial([address], partial(BridgeConnection, callbacks, tunnel), self.context, server_name=name)
            except DialError as error:
                reasons.append(str(error))
            else:
                return
        callbacks.dial_started(first)
        raise DialError("; ".join(reasons))

    def _tunnel(self, address: Address) -> WebSocketTunnel | None:
        if self.websocket_path is None:
            return None
        from edgebroker.runtime.bridges.websocket import WebSocketTunnel

        authority = str(address)  # an IPv6 address stands in brackets (RFC 7230 section 5.4)
        return WebSocketTunnel(
            authority.rpartition(":")[0] if address.port in DEFAULT_PORTS else authority, self.websocket_path
        )


def dial_target_of(settings: BridgeSettings) -> DialTarget:
    """Reads the TLS files that *settings* name. Raises SettingsRefused."""
    addresses = tuple(Address.parse(one) for one in settings.addresses)
    path = settings.websocket_path if settings.protocol == "websocket" else None
    return DialTarget(addresses, _context(settings), settings.tls_server_name, path)


def load_password(settings: BridgeSettings) -> bytes | None:
    """Returns the first line of the password file, None if *settings* name none. Raises SettingsRefused."""
    file = settings.password_file
    if file is None:
        return None
    text = read_setting_file(file, "bridge.password_file", "its first line is to be the password")
    return text.partition("\n")[0].rstrip("\r").encode()


def _context(settings: BridgeSettings) -> ssl.SSLContext | None:
    if not settings.is_tls:
        return None
    import ssl  # 4 MiB, only for those who use TLS

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    problems: list[Problem] = []
    if settings.tls_ca is None:
        context.load_default_certs()
    else:
        with ProblemCollector(problems):
            _load_authorities(context, settings.tls_ca)
    if settings.tls_certificate is not None and settings.tls_key is not None:
        with ProblemCollector(problems):
            _load_certificate_chain(context, settings.tls_certificate, settings.tls_key)
    if problems:
        raise SettingsRefused(problems)
    return context


def _load_authorities(context: ssl.SSLContext, path: Path) -> None:
    remedy = "it must hold certificates in PEM"
    if problems := _unreadable(path, "tls_ca", remedy):
        raise SettingsRefused(problems)
    try:
        context.load_verify_locations(path)
    except OSError as error:  # OpenSSL's errors are OSErrors too
        raise SettingsRefused([_unusable(path, "tls_ca", error, remedy)]) from error


def _load_certificate_chain(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    remedy = "name a certificate and its private key, in PEM and without password"
    # OpenSSL does not say which of the two is missing.
    if problems := _unreadable(certificate, "tls_certificate", remedy) + _unreadable(key, "tls_key", remedy):
        raise SettingsRefused(problems)
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")
    except OSError as error:
        raise SettingsRefused([_unusable(certificate, "tls_certificate", error, remedy)]) from error


def _unreadable(path: Path, key: str, remedy: str) -> list[Problem]:
    try:
        read_bytes(path)
    except FileUnreadable as error:
        return [replace(error.problem, key=f"bridge.{key}", mend=remedy)]
    return []


def _unusable(path: Path, key: str, error: OSError, remedy: str) -> Problem:
    return Problem(str(path), 0, f"bridge.{key}", f"cannot be used: {reason_of(error)}", remedy)


TEARDOWN_S: Final = 30.0
"""Time for the whole attempt. A remote that is offline keeps the session after that, and the operator's log says so."""


class TeardownAttempt:
    """Connects once to end a session at the remote."""

    def __init__(self, options: BridgeOptions, dial_target: DialTarget, index: int) -> None:
        """*index*: the number of the address to dial first."""
        self._teardown = SessionTeardown(options)
        self._dial_target = dial_target
        self._address_index = index
        self._connection: BridgeConnection | None = None
        self._result: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run(self) -> str:
        """Returns an empty text if the session has ended, otherwise why it has not."""
        try:
            async with asyncio.timeout(TEARDOWN_S):
                await self._dial_target.dial(self, self._address_index)
                return await self._result
        except TimeoutError:
            return f"no answer within {TEARDOWN_S:g} s"
        except DialError as error:
            return str(error)
        finally:
            if self._connection is not None:
                self._connection.close()

    def dial_started(self, index: int) -> None:
        """Does nothing: the attempt does not remember the address."""

    def socket_opened(self, connection: BridgeConnection) -> None:
        """Records the connection, so that `run` closes it."""
        self._connection = connection

    def connection_made(self, connection: BridgeConnection) -> None:
        """Sends CONNECT."""
        self._connection = connection
        connection.write([self._teardown.connect_packet()])

    def data_received(self, connection: BridgeConnection, data: bytes) -> None:
        """Answers CONNACK."""
        if reply := self._teardown.receive(data):
            connection.write([reply])
        if self._teardown.is_over:
            self._finish(self._teardown.reason)

    def flow_changed(self, connection: BridgeConnection, is_full: bool) -> None:
        """Does nothing: two packets fit into every buffer."""

    def connection_lost(self, connection: BridgeConnection, error: Exception | None) -> None:
        """Reports why the attempt failed."""
        self._finish("the remote closed the connection" if error is None else reason_of(error))

    def _finish(self, reason: str) -> None:
        if not self._result.done():
            self._result.set_result(reason)
