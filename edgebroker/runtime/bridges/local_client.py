"""The local client of a bridge: a client of the gateway's own front end, without a socket."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.options import ListenerContext
from edgebridge.session.credentials import AuthenticationResult
from edgebroker.runtime.loop.reactor import ClientProtocol, Reactor


class LocalClientCallbacks(Protocol):
    """Receives the events of a `LocalClient`."""

    def local_data_received(self, local_client: LocalClient, data: bytes) -> None:
        """Called with bytes that the front end sends to the local client."""

    def local_closed(self, local_client: LocalClient) -> None:
        """Called when the front end has closed the local client."""

    def pause_reading(self, is_full: bool) -> None:
        """Called when the front end stops reading from the local client, or resumes."""


class LocalClient:
    """Acts as the transport and as the listener of a `ClientProtocol`, in place of a socket."""

    def __init__(self, reactor: Reactor, callbacks: LocalClientCallbacks, name: str, user: str) -> None:
        self.context = ListenerContext(f"bridge {name}", -1, verdict=AuthenticationResult(user=user))
        self._callbacks = callbacks
        self._name = name
        self._reactor = reactor
        self._loop = asyncio.get_running_loop()
        self._is_closing = False
        self._pending: list[bytes] = []
        self._is_reading_paused = False
        self._protocol = ClientProtocol(reactor, self)
        self._protocol.connection_made(self)

    @property
    def connection(self) -> Connection:
        """The front end's connection of this client."""
        return self._protocol.connection

    # -- towards the front end -----------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Passes *data* to the front end, now or when it resumes reading."""
        if self._is_closing or self.connection.closing:  # nobody reads it any more: its messages are counted as dropped
            self._reactor.frontend.publish_handler.count_unread(self.connection, data)
        elif self._is_reading_paused:
            self._pending.append(data)
        else:
            self._protocol.data_received(data)

    def set_paused(self, is_full: bool) -> None:
        """Stops the front end's writes, so that messages wait in the bounded session, or resumes them."""
        if is_full:
            self._protocol.pause_writing()
        elif not self._is_closing:
            self._protocol.resume_writing()

    def disconnect(self) -> None:
        """Ends the client. Bytes that the front end has not read are counted as dropped."""
        if not self._is_closing:
            self._is_closing = True
            pending, self._pending = self._pending, []
            for data in pending:
                self._reactor.frontend.publish_handler.count_unread(self.connection, data)
            self._loop.call_soon(self._protocol.connection_lost, None)

    # -- the listener of the protocol ----------------------------------------------------------------------------

    def peer(self, transport: Any) -> str:
        """Returns the peer name that logs show."""
        return f"bridge:{self._name}"

    def client_connected(self, connection: Connection) -> bool:
        """Admits the client always, without a limit on its rate of publications."""
        connection.meter = None
        return True

    def client_disconnected(self) -> None:
        """Does nothing: no listener counts this client."""

    # -- the transport of the protocol ---------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Passes *data* of the front end to the bridge."""
        if not self._is_closing:
            self._callbacks.local_data_received(self, data)

    def close(self) -> None:
        """Closes the client, at the front end's wish."""
        if not self._is_closing:
            self.disconnect()
            self._loop.call_soon(self._callbacks.local_closed, self)

    abort = close

    def pause_reading(self) -> None:
        """Stops passing data to the front end."""
        if not self._is_reading_paused:
            self._is_reading_paused = True
            self._callbacks.pause_reading(True)

    def resume_reading(self) -> None:
        """Passes the data that waits, then resumes."""
        self._is_reading_paused = False
        while self._pending and not (self._is_reading_paused or self.connection.closing):
            self._protocol.data_received(self._pending.pop(0))
        if not self._is_reading_paused:
            self._callbacks.pause_reading(False)

    def is_closing(self) -> bool:
        """Whether the client is closed."""
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        """Returns 0: data is passed on at once."""
        return 0

    def set_write_buffer_limits(self, high: int) -> None:
        """Does nothing: nothing is buffered."""

    def get_extra_info(self, name: str) -> Any:
        """Returns None: there is no socket."""
        return None
