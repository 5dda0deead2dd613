"""The simulated world: the same stations against the same broker, on virtual time. One seed, one run, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from edgebridge.frontend.options import FrontendOptions
from edgebroker.instants import MILLISECOND, Duration, Instant
from edgebroker.limits import KIB, MIB
from edgebroker.storage.journal.options import JournalOptions
from edgedevices.modem import ModemOrder
from edgedevices.run import TICK, DeviceRun, RunStage
from edgedevices.station import Station
from edgelab.simworld.broker import ClientLine, SimulatedBroker
from edgelab.simworld.simulation import Simulation
from edgelab.simworld.store import SimulatedStore

ROUND_TRIP: Final = 2 * MILLISECOND
"""As long as a connection takes to be made, or its end to be seen."""
OFF: Final = 500 * MILLISECOND
"""How long the broker lies there after its power failed."""
OPTIONS: Final = JournalOptions(segment_bytes=256 * KIB, snapshot_min_bytes=256 * KIB, bytes_max=256 * MIB)


class SimulatedWorld:
    """Executes a run in simulation. *cuts*: when the broker's power fails, counted from the beginning."""

    def __init__(
        self, run: DeviceRun, seed: int, cuts: Sequence[Duration] = (), options: FrontendOptions | None = None
    ) -> None:
        self.simulation = Simulation(seed)
        self.broker = SimulatedBroker(self.simulation, options, store=SimulatedStore(self.simulation, OPTIONS))
        self._run = run
        self._cuts = cuts
        self._planned: dict[Station, Instant] = {}
        self._connections: dict[Station, ClientLine] = {}
        self._pending_attempts: dict[Station, int] = {}  # number of the latest attempt
        self._attempts = 0

    def live(self) -> None:
        """Executes the whole run."""
        simulation, run = self.simulation, self._run
        run.begin(simulation.now)
        for cut_at in self._cuts:
            simulation.at(cut_at, self.broker.power_off)
            simulation.at(cut_at + OFF, self.broker.power_on)
        self._wake_all()
        simulation.at(TICK, self._tick)
        simulation.run_while(lambda: run.stage is not RunStage.OVER)

    def _tick(self) -> None:
        if self._run.tick(self.simulation.now):
            self._wake_all()
        self.simulation.after(TICK, self._tick)

    def _wake_all(self) -> None:
        for station in self._run.stations:
            station.wake(self.simulation.now)
            self._serve(station)

    def _fire(self, station: Station, planned: Instant) -> None:
        if self._planned.get(station) == planned:
            del self._planned[station]
            station.wake(self.simulation.now)
            self._serve(station)

    def _serve(self, station: Station) -> None:
        """Executes the commands of *station* until there are none, and schedules its next wake-up."""
        while effects := station.take_orders():
            for effect in effects:
                connection = self._connections.get(station)
                if effect is ModemOrder.DIAL:
                    self._attempts += 1
                    self._pending_attempts[station] = self._attempts
                    self.simulation.after(ROUND_TRIP, partial(self._dialled, station, self._attempts))
                elif effect is ModemOrder.CUT and connection is None:
                    self._pending_attempts.pop(station, None)
                elif connection is None:
                    continue  # the connection has just failed
                elif effect is ModemOrder.CUT:
                    del self._connections[station]
                    connection.cut()
                elif effect is ModemOrder.HANG_UP:
                    connection.leave()
                    self.simulation.after(ROUND_TRIP, partial(self._ended, station, connection))
                else:
                    connection.write(effect)
                    station.written(self.simulation.now)
        due = station.due
        if due is None:
            self._planned.pop(station, None)
        elif due != self._planned.get(station):
            self._planned[station] = due
            self.simulation.at(due, partial(self._fire, station, due))

    def _dialled(self, station: Station, attempt: int) -> None:
        if self._pending_attempts.get(station) != attempt:
            return  # abandoned meanwhile
        del self._pending_attempts[station]
        if self.broker.is_off:
            station.ended("Connection refused", self.simulation.now)
        else:
            holder: list[ClientLine] = []
            connection = self.broker.connect(
                station.name,
                lambda chunk: self._read(station, holder[0], chunk),
                lambda: self._ended(station, holder[0]),
            )
            holder.append(connection)
            self._connections[station] = connection
            station.opened(self.simulation.now)
        self._serve(station)

    def _read(self, station: Station, connection: ClientLine, chunk: bytes) -> None:
        if self._connections.get(station) is connection:
            station.received(chunk, self.simulation.now)
            self._serve(station)

    def _ended(self, station: Station, connection: ClientLine) -> None:
        if self._connections.get(station) is connection:
            del self._connections[station]
            station.ended("connection lost", self.simulation.now)
            self._serve(station)
