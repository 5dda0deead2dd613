"""The conditions of a line between a client and its broker, and one direction of it: bytes in transit, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from edgebroker.instants import MILLISECOND, Duration, Instant
from edgebroker.limits import KIB
from edgelab.simworld.simulation import Simulation

Chopper: TypeAlias = Callable[[bytes, Random], Iterable[bytes]]
"""Splits a written chunk into the pieces that arrive."""


def whole(chunk: bytes, _: Random) -> Iterable[bytes]:
    """Every chunk arrives as it was written."""
    return (chunk,)


def bytewise(chunk: bytes, _: Random) -> Iterable[bytes]:
    """Every byte arrives alone."""
    return (chunk[at : at + 1] for at in range(len(chunk)))


def anywhere(chunk: bytes, chance: Random) -> Iterable[bytes]:
    """Split at up to three random positions, not necessarily different ones."""
    places = sorted(chance.randrange(len(chunk) + 1) for _ in range(chance.randrange(4)))
    return filter(None, (chunk[low:high] for low, high in zip([0, *places], [*places, len(chunk)], strict=True)))


@dataclass(frozen=True, slots=True)
class LineConditions:
    """The properties of a line. The bounds of a delay are the fastest and the slowest a piece travels, inclusive."""

    delay: tuple[Duration, Duration] = (MILLISECOND, MILLISECOND)
    chop: Chopper = whole
    buffer_bytes: int = 64 * KIB
    """The bytes that the transport buffers before the client counts as slow."""


FAIR = LineConditions()


class LineDirection:
    """One direction of a line: pieces in transit, in order."""

    def __init__(
        self,
        simulation: Simulation,
        conditions: LineConditions,
        arrive: Callable[[bytes], None],
        finish: Callable[[], None],
    ) -> None:
        self._simulation = simulation
        self._conditions = conditions
        self._arrive = arrive
        self._finish = finish
        self._pieces: deque[tuple[Instant, bytes]] = deque()
        self._latest: Instant = 0
        self.stalled = False
        self.bytes = 0
        """Bytes in transit."""

    @property
    def is_moving(self) -> bool:
        """Return whether something will arrive without further actions."""
        return bool(self._pieces) and not self.stalled

    def write(self, chunk: bytes) -> None:
        """Send *chunk*. Pieces that arrive at the same instant are merged."""
        if not chunk:
            return
        chance = self._simulation.random
        for piece in self._conditions.chop(chunk, chance):
            # No piece overtakes another: each arrives at the earliest with the piece before it.
            arrives = max(self._latest, self._simulation.now + chance.randint(*self._conditions.delay))
            is_planned = bool(self._pieces) and arrives == self._latest
            self._latest = arrives
            self._pieces.append((arrives, piece))
            if not is_planned:  # otherwise it arrives with the piece before it
                self._simulation.at(arrives, self.deliver)
        self.bytes += len(chunk)

    def close(self) -> None:
        """Send the end of the line after everything written before."""
        self._latest = max(self._latest, self._simulation.now)
        self._pieces.append((self._latest, b""))
        self._simulation.at(self._latest, self.deliver)

    def deliver(self) -> None:
        """Deliver the pieces that are due, unless the reader has stopped reading."""
        if self.stalled:
            return
        due: list[bytes] = []
        while self._pieces and self._pieces[0][0] <= self._simulation.now:
            due.append(self._pieces.popleft()[1])
        self.bytes -= sum(map(len, due))
        is_over = bool(due) and not due[-1]
        for chunk in due if self._conditions.chop is bytewise else (b"".join(due),):
            if chunk:
                self._arrive(chunk)
        if is_over:
            self._finish()

    def lose_all(self) -> None:
        """Discard everything in transit."""
        self._pieces.clear()
        self.bytes = 0
