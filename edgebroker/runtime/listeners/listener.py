"""One listener: its TCP or Unix sockets, the settings that new clients get, and the number of its connections."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
import stat
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.options import ListenerContext
from edgebroker.errors import CannotListen
from edgebroker.names import hostport
from edgebroker.runtime.listeners.layer import ConnectionRefusalCause, ConnectionRefusals, Layer
from edgebroker.runtime.loop.reactor import ClientProtocol, Reactor
from edgebroker.runtime.loop.stream import SocketPoller, SocketStream, StreamProtocol, Transport
from edgebroker.runtime.settings.sections import ListenerSettings

if TYPE_CHECKING:
    from edgebroker.runtime.listeners.tls import ListenerTls


def describe_bind_error(address: str, error: OSError | UnicodeError, option: str) -> str:
    """Returns a message for people. *address*: what could not be bound; *option*: what chooses another port.

    A UnicodeError means that the host name has an empty or too long label, so that the resolver was not asked.
    """
    if isinstance(error, socket.gaierror | UnicodeError):
        return f"cannot listen on {address}: no such host"
    reason = error.strerror or str(error)
    if error.errno == errno.EADDRINUSE:
        reason = f"the port is in use; another broker? choose one with {option}"
    elif error.errno == errno.EADDRNOTAVAIL:
        reason = "this machine has no such address, or has it not yet; 0.0.0.0 stands for all that it has"
    elif error.errno == errno.EACCES:
        reason = f"permission denied; ports below 1024 want root or CAP_NET_BIND_SERVICE: choose one with {option}"
    return f"cannot listen on {address}: {reason}"


def bind_unix_socket(path: Path, mode: int, backlog: int) -> socket.socket:
    """Returns a listening socket at *path*. A file that an earlier broker left is replaced. Raises CannotListen.

    The socket gets its mode under another name, so that no client can connect before.
    """
    _check_path_free(path)
    new = path.with_name(f"{path.name}.new")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with suppress(FileNotFoundError):
            new.unlink()
        listening.bind(str(new))
        new.chmod(mode)
        listening.listen(backlog)
        listening.setblocking(False)
        new.rename(path)
    except OSError as error:
        listening.close()
        raise CannotListen(f"cannot listen on {path}: {error.strerror}") from error
    return listening


def remove_unix_socket(path: Path, inode: int) -> None:
    """Removes the file at *path*, unless it is another one by now."""
    with suppress(OSError):
        if path.lstat().st_ino == inode:
            path.unlink()


def unix_peer_name(connected: socket.socket) -> str:
    """Returns the user and process of the peer, as far as the system reports them."""
    if not hasattr(socket, "SO_PEERCRED"):
        return "unix socket"
    pid, user, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return f"unix:uid={user},pid={pid}"


def _check_path_free(path: Path) -> None:
    """Checks that *path* does not exist, or is a socket on which nobody listens. Raises CannotListen."""
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotListen(f"cannot listen on {path}: {error.strerror}") from error
    if not is_socket:
        raise CannotListen(f"cannot listen on {path}: there is a file that is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        code = probe.connect_ex(str(path))
    if code not in (errno.ECONNREFUSED, errno.ENOENT):
        why = "the socket is in use; another broker?" if code in (0, errno.EAGAIN) else os.strerror(code)
        raise CannotListen(f"cannot listen on {path}: {why}")


BACKLOG: Final = 1_024  # pending connections while we are busy: a site's worth of devices after a power cut
RETRY_S: Final = 1.0  # after the system had no resources for another socket


class Acceptor:
    """Accepts connections on *sockets*, and gives each the protocol that *stack* makes."""

    def __init__(
        self,
        sockets: Iterable[socket.socket],
        stack: Callable[[], StreamProtocol],
        poller: SocketPoller,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.sockets = list(sockets)
        self._stack = stack
        self._poller = poller
        self._loop = loop
        for listening in self.sockets:
            self._listen(listening)

    def set_port_shared(self, is_shared: bool) -> None:
        """Sets whether another socket of ours may listen at the same port."""
        for listening in self.sockets:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, is_shared)

    def close(self) -> None:
        """Closes the listening sockets; connections stay."""
        for listening in self.sockets:
            self._poller.listen(listening.fileno(), None)
            listening.close()
        self.sockets = []

    def _listen(self, listening: socket.socket) -> None:
        if listening in self.sockets:  # otherwise it was closed during the pause
            try:
                self._poller.listen(listening.fileno(), lambda: self._on_readable(listening))
            except OSError as error:  # the poller has no room for another socket
                self._retry_later(listening, error)

    def _on_readable(self, listening: socket.socket) -> SocketStream | None:
        try:
            return self._accept(listening)
        except Exception as error:
            self._loop.call_exception_handler({"message": "edgebroker: somebody could not come in", "exception": error})
            return None

    def _accept(self, listening: socket.socket) -> SocketStream | None:
        try:
            connected, peer = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None
        except OSError as error:  # no descriptor or no memory is left
            self._poller.listen(listening.fileno(), None)
            self._retry_later(listening, error)
            return None
        connected.setblocking(False)
        return SocketStream(connected, self._poller, self._stack(), self._loop, peer)

    def _retry_later(self, listening: socket.socket, error: OSError) -> None:
        self._loop.call_exception_handler({"message": "edgebroker: nobody can come in now", "exception": error})
        self._loop.call_later(RETRY_S, self._listen, listening)


async def open_sockets(host: str, port: int, is_shared: bool = False) -> list[socket.socket]:
    """Returns a listening socket for each address of *host*; empty: all addresses of this machine.

    *is_shared*: an `Acceptor` with the same port is about to be closed. Raises OSError; then all sockets are closed.
    """
    getaddrinfo, stream, flags = socket.getaddrinfo, socket.SOCK_STREAM, socket.AI_PASSIVE
    try:
        # As bytes: the check of a str for IDNA loads tables of 0.3 MiB.
        addresses = getaddrinfo(host.encode() or None, port, type=stream, flags=flags | socket.AI_NUMERICHOST)
    except socket.gaierror:  # a host name: its lookup may use the network, so it must not block the loop
        addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=stream, flags=flags)
    opened: list[socket.socket] = []
    try:
        for family, _, protocol, _, address in dict.fromkeys(addresses):
            try:
                listening = socket.socket(family, stream, protocol)
            except OSError:  # this machine does not support the address family
                continue
            opened.append(listening)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, is_shared)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # inherited by accepted sockets
            listening.setblocking(False)
            listening.bind(address)
            listening.listen(BACKLOG)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, False)
        if not opened:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    except OSError:
        for listening in opened:
            listening.close()
        raise
    return opened


DEFAULT_HOSTS: Final = ("127.0.0.1", "::1", "0.0.0.0", "::")
"""Addresses that a local client reaches without naming a host."""


class Listener:
    """Accepts clients at one address. Its other settings may change while it is open; new connections get them."""

    def __init__(self, reactor: Reactor, number: int, refusals: ConnectionRefusals) -> None:
        self.host = ""
        self.port = 0
        """The port that the system chose, if the settings have 0."""
        self.connections = 0
        self.context = ListenerContext(number=number)
        self.tls: ListenerTls | None = None
        self.settings = ListenerSettings()
        self._reactor = reactor
        self._number = number
        self._refusals = refusals
        self._acceptor: Acceptor | None = None
        self._inode = 0
        self._is_local = False  # bound to loopback addresses only

    async def open(self, settings: ListenerSettings, tls: ListenerTls | None, leaving: Sequence[Listener] = ()) -> None:
        """Starts to accept clients. Raises CannotListen.

        *leaving*: listeners at the same port that stay open until they are closed later.
        """
        if settings.path is not None:
            listening = bind_unix_socket(settings.path, int(settings.path_mode, 8), BACKLOG)
            self._inode = settings.path.lstat().st_ino
            sockets = [listening]
        else:
            acceptors = [listener._acceptor for listener in leaving if listener._acceptor is not None]
            for acceptor in acceptors:
                acceptor.set_port_shared(True)
            try:
                sockets = await open_sockets(settings.host, settings.port, bool(acceptors))
            except (OSError, UnicodeError) as error:
                raise CannotListen(describe_bind_error(settings.address, error, "--port or listener.port")) from error
            finally:
                for acceptor in acceptors:
                    acceptor.set_port_shared(False)
            # several if a host name has several addresses
            names = [listening_socket.getsockname() for listening_socket in sockets]
            self.host, self.port = names[0][:2]
            self._is_local = all(ipaddress.ip_address(name[0].partition("%")[0]).is_loopback for name in names)
        self._acceptor = Acceptor(sockets, self._stack, self._reactor.poller, asyncio.get_running_loop())
        self.settings = settings
        self.update(settings, tls)

    def update(self, settings: ListenerSettings, tls: ListenerTls | None) -> None:
        """Sets the settings for future connections. The address stays the same."""
        if settings.path is not None and settings.path_mode != self.settings.path_mode:
            with suppress(OSError):  # the file was deleted, so no client can connect
                settings.path.chmod(int(settings.path_mode, 8))
        self.settings = settings
        self.tls = tls
        self.context = ListenerContext(
            name=self.label,
            number=self._number,
            is_anonymous=settings.admits_anonymous(self._is_local),
            durability=settings.durability,
            has_tls=settings.is_tls or (None if settings.proxy_protocol else False),
            is_websocket=settings.protocol == "websocket",
        )

    @property
    def label(self) -> str:
        """Its name for people: from the settings, or its address."""
        settings = self.settings
        if settings.name is not None or settings.path is not None or not self.host:
            return settings.label
        return hostport(self.host, self.port)

    def __str__(self) -> str:
        settings = self.settings
        websocket = "WebSocket" if settings.protocol == "websocket" else ""
        how = " and ".join(filter(None, (websocket, "TLS" if settings.is_tls else "")))
        where = str(settings.path) if settings.path is not None else hostport(self.host, self.port)
        return f"{where} (MQTT 3.1.1 and 5{f' over {how}' if how else ''})"

    @property
    def hint(self) -> str:
        """Options with which Mosquitto's clients connect to this listener; empty if it needs more than an address."""
        settings = self.settings
        is_plain = settings.protocol == "mqtt" and not settings.is_tls and not settings.proxy_protocol
        if not is_plain or not self.context.is_anonymous:
            return ""
        if settings.path is not None:
            return f"--unix {settings.path}"
        return f"-p {self.port}" if self.host in DEFAULT_HOSTS else f"-h {self.host} -p {self.port}"

    def described(self) -> dict[str, Any]:
        """Returns address and protocol as JSON values."""
        settings = self.settings
        place = {"host": self.host, "port": self.port} if settings.path is None else {"path": str(settings.path)}
        return {"name": self.label, **place, "protocol": settings.protocol, "tls": settings.is_tls}

    @property
    def is_open(self) -> bool:
        """Whether it accepts clients."""
        return self._acceptor is not None

    def close(self) -> None:
        """Stops to accept clients; connections stay."""
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None
            if self.settings.path is not None:
                remove_unix_socket(self.settings.path, self._inode)

    # -- callbacks of client protocols -----------------------------------------------------------------------------

    def peer(self, transport: Transport) -> str:
        """Returns the peer's address as text."""
        name = transport.get_extra_info("peername")
        if name:
            return hostport(*name[:2])
        if self.settings.path is not None and (connected := transport.get_extra_info("socket")) is not None:
            return unix_peer_name(connected)
        return "?"

    def client_connected(self, connection: Connection) -> bool:
        """Counts a client. Returns False if the limit of connections is exceeded, and no older one gave way."""
        self.connections += 1
        most = self.settings.connections_max
        if most is None or self.connections <= most or connection.closing:
            return True
        self._reactor.frontend.close_for_newcomer(connection, self._number)
        if not connection.closing:
            return True
        self._refusals.record(ConnectionRefusalCause.FULL, self.label, connection.peer, f"there are {most} already")
        return False

    def client_disconnected(self) -> None:
        """Counts the end of a connection."""
        self.connections -= 1

    # -- inside -------------------------------------------------------------------------------------------------

    def _stack(self) -> StreamProtocol:
        """Returns the protocols for a new socket, the lowest one."""
        top: ClientProtocol | Layer = ClientProtocol(self._reactor, self)
        settings = self.settings
        if settings.protocol == "websocket":
            # 0.8 MiB and 15 ms, loaded when it is used
            from edgebroker.runtime.listeners.websocket import WebSocketLayer

            top = WebSocketLayer(top, settings, self._refusals, self._is_local and not settings.proxy_protocol)
        if self.tls is not None:
            from edgebroker.runtime.listeners.tls import TlsLayer

            top = TlsLayer(top, self.tls.context, self._refusals)
        if settings.proxy_protocol:
            from edgebroker.runtime.listeners.proxy import ProxyLayer

            tls = self.tls
            top = ProxyLayer(top, settings, self.label, self._refusals, lambda: self._is_unchanged(settings, tls))
        return top

    def _is_unchanged(self, settings: ListenerSettings, tls: ListenerTls | None) -> bool:
        """Whether the listener is open with the same settings: a client behind a proxy counts only from its PROXY
        header on.
        """
        return self.is_open and self.settings == settings and self.tls is tls
