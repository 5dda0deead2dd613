"""Network paths between gateways on virtual time: TCP connections with delay and rate, which break, fall silent, and
recover.

A road is the path between two gateways; a wire is one TCP connection over it: bytes arrive in order and none is missing
until it ends. A *cut* road ends its wires, and bytes in transit are lost. A *silent* one passes nothing, in both
directions or in one, without an error: bytes wait as in TCP's retransmissions, and continue if the road recovers while
both ends still hold the wire.
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
"""The time-out of a connection attempt over a silent road."""
SEGMENT_BYTES: Final = 1_460
"""The segment size of TCP over Ethernet."""


@dataclass(frozen=True, slots=True)
class RoadConditions:
    """The properties of a road."""

    delay: tuple[Duration, Duration] = (MILLISECOND, MILLISECOND)
    """The shortest and the longest delay of a piece."""
    bytes_per_s: int = 0
    """The rate; 0: unlimited."""
    buffer_bytes: int = 64 * KIB
    """The bytes that an end buffers before it pauses the writer."""


class WireEnd(Protocol):
    """The owner of one end of a wire."""

    def data_received(self, chunk: bytes) -> None:
        """Called with bytes that have arrived."""

    def resume_writing(self) -> None:
        """Called when the buffer has space again."""

    def connection_lost(self) -> None:
        """Called when the wire has ended, unless this end closed it."""


class ClosedEnd:
    """The end of a wire whose owner no longer exists."""

    def data_received(self, chunk: bytes) -> None:
        """Discard the bytes."""

    def resume_writing(self) -> None:
        """Do nothing."""

    def connection_lost(self) -> None:
        """Do nothing: it was lost before."""


NOBODY: Final = ClosedEnd()
Plugging: TypeAlias = Callable[["Wire"], WireEnd | None]
"""Returns the owner of an end of a new wire; None: there is no listener."""


class WireLane:
    """One direction of a wire."""

    def __init__(self, wire: Wire, number: int) -> None:
        self._wire = wire
        self._number = number
        self._pieces: deque[tuple[Instant, bytes]] = deque()
        self._free_at: Instant = 0
        self._latest: Instant = 0
        self.bytes = 0
        """Bytes in transit."""
        self.is_ending = False

    @property
    def room(self) -> int:
        """Return the number of bytes that may be written now."""
        return 0 if self.is_ending else self._wire.road.conditions.buffer_bytes - self.bytes

    def write(self, chunk: bytes) -> None:
        """Send *chunk*; an empty one is the end."""
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
            if not is_planned:  # otherwise it arrives with the piece before it
                simulation.at(arrives, self.deliver)

    def deliver(self) -> None:
        """Deliver the pieces that are due, unless the road is silent."""
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
            return  # there is no receiver: it stays in the buffer
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
    """One connection. End 0 dialled, end 1 accepted."""

    ends: tuple[WireEnd, WireEnd]

    def __init__(self, road: Road) -> None:
        self.road = road
        self.is_open = [True, True]
        """Whether the connection is open at each end."""
        self.is_gone = [False, False]
        """Whether the machine at an end vanished: it no longer answers, not even with a reset."""
        self.lanes = (WireLane(self, 0), WireLane(self, 1))

    def close(self, number: int) -> None:
        """Close one end: its bytes still arrive, then the other end is notified."""
        if self.is_open[number]:
            self.is_open[number] = False
            self.lanes[number].is_ending = True
            self.lanes[number].write(b"")

    def vanish(self, number: int) -> None:
        """Remove the machine at one end, without notifying the other."""
        self.is_open[number] = False
        self.is_gone[number] = True

    def lose(self, number: int) -> None:
        """Notify one end that the wire has ended."""
        if self.is_open[number]:
            self.is_open[number] = False
            self.ends[number].connection_lost()


class Road:
    """The network path between two gateways."""

    def __init__(self, simulation: Simulation, road_conditions: RoadConditions) -> None:
        self.simulation = simulation
        self.conditions = road_conditions
        self.is_cut = False
        """Whether connections are refused at once."""
        self.silent = [False, False]
        """Whether bytes of the dialling end, and of the other, are held back without an error."""
        self.dials = 0
        self.bytes = [0, 0]
        """Delivered bytes of the dialling end, and of the other."""
        self._wires: list[Wire] = []

    @property
    def is_silent(self) -> bool:
        """Return whether no connection can be opened, which needs both directions."""
        return any(self.silent)

    @is_silent.setter
    def is_silent(self, is_silent: bool) -> None:
        self.silent = [is_silent, is_silent]

    def connect(self, dialler: Callable[[Wire], WireEnd], listener: Plugging, failed: Callable[[], None]) -> None:
        """Try to connect; both ends receive the wire after one delay, or *failed* is called."""
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
        """End every wire, and refuse new ones until `mend`."""
        self.is_cut = True
        self.shake()

    def shake(self) -> None:
        """End every wire."""
        wires, self._wires = self._wires, []
        for wire in wires:
            for number in (0, 1):
                wire.lose(number)

    def halve(self, number: int) -> None:
        """Notify one end of every wire that it has ended; the other keeps it open, without a peer."""
        wires, self._wires = self._wires, []
        for wire in wires:
            wire.is_gone[number] = True
            wire.lose(number)

    def mend(self) -> None:
        """End a cut or a silence: bytes held back continue."""
        self.is_cut = False
        self.silent = [False, False]
        self._wires = [wire for wire in self._wires if any(wire.is_open)]
        for wire in self._wires:
            for lane in wire.lanes:
                lane.deliver()
