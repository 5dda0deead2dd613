"""The local client of a bridge: a client of our own front end without a socket."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.options import ListenerContext
from edgebridge.session.credentials import AuthenticationResult
from edgebroker.runtime.loop.reactor import ClientProtocol, Reactor


class LocalClientCallbacks(Protocol):
    """Who is at the other side of an inlet."""

    def local_data_received(self, local_client: LocalClient, data: bytes) -> None:
        """Our front end says something."""

    def local_closed(self, local_client: LocalClient) -> None:
        """Our front end has ended it."""

    def pause_reading(self, is_full: bool) -> None:
        """Our front end wants nothing more for now, or goes on."""


class LocalClient:
    """A transport for a door, and the door's host. What is written to it is the front end's."""

    def __init__(self, reactor: Reactor, listener: LocalClientCallbacks, name: str, user: str) -> None:
        self.context = ListenerContext(f"bridge {name}", -1, verdict=AuthenticationResult(user=user))
        self._callbacks = listener
        self._name = name
        self._reactor = reactor
        self._loop = asyncio.get_running_loop()
        self._is_closing = False
        self._waiting: list[bytes] = []
        self._is_paused = False
        self._protocol = ClientProtocol(reactor, self)
        self._protocol.connection_made(self)

    @property
    def connection(self) -> Connection:
        """The front end's."""
        return self._protocol.connection

    # -- towards the front end ------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Hand *data* in, now or when the front end goes on reading."""
        if self._is_closing or self.connection.closing:  # nobody reads it any more, and none of it is lost unseen
            self._reactor.frontend.publish_handler.count_unread(self.connection, data)
        elif self._is_paused:
            self._waiting.append(data)
        else:
            self._protocol.data_received(data)

    def set_paused(self, is_full: bool) -> None:
        """The remote takes nothing for now: what is for it waits where its bounds are; or it goes on."""
        if is_full:
            self._protocol.pause_writing()
        elif not self._is_closing:
            self._protocol.resume_writing()

    def disconnect(self) -> None:
        """Nothing more from here, and nothing more to here."""
        if not self._is_closing:
            self._is_closing = True
            waiting, self._waiting = self._waiting, []
            for data in waiting:
                self._reactor.frontend.publish_handler.count_unread(self.connection, data)
            self._loop.call_soon(self._protocol.connection_lost, None)

    # -- the door's host ------------------------------------------------------------------------------------------

    def peer(self, transport: Any) -> str:
        """Who it is."""
        return f"bridge:{self._name}"

    def client_connected(self, connection: Connection) -> bool:
        """There is always room; what a client may publish in a second is no matter of a bridge."""
        connection.meter = None
        return True

    def client_disconnected(self) -> None:
        """Nothing to do."""

    # -- the door's transport -------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """The front end says *data*."""
        if not self._is_closing:
            self._callbacks.local_data_received(self, data)

    def close(self) -> None:
        """The front end has said its last."""
        if not self._is_closing:
            self.disconnect()
            self._loop.call_soon(self._callbacks.local_closed, self)

    abort = close

    def pause_reading(self) -> None:
        """The front end wants a pause."""
        if not self._is_paused:
            self._is_paused = True
            self._callbacks.pause_reading(True)

    def resume_reading(self) -> None:
        """It goes on."""
        self._is_paused = False
        while self._waiting and not (self._is_paused or self.connection.closing):
            self._protocol.data_received(self._waiting.pop(0))
        if not self._is_paused:
            self._callbacks.pause_reading(False)

    def is_closing(self) -> bool:
        """Whether it is over."""
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        """What is written is taken at once."""
        return 0

    def set_write_buffer_limits(self, high: int) -> None:
        """Nothing is buffered."""

    def get_extra_info(self, name: str) -> Any:
        """There is no socket."""
        return None
