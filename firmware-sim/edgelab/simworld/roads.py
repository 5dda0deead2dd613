"""Roads between gateways on virtual time: connections with delay and a rate, which break, fall silent, and come back.

A road is what lies between two gateways; a wire is one connection over it, and what TCP is: bytes arrive in order and
none is missing until it ends. A *cut* road ends its wires, and what was on the way is lost. A *silent* one lets nothing
pass, in both directions or in one, and tells nobody: bytes wait as TCP's retransmissions do, and go on if the road
speaks again while both ends still hold the wire.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from edgebroker.instants import MILLISECOND, SECOND, Duration, Instant
from edgebroker.limits import KIB
from edgelab.simworld.simulation import Simulation

CONNECT_TIMEOUT: Final[Duration] = 10 * SECOND
"""How long an end tries to connect over a silent road."""
SEGMENT_BYTES: Final = 1_460
"""What TCP sends at once over Ethernet."""


@dataclass(frozen=True, slots=True)
class RoadConditions:
    """What a road is made of."""

    delay: tuple[Duration, Duration] = (MILLISECOND, MILLISECOND)
    """How long a piece travels, at least and at most."""
    bytes_per_s: int = 0
    """0: at once."""
    buffer_bytes: int = 64 * KIB
    """What an end takes before it says stop."""


class WireEnd(Protocol):
    """Who holds one end of a wire."""

    def data_received(self, chunk: bytes) -> None:
        """Bytes came."""

    def resume_writing(self) -> None:
        """There is room again."""

    def connection_lost(self) -> None:
        """The wire ended, and it was not this end that ended it."""


class ClosedEnd:
    """The end of a wire whose holder is no more."""

    def data_received(self, chunk: bytes) -> None:
        """In vain."""

    def resume_writing(self) -> None:
        """In vain."""

    def connection_lost(self) -> None:
        """It was lost before."""


NOBODY: Final = ClosedEnd()
Plugging: TypeAlias = Callable[["Wire"], WireEnd | None]
"""Who takes an end of a new wire; None: nobody is there."""


class WireLane:
    """One direction of a wire."""

    def __init__(self, wire: Wire, number: int) -> None:
        self._wire = wire
        self._number = number
        self._pieces: deque[tuple[Instant, bytes]] = deque()
        self._free_at: Instant = 0
        self._latest: Instant = 0
        self.bytes = 0
        """Written and not yet arrived."""
        self.is_ending = False

    @property
    def room(self) -> int:
        """What may be written now."""
        return 0 if self.is_ending else self._wire.road.conditions.buffer_bytes - self.bytes

    def write(self, chunk: bytes) -> None:
        """Send *chunk* on its way; an empty one is the end."""
        road = self._wire.road
        simulation, road_conditions = road.simulation, road.conditions
        self._free_at = max(self._free_at, simulation.now)
        self.bytes += len(chunk)
        size = SEGMENT_BYTES if road_conditions.bytes_per_s else max(1, len(chunk))
        for at in range(0, max(1, len(chunk)), size):
            piece = chunk[at : at + size]
            if road_conditions.bytes_per_s:
                self._free_at += len(piece) * SECOND // road_conditions.bytes_per_s
            arrives = max(self._latest, self._free_at + simulation.random.randint(*road_conditions.delay))
            is_planned = bool(self._pieces) and arrives == self._latest
            self._latest = arrives
            self._pieces.append((arrives, piece))
            if not is_planned:  # else it arrives with the piece before it
                simulation.at(arrives, self.deliver)

    def deliver(self) -> None:
        """Let arrive what is due, if the road speaks."""
        wire = self._wire
        due: list[bytes] = []
        is_over = False
        while self._pieces and self._pieces[0][0] <= wire.road.simulation.now:
            if wire.road.silent[self._number]:
                break
            chunk = self._pieces.popleft()[1]
            is_over = is_over or not chunk
            due.append(chunk)
        if not due:
            return
        chunk = b"".join(due)
        if wire.is_gone[1 - self._number]:
            return  # nobody takes it: it stays in the buffer
        self.bytes -= len(chunk)
        if not wire.is_open[1 - self._number]:
            wire.lose(self._number)
            return
        wire.road.bytes[self._number] += len(chunk)
        if chunk:
            wire.ends[1 - self._number].data_received(chunk)
        if is_over:
            wire.lose(1 - self._number)
        elif wire.is_open[self._number]:
            wire.ends[self._number].resume_writing()


class Wire:
    """One connection. End 0 dialled, end 1 was dialled."""

    ends: tuple[WireEnd, WireEnd]

    def __init__(self, road: Road) -> None:
        self.road = road
        self.is_open = [True, True]
        """Whether each end still holds it."""
        self.is_gone = [False, False]
        """Whether the machine at an end vanished: nobody answers there, not even that the wire is over."""
        self.lanes = (WireLane(self, 0), WireLane(self, 1))

    def close(self, number: int) -> None:
        """One end lets go: what it wrote still arrives, then the other hears of it."""
        if self.is_open[number]:
            self.is_open[number] = False
            self.lanes[number].is_ending = True
            self.lanes[number].write(b"")

    def vanish(self, number: int) -> None:
        """The machine at one end is no more, and tells nobody."""
        self.is_open[number] = False
        self.is_gone[number] = True

    def lose(self, number: int) -> None:
        """One end hears that the wire is over."""
        if self.is_open[number]:
            self.is_open[number] = False
            self.ends[number].connection_lost()


class Road:
    """What lies between two gateways."""

    def __init__(self, simulation: Simulation, road_conditions: RoadConditions) -> None:
        self.simulation = simulation
        self.conditions = road_conditions
        self.is_cut = False
        """Nobody gets through, and is told so at once."""
        self.silent = [False, False]
        """Nothing gets through that the dialling end writes, or the other; and nobody is told."""
        self.dials = 0
        self.bytes = [0, 0]
        """What arrived that the dialling end wrote, and the other."""
        self._wires: list[Wire] = []

    @property
    def is_silent(self) -> bool:
        """Whether no connection can be made: for that both have to hear."""
        return any(self.silent)

    @is_silent.setter
    def is_silent(self, is_silent: bool) -> None:
        self.silent = [is_silent, is_silent]

    def connect(self, dialler: Callable[[Wire], WireEnd], listener: Plugging, failed: Callable[[], None]) -> None:
        """Try to connect; both hear of the wire one delay later, or *failed* is called."""
        self.dials += 1
        simulation = self.simulation
        delay = simulation.random.randint(*self.conditions.delay)
        if self.is_cut:
            simulation.after(delay, failed)
        elif self.is_silent:
            simulation.after(CONNECT_TIMEOUT, failed)
        else:
            simulation.after(delay, lambda: self._connected(dialler, listener, failed))

    def _connected(self, dialler: Callable[[Wire], WireEnd], listener: Plugging, failed: Callable[[], None]) -> None:
        if self.is_cut or self.is_silent:
            failed()
            return
        wire = Wire(self)
        other = listener(wire)
        if other is None:
            failed()
            return
        self._wires.append(wire)
        wire.ends = (dialler(wire), other)

    def cut(self) -> None:
        """Break every wire, and let none be made until `mend`."""
        self.is_cut = True
        self.shake()

    def shake(self) -> None:
        """Break every wire."""
        wires, self._wires = self._wires, []
        for wire in wires:
            for number in (0, 1):
                wire.lose(number)

    def halve(self, number: int) -> None:
        """Of every wire one end hears that it is over; the other holds on to it, and nobody answers there."""
        wires, self._wires = self._wires, []
        for wire in wires:
            wire.is_gone[number] = True
            wire.lose(number)

    def mend(self) -> None:
        """Neither cut nor silent any more: what waits goes on."""
        self.is_cut = False
        self.silent = [False, False]
        self._wires = [wire for wire in self._wires if any(wire.is_open)]
        for wire in self._wires:
            for lane in wire.lanes:
                lane.deliver()
