"""Ends the session of a bridge at its remote when the bridge is no more: one attempt, for a while."""

from __future__ import annotations

import asyncio
from typing import Final

from edgebridge.upstream.farewell import Farewell
from edgebridge.upstream.terms import Terms
from edgebroker.world.bridging.line import Line
from edgebroker.world.bridging.road import Road
from edgebroker.world.peering.dialler import NoAnswer, reason_of

LEAVE_S: Final = 30.0
"""For all of it. A remote that is away then keeps the session; an operator is told."""


class Leaving:
    """A host of one line."""

    def __init__(self, terms: Terms, road: Road, at: int) -> None:
        """*at*: the number of the address to dial first."""
        self._farewell = Farewell(terms)
        self._road = road
        self._at = at
        self._line: Line | None = None
        self._over: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def leave(self) -> str:
        """Why the session is still there; empty: it is not."""
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._road.dial(self, self._at)
                return await self._over
        except TimeoutError:
            return f"no answer within {LEAVE_S:g} s"
        except NoAnswer as error:
            return str(error)
        finally:
            if self._line is not None:
                self._line.close()

    def tries(self, at: int) -> None:
        """Any of its addresses will do."""

    def waits(self, line: Line) -> None:
        """There is a socket."""
        self._line = line

    def came(self, line: Line) -> None:
        """The remote is there."""
        self._line = line
        line.write([self._farewell.begin()])

    def heard(self, line: Line, data: bytes) -> None:
        """It answers."""
        if answer := self._farewell.heard(data):
            line.write([answer])
        if self._farewell.is_over:
            self._end(self._farewell.reason)

    def full(self, line: Line, is_full: bool) -> None:
        """Two packets fit anywhere."""

    def gone(self, line: Line, error: Exception | None) -> None:
        """It hung up."""
        self._end("the remote closed the connection" if error is None else reason_of(error))

    def _end(self, reason: str) -> None:
        if not self._over.done():
            self._over.set_result(reason)
