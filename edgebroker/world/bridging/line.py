"""The connection to a remote."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol, cast

from edgebroker.limits import KIB

if TYPE_CHECKING:
    from edgebroker.world.bridging.websocket import Tunnel

WRITE_BYTES: Final = 64 * KIB
"""Above this the remote counts as full: what is for it waits in the session, where it is bounded and counted."""
PIECE_BYTES: Final = 4 * KIB
"""Handled in one turn: 256 KiB, as one read may bring, are 15,000 small messages, 400 ms in which nobody else is
served."""


class Host(Protocol):
    """Whose line it is."""

    def tries(self, at: int) -> None:
        """The address of this number is dialled."""

    def waits(self, line: Line) -> None:
        """The socket is there; what is on it is being agreed."""

    def came(self, line: Line) -> None:
        """It is there."""

    def heard(self, line: Line, data: bytes) -> None:
        """*data* came."""

    def full(self, line: Line, is_full: bool) -> None:
        """The remote takes nothing for now, or goes on."""

    def gone(self, line: Line, error: Exception | None) -> None:
        """It is over, by whichever side."""


class Line(asyncio.Protocol):
    """One socket, from dialling to its end, with or without a WebSocket on it."""

    def __init__(self, host: Host, tunnel: Tunnel | None = None) -> None:
        self.transport: asyncio.Transport
        self._host = host
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
            self._host.came(self)
        else:
            self.transport.write(self._tunnel.begin())
            self._host.waits(self)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        tunnel = self._tunnel
        if tunnel is None:
            self._hear(data)
            return
        was_open = tunnel.is_open
        taken, answers = tunnel.take(data)
        if answers:
            self.transport.write(answers)
        if tunnel.is_open and not was_open:
            self._host.came(self)
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
            self._host.heard(self, data)
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
        self._host.heard(self, piece)
        if self._rest:
            return
        if self._is_over:
            self._host.gone(self, self._failed)
        else:
            self._regulate()

    def pause_writing(self) -> None:
        """The remote, or the way to it, takes nothing for now."""
        self._host.full(self, True)

    def resume_writing(self) -> None:
        """It goes on."""
        self._host.full(self, False)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over, by whichever side."""
        self._is_over = True
        self._failed = self._failed or exc
        if not self._rest:  # else what it said before comes first
            self._host.gone(self, self._failed)

    def write(self, packets: list[bytes]) -> None:
        """Say *packets*."""
        if self._is_over or self._failed is not None:
            return
        data = packets[0] if len(packets) == 1 else b"".join(packets)
        self.transport.write(data if self._tunnel is None else self._tunnel.wrap(data))

    def close(self) -> None:
        """Write what there is, then close. What it said and was not handed on is dropped."""
        self._rest.clear()
        if self._is_over:
            return
        if self._tunnel is not None:
            self.transport.write(self._tunnel.end())
        self.transport.close()

    def read(self, goes_on: bool) -> None:
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
