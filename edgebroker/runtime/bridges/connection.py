"""The connection of a bridge to its remote: addresses, TLS and WebSocket, as the settings say.

`TeardownAttempt` ends the session at the remote of a bridge that was removed: one attempt, for at most 30 s.
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
"""Above this the remote counts as full: what is for it waits in the session, where it is bounded and counted."""
PIECE_BYTES: Final = 4 * KIB
"""Handled in one turn: 256 KiB, as one read may bring, are 15,000 small messages, 400 ms in which nobody else is
served."""


class BridgeConnectionCallbacks(Protocol):
    """Whose line it is."""

    def dial_started(self, at: int) -> None:
        """The address of this number is dialled."""

    def socket_opened(self, line: BridgeConnection) -> None:
        """The socket is there; what is on it is being agreed."""

    def connection_made(self, line: BridgeConnection) -> None:
        """It is there."""

    def data_received(self, line: BridgeConnection, data: bytes) -> None:
        """*data* came."""

    def flow_changed(self, line: BridgeConnection, is_full: bool) -> None:
        """The remote takes nothing for now, or goes on."""

    def connection_lost(self, line: BridgeConnection, error: Exception | None) -> None:
        """It is over, by whichever side."""


class BridgeConnection(asyncio.Protocol):
    """One socket, from dialling to its end, with or without a WebSocket on it."""

    def __init__(self, host: BridgeConnectionCallbacks, tunnel: WebSocketTunnel | None = None) -> None:
        self.transport: asyncio.Transport
        self._callbacks = host
        self._tunnel = tunnel
        self._failed: Exception | None = None
        self._rest = bytearray()  # came, and waits for its turn
        self._is_wanted = True  # what the remote says, by whose line it is
        self._is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_BYTES)
        if self._tunnel is None:
            self._callbacks.connection_made(self)
        else:
            self.transport.write(self._tunnel.opening_request())
            self._callbacks.socket_opened(self)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        tunnel = self._tunnel
        if tunnel is None:
            self._hear(data)
            return
        was_open = tunnel.is_open
        taken, answers = tunnel.feed(data)
        if answers:
            self.transport.write(answers)
        if tunnel.is_open and not was_open:
            self._callbacks.connection_made(self)
        for one in taken:
            self._hear(one)
        if tunnel.failure is not None:
            self._failed = tunnel.failure
            self.transport.abort()

    def _hear(self, data: bytes) -> None:
        """Hand on *data*, in pieces if it is long: nothing more is read until the last."""
        if self._rest:
            self._rest += data
        elif len(data) <= PIECE_BYTES:
            self._callbacks.data_received(self, data)
        else:
            self._rest += data
            self._regulate()
            self._hand_on()

    def _hand_on(self) -> None:
        """The next piece."""
        if not self._rest:  # closed meanwhile
            return
        piece = bytes(self._rest[:PIECE_BYTES])
        del self._rest[:PIECE_BYTES]
        if self._rest:
            asyncio.get_running_loop().call_soon(self._hand_on)
        self._callbacks.data_received(self, piece)
        if self._rest:
            return
        if self._is_over:
            self._callbacks.connection_lost(self, self._failed)
        else:
            self._regulate()

    def pause_writing(self) -> None:
        """The remote, or the way to it, takes nothing for now."""
        self._callbacks.flow_changed(self, True)

    def resume_writing(self) -> None:
        """It goes on."""
        self._callbacks.flow_changed(self, False)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over, by whichever side."""
        self._is_over = True
        self._failed = self._failed or exc
        if not self._rest:  # else what it said before comes first
            self._callbacks.connection_lost(self, self._failed)

    def write(self, packets: list[bytes]) -> None:
        """Say *packets*."""
        if self._is_over or self._failed is not None:
            return
        data = packets[0] if len(packets) == 1 else b"".join(packets)
        self.transport.write(data if self._tunnel is None else self._tunnel.encode(data))

    def close(self) -> None:
        """Write what there is, then close. What it said and was not handed on is dropped."""
        self._rest.clear()
        if self._is_over:
            return
        if self._tunnel is not None:
            self.transport.write(self._tunnel.closing_frame())
        self.transport.close()

    def allow_reading(self, goes_on: bool) -> None:
        """Read, or let the remote wait."""
        self._is_wanted = goes_on
        self._regulate()

    def _regulate(self) -> None:
        if self.transport.is_closing():
            return
        if self._is_wanted and not self._rest:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()


USUAL_PORTS: Final = (80, 443)


@dataclass(frozen=True, slots=True)
class DialTarget:
    """How to get there."""

    addresses: tuple[Address, ...]
    context: ssl.SSLContext | None = None
    server_name: str | None = None
    websocket_path: str | None = None

    async def dial(self, host: BridgeConnectionCallbacks, first: int) -> None:
        """Give *host* a line to the first address that answers, beginning with number *first*.

        Raises NoAnswer, if all have been tried.
        """
        reasons: list[str] = []
        for turn in range(len(self.addresses)):
            at = (first + turn) % len(self.addresses)
            address = self.addresses[at]
            host.dial_started(at)
            tunnel = self._tunnel(address)
            name = self.server_name or address.host
            try:
                await dial([address], partial(BridgeConnection, host, tunnel), self.context, server_name=name)
            except DialError as error:
                reasons.append(str(error))
            else:
                return
        host.dial_started(first)
        raise DialError("; ".join(reasons))

    def _tunnel(self, address: Address) -> WebSocketTunnel | None:
        if self.websocket_path is None:
            return None
        from edgebroker.runtime.bridges.websocket import WebSocketTunnel

        host = str(address)  # an IPv6 address stands in brackets (RFC 7230 section 5.4)
        return WebSocketTunnel(host.rpartition(":")[0] if address.port in USUAL_PORTS else host, self.websocket_path)


def dial_target_of(settings: BridgeSettings) -> DialTarget:
    """Read the files that *settings* name. Raises SettingsRefused."""
    addresses = tuple(Address.parse(one) for one in settings.addresses)
    path = settings.websocket_path if settings.protocol == "websocket" else None
    return DialTarget(addresses, _context(settings), settings.tls_server_name, path)


def load_password(settings: BridgeSettings) -> bytes | None:
    """The first line of its file, if it names one. Raises SettingsRefused."""
    file = settings.password_file
    if file is None:
        return None
    text = read_setting_file(file, "bridge.password_file", "its first line is to be the password")
    return text.partition("\n")[0].rstrip("\r").encode()


def _context(settings: BridgeSettings) -> ssl.SSLContext | None:
    if not settings.is_tls:
        return None
    import ssl  # 4 MiB, for who speaks TLS

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
    mend = "it must hold certificates in PEM"
    if unread := _unreadable(path, "tls_ca", mend):
        raise SettingsRefused(unread)
    try:
        context.load_verify_locations(path)
    except OSError as error:  # as those of OpenSSL are
        raise SettingsRefused([_unusable(path, "tls_ca", error, mend)]) from error


def _load_certificate_chain(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    mend = "name a certificate and its private key, in PEM and without password"
    # OpenSSL does not say which of the two is missing.
    if unread := _unreadable(certificate, "tls_certificate", mend) + _unreadable(key, "tls_key", mend):
        raise SettingsRefused(unread)
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")
    except OSError as error:
        raise SettingsRefused([_unusable(certificate, "tls_certificate", error, mend)]) from error


def _unreadable(path: Path, key: str, mend: str) -> list[Problem]:
    try:
        read_bytes(path)
    except FileUnreadable as error:
        return [replace(error.problem, key=f"bridge.{key}", mend=mend)]
    return []


def _unusable(path: Path, key: str, error: OSError, mend: str) -> Problem:
    return Problem(str(path), 0, f"bridge.{key}", f"cannot be used: {reason_of(error)}", mend)


TEARDOWN_S: Final = 30.0
"""For all of it. A remote that is away then keeps the session; an operator is told."""


class TeardownAttempt:
    """A host of one line."""

    def __init__(self, terms: BridgeOptions, road: DialTarget, at: int) -> None:
        """*at*: the number of the address to dial first."""
        self._teardown = SessionTeardown(terms)
        self._dial_target = road
        self._at = at
        self._connection: BridgeConnection | None = None
        self._over: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run(self) -> str:
        """Why the session is still there; empty: it is not."""
        try:
            async with asyncio.timeout(TEARDOWN_S):
                await self._dial_target.dial(self, self._at)
                return await self._over
        except TimeoutError:
            return f"no answer within {TEARDOWN_S:g} s"
        except DialError as error:
            return str(error)
        finally:
            if self._connection is not None:
                self._connection.close()

    def dial_started(self, at: int) -> None:
        """Any of its addresses will do."""

    def socket_opened(self, line: BridgeConnection) -> None:
        """There is a socket."""
        self._connection = line

    def connection_made(self, line: BridgeConnection) -> None:
        """The remote is there."""
        self._connection = line
        line.write([self._teardown.connect_packet()])

    def data_received(self, line: BridgeConnection, data: bytes) -> None:
        """It answers."""
        if answer := self._teardown.receive(data):
            line.write([answer])
        if self._teardown.is_over:
            self._end(self._teardown.reason)

    def flow_changed(self, line: BridgeConnection, is_full: bool) -> None:
        """Two packets fit anywhere."""

    def connection_lost(self, line: BridgeConnection, error: Exception | None) -> None:
        """It hung up."""
        self._end("the remote closed the connection" if error is None else reason_of(error))

    def _end(self, reason: str) -> None:
        if not self._over.done():
            self._over.set_result(reason)
