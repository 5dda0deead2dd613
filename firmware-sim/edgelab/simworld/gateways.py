"""Complete gateways of a federation on virtual time: clients on lines, journals on disks, links over network paths."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from edgebridge.frontend.federation.join import TOPOLOGY_CHANGE, join, rejoin
from edgebridge.frontend.federation.link_setup import BootIdentity
from edgebridge.session.journal.state import JournalState
from edgebroker.federation.options import DEFAULT_OPTIONS, FederationOptions
from edgebroker.instants import SECOND, Duration
from edgebroker.overlay.link.connection import LinkConnection
from edgebroker.overlay.topology.topology import Topology
from edgebroker.storage.deliverylog.writer import DeliveryLog
from edgebroker.storage.journal.options import JournalOptions
from edgelab.simworld.broker import SimulatedBroker
from edgelab.simworld.linked import GatewayEnd
from edgelab.simworld.roads import NOBODY, Road, RoadConditions, Wire, WireEnd
from edgelab.simworld.simulation import Simulation
from edgelab.simworld.store import OPTIONS, SimulatedStore

ROAD = RoadConditions()


class SimulatedGateway(SimulatedBroker):
    """One gateway. `roads` and `others` are the paths to its peers, and the peers."""

    def __init__(
        self,
        simulation: Simulation,
        topology: Topology,
        name: str,
        *,
        store: SimulatedStore | None = None,
        federation_options: FederationOptions = DEFAULT_OPTIONS,
        is_logged: bool = False,
        **others: Any,
    ) -> None:
        """*is_logged*: each run has a delivery log. *others*: further arguments of `SimulatedBroker`."""
        self.name = name
        self.roads: dict[str, Road] = {}
        self.others: dict[str, SimulatedGateway] = {}
        self.plugs: dict[LinkConnection, GatewayEnd] = {}
        self.records_sent = 0
        self.bytes_sent = 0
        self._topology = topology
        self._federation_options = federation_options
        self._is_logged = is_logged
        self._log_head = b""
        super().__init__(simulation, store=store, **others)

    # -- the run --------------------------------------------------------------------------------------------------

    def _join(self, stored: JournalState | None) -> None:
        journal = self.frontend.journal.storage
        store = self.simulation.random.randbytes(8) if journal is None else journal.store[:8]
        links = None if stored is None else stored.links
        run, now = self._new_run(store), self.simulation.now
        self.overlay = join(self.frontend, self._topology, self.name, run, now, links, self._federation_options)

    def _new_run(self, store: bytes) -> BootIdentity:
        random = self.simulation.random
        return BootIdentity(random.randbytes(8), store, random.random)

    def _start(self) -> None:
        if self._is_logged:
            self._log = DeliveryLog(self.name, f"run-{self.runs + 1}", sample_qos0=7 if self.runs % 2 else 1)
            self._log_head = self._log.header(self.simulation.now, self.unix_s)
        super()._start()
        self.overlay.start(self.simulation.now)
        self._plan_turn()

    def power_off(self, is_power_cut: bool = True) -> None:
        """Cut the power, or kill the process. After a power cut, peers are not notified."""
        for plug in list(self.plugs.values()):
            plug.disconnect(is_power_cut)
        self.plugs.clear()
        super().power_off(is_power_cut)

    def change_topology(self, topology: Topology) -> None:
        """Change to *topology* while the gateway runs."""
        self._topology = topology
        self.overlay.drain(self.simulation.now)
        self._flush()
        self.overlay.stop(self.simulation.now, TOPOLOGY_CHANGE)
        self._flush()
        run = self._new_run(self.overlay.links.identity.store)
        self.overlay = rejoin(self.frontend, topology, run, self.simulation.now, self._federation_options)
        self._plan_turn()

    def closed_log(self) -> bytes:
        """Disconnect all clients, close the ledger, and return the delivery log of this run, which must be logged."""
        self.stop()
        assert self._log is not None
        return self._log_head + b"".join(self._log.take(self.simulation.now, closing=True))

    @property
    def waiting(self) -> int:
        """Return the number of undelivered copies for peers."""
        return sum(len(link.outbox.events()) + link.outbox.backlog.on_disk for link in self.overlay.links)

    def wire_to(self, peer: str) -> Wire | None:
        """Return the connection with *peer*, as this end sees it."""
        stream = self.overlay.links[peer].connection
        plug = None if stream is None else self.plugs.get(stream)
        return None if plug is None else plug.wire

    # -- peers ----------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Plan a turn after input from a peer."""
        self._plan_turn()

    def _flush(self) -> None:
        self.overlay.turn(self.simulation.now, self._flush_stream)
        for peer in self.overlay.take_dials():
            run = self.runs
            self.roads[peer].connect(
                partial(self._dialled, peer, run), self.others[peer].answer, partial(self._dial_failed, peer, run)
            )
        super()._flush()

    def _flush_stream(self, stream: LinkConnection) -> None:
        plug = self.plugs.get(stream)
        if plug is not None:
            plug.flush()

    def _plug(self, wire: Wire, number: int, stream: LinkConnection) -> GatewayEnd:
        plug = GatewayEnd(self, wire, number, stream)
        self.plugs[stream] = plug
        self._plan_turn()
        return plug

    def _dialled(self, peer: str, run: int, wire: Wire) -> WireEnd:
        if run != self.runs or self.is_off:  # the run that dialled has ended
            wire.close(0)
            return NOBODY
        return self._plug(wire, 0, self.overlay.dialled(peer, self.simulation.now))

    def answer(self, wire: Wire) -> GatewayEnd | None:
        """Accept a connection of a peer. None: the gateway is off."""
        if self.is_off:
            return None
        return self._plug(wire, 1, self.overlay.accepted(self.simulation.now))

    def _dial_failed(self, peer: str, run: int) -> None:
        if run == self.runs and not self.is_off:
            self.overlay.dial_failed(peer, self.simulation.now)
            self._plan_turn()


class SimulatedGateways:
    """All gateways of *topology*, with a path between every two that are peers."""

    def __init__(
        self,
        simulation: Simulation,
        topology: Topology,
        road_conditions: RoadConditions = ROAD,
        *,
        is_stored: bool = False,
        journal_options: JournalOptions = OPTIONS,
        **others: Any,
    ) -> None:
        """*is_stored*: each has a disk, and a journal with *journal_options*. *others*: further arguments of each
        gateway.
        """
        self.simulation = simulation
        self.topology = topology
        self.by_name: dict[str, SimulatedGateway] = {}
        self.roads: dict[frozenset[str], Road] = {}
        self._road_conditions = road_conditions
        self._is_stored = is_stored
        self._journal_options = journal_options
        self._others = others
        self._build(topology)

    def _build(self, topology: Topology) -> None:
        """Create the gateways and the paths that are missing."""
        simulation = self.simulation
        for name in (one.name for one in topology.gateways if one.name not in self.by_name):
            store = SimulatedStore(simulation, self._journal_options) if self._is_stored else None
            self.by_name[name] = SimulatedGateway(simulation, topology, name, store=store, **self._others)
        for gateway in self:
            gateway.others = self.by_name
            for peer in topology.gateway(gateway.name).peers():
                road = self.roads.setdefault(frozenset((gateway.name, peer)), Road(simulation, self._road_conditions))
                gateway.roads[peer] = road

    def grow(self, topology: Topology) -> None:
        """Create the gateways of *topology* that are missing. The existing ones do not know it yet."""
        self.topology = topology
        self._build(topology)

    def __iter__(self) -> Iterator[SimulatedGateway]:
        return iter(self.by_name.values())

    def __getitem__(self, name: str) -> SimulatedGateway:
        return self.by_name[name]

    def road(self, one: str, other: str) -> Road:
        """Return the path between two peers."""
        return self.roads[frozenset((one, other))]

    def wait_for_links(self, within: Duration = 2 * SECOND) -> None:
        """Wait until all links are up. Raises AssertionError if one is not."""
        self.simulation.run_until(self.simulation.now + within)
        for gateway in self:
            for link in gateway.overlay.links:
                assert link.connection is not None, f"{gateway.name} has not met {link.peer}"
