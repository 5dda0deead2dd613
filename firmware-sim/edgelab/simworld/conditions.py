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
"""How a written chunk is cut into the pieces that arrive."""


def whole(chunk: bytes, _: Random) -> Iterable[bytes]:
    """Every chunk arrives as it was written."""
    return (chunk,)


def bytewise(chunk: bytes, _: Random) -> Iterable[bytes]:
    """Every byte arrives alone."""
    return (chunk[at : at + 1] for at in range(len(chunk)))


def anywhere(chunk: bytes, chance: Random) -> Iterable[bytes]:
    """Cut at up to three places, not necessarily different ones."""
    places = sorted(chance.randrange(len(chunk) + 1) for _ in range(chance.randrange(4)))
    return filter(None, (chunk[low:high] for low, high in zip([0, *places], [*places, len(chunk)], strict=True)))


@dataclass(frozen=True, slots=True)
class LineConditions:
    """How a line behaves. The bounds of a delay are the fastest and the slowest a piece travels, inclusive."""

    delay: tuple[Duration, Duration] = (MILLISECOND, MILLISECOND)
    chop: Chopper = whole
    buffer_bytes: int = 64 * KIB
    """What the transport takes from the broker before it calls the client slow."""


FAIR = LineConditions()


class LineDirection:
    """One direction of a line: pieces on their way, in order."""

    def __init__(
        self,
        simulation: Simulation,
        conditions: LineConditions,
        arrive: Callable[[bytes], None],
        finish: Callable[[], None],
    ) -> None:
        self._simulation = simulation
        self._weather = conditions
        self._arrive = arrive
        self._finish = finish
        self._pieces: deque[tuple[Instant, bytes]] = deque()
        self._latest: Instant = 0
        self.stalled = False
        self.bytes = 0
        """Written and not yet arrived."""

    @property
    def is_moving(self) -> bool:
        """Whether something is going to arrive by itself."""
        return bool(self._pieces) and not self.stalled

    def write(self, chunk: bytes) -> None:
        """Send *chunk* on its way. Pieces that arrive at the same instant arrive as one: so chunks are merged."""
        if not chunk:
            return
        chance = self._simulation.random
        for piece in self._weather.chop(chunk, chance):
            # No piece overtakes another: each arrives when the one before it does, at the earliest.
            arrives = max(self._latest, self._simulation.now + chance.randint(*self._weather.delay))
            is_planned = bool(self._pieces) and arrives == self._latest
            self._latest = arrives
            self._pieces.append((arrives, piece))
            if not is_planned:  # else it arrives with the piece before it
                self._simulation.at(arrives, self.deliver)
        self.bytes += len(chunk)

    def close(self) -> None:
        """Send the end of the line on its way, behind everything written before."""
        self._latest = max(self._latest, self._simulation.now)
        self._pieces.append((self._latest, b""))
        self._simulation.at(self._latest, self.deliver)

    def deliver(self) -> None:
        """Let arrive what is due, unless the reader has stopped reading."""
        if self.stalled:
            return
        due: list[bytes] = []
        while self._pieces and self._pieces[0][0] <= self._simulation.now:
            due.append(self._pieces.popleft()[1])
        self.bytes -= sum(map(len, due))
        is_over = bool(due) and not due[-1]
        for chunk in due if self._weather.chop is bytewise else (b"".join(due),):
            if chunk:
                self._arrive(chunk)
        if is_over:
            self._finish()

    def lose_all(self) -> None:
        """What was on its way never arrives."""
        self._pieces.clear()
        self.bytes = 0
