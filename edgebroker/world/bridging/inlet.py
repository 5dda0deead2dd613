"""The end of a bridge towards our own front end: a client without a socket, as any other to the reactor."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.entrance import Entrance
from edgebridge.session.verdict import Verdict
from edgebroker.world.reactor import Door, Reactor


class Listener(Protocol):
    """Who is at the other side of an inlet."""

    def told(self, inlet: Inlet, data: bytes) -> None:
        """Our front end says something."""

    def closed(self, inlet: Inlet) -> None:
        """Our front end has ended it."""

    def pause_reading(self, is_full: bool) -> None:
        """Our front end wants nothing more for now, or goes on."""


class Inlet:
    """A transport for a door, and the door's host. What is written to it is the front end's."""

    def __init__(self, reactor: Reactor, listener: Listener, name: str, user: str) -> None:
        self.entrance = Entrance(f"bridge {name}", -1, verdict=Verdict(user=user))
        self._listener = listener
        self._name = name
        self._reactor = reactor
        self._loop = asyncio.get_running_loop()
        self._is_closing = False
        self._waiting: list[bytes] = []
        self._is_paused = False
        self._door = Door(reactor, self)
        self._door.connection_made(self)

    @property
    def connection(self) -> Connection:
        """The front end's."""
        return self._door.connection

    # -- towards the front end ------------------------------------------------------------------------------------

    def say(self, data: bytes) -> None:
        """Hand *data* in, now or when the front end goes on reading."""
        if self._is_closing or self.connection.closing:  # nobody reads it any more, and none of it is lost unseen
            self._reactor.frontend.publishing.unread(self.connection, data)
        elif self._is_paused:
            self._waiting.append(data)
        else:
            self._door.data_received(data)

    def hold(self, is_full: bool) -> None:
        """The remote takes nothing for now: what is for it waits where its bounds are; or it goes on."""
        if is_full:
            self._door.pause_writing()
        elif not self._is_closing:
            self._door.resume_writing()

    def leave(self) -> None:
        """Nothing more from here, and nothing more to here."""
        if not self._is_closing:
            self._is_closing = True
            waiting, self._waiting = self._waiting, []
            for data in waiting:
                self._reactor.frontend.publishing.unread(self.connection, data)
            self._loop.call_soon(self._door.connection_lost, None)

    # -- the door's host ------------------------------------------------------------------------------------------

    def peer(self, transport: Any) -> str:
        """Who it is."""
        return f"bridge:{self._name}"

    def came(self, connection: Connection) -> bool:
        """There is always room; what a client may publish in a second is no matter of a bridge."""
        connection.meter = None
        return True

    def left(self) -> None:
        """Nothing to do."""

    # -- the door's transport -------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """The front end says *data*."""
        if not self._is_closing:
            self._listener.told(self, data)

    def close(self) -> None:
        """The front end has said its last."""
        if not self._is_closing:
            self.leave()
            self._loop.call_soon(self._listener.closed, self)

    abort = close

    def pause_reading(self) -> None:
        """The front end wants a pause."""
        if not self._is_paused:
            self._is_paused = True
            self._listener.pause_reading(True)

    def resume_reading(self) -> None:
        """It goes on."""
        self._is_paused = False
        while self._waiting and not (self._is_paused or self.connection.closing):
            self._door.data_received(self._waiting.pop(0))
        if not self._is_paused:
            self._listener.pause_reading(False)

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
