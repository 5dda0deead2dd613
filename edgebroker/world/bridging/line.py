"""The connection to a remote."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, cast

from edgebroker.limits import KIB

WRITE_BYTES: Final = 64 * KIB
"""Above this the remote counts as full: what is for it waits in the session, where it is bounded and counted."""


class Host(Protocol):
    """Whose line it is."""

    def came(self, line: Line) -> None:
        """It is there."""

    def heard(self, line: Line, data: bytes) -> None:
        """*data* came."""

    def full(self, line: Line, is_full: bool) -> None:
        """The remote takes nothing for now, or goes on."""

    def gone(self, line: Line, error: Exception | None) -> None:
        """It is over, by whichever side."""


class Line(asyncio.Protocol):
    """One socket, from dialling to its end."""

    def __init__(self, host: Host) -> None:
        self.transport: asyncio.Transport
        self._host = host

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_BYTES)
        self._host.came(self)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self._host.heard(self, data)

    def pause_writing(self) -> None:
        """The remote, or the way to it, takes nothing for now."""
        self._host.full(self, True)

    def resume_writing(self) -> None:
        """It goes on."""
        self._host.full(self, False)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over, by whichever side."""
        self._host.gone(self, exc)

    def read(self, goes_on: bool) -> None:
        """Read, or let the remote wait."""
        if goes_on:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()
