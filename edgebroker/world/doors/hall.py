"""Listening sockets, and who comes in by them."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Iterable
from typing import Final

from edgebroker.world.stream import Receiver, Stream, Watch

BACKLOG: Final = 1_024  # connections the kernel holds while we are busy: a site's worth of devices after a power cut
RETRY_S: Final = 1.0  # after the system had no room for another socket


class Hall:
    """Accepts whoever dials one of *sockets*, and gives it the protocol that *stack* makes."""

    def __init__(
        self,
        sockets: Iterable[socket.socket],
        stack: Callable[[], Receiver],
        watch: Watch,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.sockets = list(sockets)
        self._stack = stack
        self._watch = watch
        self._loop = loop
        for listening in self.sockets:
            self._serve(listening)

    def share(self, is_shared: bool) -> None:
        """Whether another socket of ours may listen at the port of these, until they are closed."""
        for listening in self.sockets:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, is_shared)

    def close(self) -> None:
        """Accept nobody any more. Who is in stays."""
        for listening in self.sockets:
            self._watch.listen(listening.fileno(), None)
            listening.close()
        self.sockets = []

    def _serve(self, listening: socket.socket) -> None:
        if listening in self.sockets:  # else it was closed while it paused
            try:
                self._watch.listen(listening.fileno(), lambda: self._knocked(listening))
            except OSError as error:  # the system watches no more sockets
                self._wait(listening, error)

    def _knocked(self, listening: socket.socket) -> Stream | None:
        try:
            return self._accept(listening)
        except Exception as error:
            self._loop.call_exception_handler({"message": "edgebroker: somebody could not come in", "exception": error})
            return None

    def _accept(self, listening: socket.socket) -> Stream | None:
        try:
            connected, peer = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None
        except OSError as error:  # no descriptor or no memory is left
            self._watch.listen(listening.fileno(), None)
            self._wait(listening, error)
            return None
        connected.setblocking(False)
        return Stream(connected, self._watch, self._stack(), self._loop, peer)

    def _wait(self, listening: socket.socket, error: OSError) -> None:
        self._loop.call_exception_handler({"message": "edgebroker: nobody can come in now", "exception": error})
        self._loop.call_later(RETRY_S, self._serve, listening)


async def listening_at(host: str, port: int, is_shared: bool = False) -> list[socket.socket]:
    """A listening socket for each address of *host*; empty: of this machine. Raises OSError; then there is none.

    *is_shared*: there may be a `Hall` at this port that shares it, and is about to be closed.
    """
    ask, stream, flags = socket.getaddrinfo, socket.SOCK_STREAM, socket.AI_PASSIVE
    try:
        # As bytes: to look at a text for IDNA takes tables of 0.3 MiB.
        found = ask(host.encode() or None, port, type=stream, flags=flags | socket.AI_NUMERICHOST)
    except socket.gaierror:  # a name: who knows it may be asked over the network, which takes time
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=stream, flags=flags)
    opened: list[socket.socket] = []
    try:
        for family, _, protocol, _, address in dict.fromkeys(found):
            try:
                listening = socket.socket(family, stream, protocol)
            except OSError:  # this machine has no addresses of such a family
                continue
            opened.append(listening)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, is_shared)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # for all who are accepted
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
