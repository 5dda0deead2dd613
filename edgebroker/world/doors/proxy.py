"""A PROXY header in front of everything else: the client behind it is not known before it is read."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from typing import Any

from edgebridge.frontend.entrance import Certificate
from edgebroker.hostport import hostport
from edgebroker.limits import CONNECT_TIMEOUT_S
from edgebroker.world.doors.layer import Layer
from edgebroker.world.doors.proxyheader import HeaderError, ProxyHeader, parse
from edgebroker.world.doors.refusals import Refusals, Turned
from edgebroker.world.reactor import Door
from edgebroker.world.settings.listener import ListenerSettings
from edgebroker.world.stream import Transport


class ProxyLayer(Layer):
    """Lets nobody up before it knows for whom the proxy speaks, or if the terms are others by then."""

    __slots__ = ("_alarm", "_head", "_header", "_holds", "_is_over", "_label", "_refusals", "_settings")

    def __init__(
        self,
        above: Door | Layer,
        settings: ListenerSettings,
        label: str,
        refusals: Refusals,
        holds: Callable[[], bool],
    ) -> None:
        """*label* is the listener's, for people.  holds: whether what is above is still what the listener wants."""
        super().__init__(above)
        self._holds = holds
        self._settings = settings
        self._label = label
        self._refusals = refusals
        self._head = b""
        self._header: ProxyHeader | None = None
        self._is_over = False
        self._alarm: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:
        """A proxy dialled, or somebody who says so."""
        self.below = transport
        if self._is_trusted():
            self._alarm = asyncio.get_running_loop().call_later(CONNECT_TIMEOUT_S, self._too_slow)
        else:
            self._refuse(Turned.PROXY_SOURCE, "proxy_sources does not name it")

    def data_received(self, data: bytes) -> None:
        """Bytes of the header, then of the client."""
        if self._header is not None:
            self.above.data_received(data)
            return
        if self._is_over:
            return
        self._head += data
        try:
            self._header = parse(self._head)
        except HeaderError as error:
            self._refuse(Turned.PROXY_HEADER, str(error))
            return
        if self._header is not None and not self._holds():
            self._header = None
            self._refuse(Turned.PROXY_HEADER, "it came late, and other terms hold at this listener now")
        elif self._header is not None:
            rest, self._head = self._head[self._header.size :], b""
            self._introduce(self._header)
            if rest:
                self.above.data_received(rest)

    def pause_writing(self) -> None:
        if self._header is not None:
            self.above.pause_writing()

    def resume_writing(self) -> None:
        if self._header is not None:
            self.above.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed, by whichever side."""
        self._forget_alarm()
        if self._header is not None:
            super().connection_lost(exc)

    def get_extra_info(self, name: str) -> Any:
        """As of a transport; the address is the client's."""
        if name == "peername" and self._header is not None and self._header.host:
            return self._header.host, self._header.port
        return self.below.get_extra_info(name)

    # -- inside -------------------------------------------------------------------------------------------------

    def _is_trusted(self) -> bool:
        if self._settings.path is not None:
            return True  # the mode of the file says who may
        peer = self.below.get_extra_info("peername")
        if not peer:
            return False  # it has gone already, and cannot say who it was
        address: Any = ipaddress.ip_address(peer[0].partition("%")[0])
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self._settings.proxy_sources)

    def _introduce(self, header: ProxyHeader) -> None:
        self._forget_alarm()
        self.above.connection_made(self)
        if header.common_name:
            self.door.connection.certificate = Certificate(header.common_name)

    def _too_slow(self) -> None:
        self._refuse(Turned.PROXY_HEADER, f"no header in {CONNECT_TIMEOUT_S} s")

    def _refuse(self, cause: Turned, why: str) -> None:
        self._is_over = True
        self._forget_alarm()
        peer = self.below.get_extra_info("peername")
        self._refusals.note(cause, self._label, hostport(*peer[:2]) if peer else "?", why)
        self.below.abort()

    def _forget_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
