"""One place where clients come in: its socket, the terms it gives them, and how many there are."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.entrance import Entrance
from edgebroker.errors import CannotListen
from edgebroker.hostport import hostport
from edgebroker.world.doors.hall import BACKLOG, Hall, listening_at
from edgebroker.world.doors.layer import Layer
from edgebroker.world.doors.nolistener import no_listener
from edgebroker.world.doors.refusals import Refusals, Turned
from edgebroker.world.doors.unixsocket import bound, peer_of, remove
from edgebroker.world.reactor import Door, Reactor
from edgebroker.world.settings.listener import ListenerSettings
from edgebroker.world.stream import Receiver, Transport

if TYPE_CHECKING:
    from edgebroker.world.doors.contexts import Tls


FOUND: Final = ("127.0.0.1", "::1", "0.0.0.0", "::")
"""Where a client on this machine looks that is told no host."""


class Listener:
    """Accepts clients at one address. Its other settings may change while it does, for those who come later."""

    def __init__(self, reactor: Reactor, number: int, refusals: Refusals) -> None:
        self.host = ""
        self.port = 0
        """What the system chose, if the settings say 0."""
        self.connections = 0
        self.entrance = Entrance(number=number)
        self.tls: Tls | None = None
        self.settings = ListenerSettings()
        self._reactor = reactor
        self._number = number
        self._refusals = refusals
        self._hall: Hall | None = None
        self._inode = 0
        self._is_local = False  # only this machine can reach its addresses

    async def open(self, settings: ListenerSettings, tls: Tls | None, leaving: Sequence[Listener] = ()) -> None:
        """Begin to accept. Raises CannotListen.

        Those of *leaving* have the same port, go on until they are closed, and are no hindrance.
        """
        if settings.path is not None:
            listening = bound(settings.path, int(settings.path_mode, 8), BACKLOG)
            self._inode = settings.path.lstat().st_ino
            sockets = [listening]
        else:
            halls = [each._hall for each in leaving if each._hall is not None]
            for hall in halls:
                hall.share(True)
            try:
                sockets = await listening_at(settings.host, settings.port, bool(halls))
            except (OSError, UnicodeError) as error:
                raise CannotListen(no_listener(settings.address, error, "--port or listener.port")) from error
            finally:
                for hall in halls:
                    hall.share(False)
            names = [one.getsockname() for one in sockets]  # several, where a name has several addresses
            self.host, self.port = names[0][:2]
            self._is_local = all(ipaddress.ip_address(name[0].partition("%")[0]).is_loopback for name in names)
        self._hall = Hall(sockets, self._stack, self._reactor.watch, asyncio.get_running_loop())
        self.settings = settings
        self.change(settings, tls)

    def change(self, settings: ListenerSettings, tls: Tls | None) -> None:
        """Whoever comes from now on finds these terms. The address is that of before."""
        if settings.path is not None and settings.path_mode != self.settings.path_mode:
            with suppress(OSError):  # somebody took the file away; then nobody comes in by it at all
                settings.path.chmod(int(settings.path_mode, 8))
        self.settings = settings
        self.tls = tls
        self.entrance = Entrance(
            name=self.label,
            number=self._number,
            is_anonymous=self._lets_strangers_in(),
            durability=settings.durability,
        )

    @property
    def label(self) -> str:
        """What people call it: its name, else its address."""
        settings = self.settings
        if settings.name is not None or settings.path is not None or not self.host:
            return settings.label
        return hostport(self.host, self.port)

    def __str__(self) -> str:
        settings = self.settings
        carrier = "WebSocket" if settings.protocol == "websocket" else ""
        how = " and ".join(filter(None, (carrier, "TLS" if settings.is_tls else "")))
        where = str(settings.path) if settings.path is not None else hostport(self.host, self.port)
        return f"{where} (MQTT 3.1.1 and 5{f' over {how}' if how else ''})"

    @property
    def hint(self) -> str:
        """The options with which Mosquitto's clients find this listener; empty if it needs more than an address."""
        settings = self.settings
        is_plain = settings.protocol == "mqtt" and not settings.is_tls and not settings.proxy_protocol
        if not is_plain or not self.entrance.is_anonymous:
            return ""
        if settings.path is not None:
            return f"--unix {settings.path}"
        return f"-p {self.port}" if self.host in FOUND else f"-h {self.host} -p {self.port}"

    def described(self) -> dict[str, Any]:
        """Where and how, for programs."""
        settings = self.settings
        place = {"host": self.host, "port": self.port} if settings.path is None else {"path": str(settings.path)}
        return {"name": self.label, **place, "protocol": settings.protocol, "tls": settings.is_tls}

    @property
    def is_open(self) -> bool:
        """Whether it accepts clients."""
        return self._hall is not None

    def close(self) -> None:
        """Accept nobody any more. Who is in stays."""
        if self._hall is not None:
            self._hall.close()
            self._hall = None
            if self.settings.path is not None:
                remove(self.settings.path, self._inode)

    # -- for doors ----------------------------------------------------------------------------------------------

    def peer(self, transport: Transport) -> str:
        """Who is at the other end."""
        name = transport.get_extra_info("peername")
        if name:
            return hostport(*name[:2])
        if self.settings.path is not None and (connected := transport.get_extra_info("socket")) is not None:
            return peer_of(connected)
        return "?"

    def came(self, connection: Connection) -> bool:
        """A client is there; whether there is room for it."""
        self.connections += 1
        most = self.settings.connections_max
        if most is None or self.connections <= most:
            return True
        self._refusals.note(Turned.FULL, self.label, connection.peer, f"there are {most} already")
        return False

    def left(self) -> None:
        """It is gone."""
        self.connections -= 1

    # -- inside -------------------------------------------------------------------------------------------------

    def _stack(self) -> Receiver:
        """What a new socket talks to."""
        top: Door | Layer = Door(self._reactor, self)
        settings = self.settings
        if settings.protocol == "websocket":
            from edgebroker.world.doors.websocket import WebSocketLayer  # 0.8 MiB, 15 ms: who uses it

            top = WebSocketLayer(top, settings, self._refusals, self._is_local and not settings.proxy_protocol)
        if self.tls is not None:
            from edgebroker.world.doors.tls import TlsLayer

            top = TlsLayer(top, self.tls.context, self._refusals)
        if settings.proxy_protocol:
            from edgebroker.world.doors.proxy import ProxyLayer

            tls = self.tls
            top = ProxyLayer(top, settings, self.label, self._refusals, lambda: self._is_as_it_was(settings, tls))
        return top

    def _is_as_it_was(self, settings: ListenerSettings, tls: Tls | None) -> bool:
        """Whether it is open, on the same terms: who is behind a proxy is here only when the header has come."""
        return self.is_open and self.settings == settings and self.tls is tls

    def _lets_strangers_in(self) -> bool:
        """Whether who names no user may come in: if nobody says, from this machine alone.

        Behind a proxy everybody seems to come from the proxy's machine, which may be ours.
        """
        settings = self.settings
        if settings.anonymous is not None:
            return settings.anonymous
        if settings.proxy_protocol:
            return False
        return settings.path is not None or self._is_local
