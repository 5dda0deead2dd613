"""Order while ways change (P4): around a link that is cut, and back; and nothing is lost that waits for its turn."""

from __future__ import annotations

import pytest

from edgebridge.wire.dialect import V5
from edgebroker.instants import MILLISECOND, SECOND
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgelab.simworld.broker import FAIR
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.simulation import Simulation


class Road:
    """One reader and one publisher at two gateways whose own connection is cut."""

    def __init__(self, seed: int, path: str, here: str, there: str, qos: int) -> None:
        self.simulation = Simulation(seed)
        topology = Topology.product(Scot(Factor.parse(path), 3))
        self.gateways = SimulatedGateways(self.simulation, topology, is_stored=True)
        self.gateways.wait_for_links()
        self.publisher = Participant("publisher", self.gateways[here], V5, True, 20, FAIR)
        self.reader = Participant("reader", self.gateways[there], V5, True, 20, FAIR)
        self.publisher.connect()
        self.reader.connect()
        self.qos = qos
        self.number = 0
        self.wait(SECOND)
        self.reader.subscribe("t/#", 2)
        self.wait(SECOND)

    def wait(self, length: int) -> None:
        self.simulation.run_until(self.simulation.now + length)

    def publish(self, times: int, pause: int) -> None:
        """So many messages, and a pause after each."""
        for _ in range(times):
            if self.publisher.publish("t/x", b"%d" % (self.number + 1), self.qos):
                self.number += 1
            self.wait(pause)

    @property
    def heard(self) -> list[int]:
        return [int(each.payload) for each in self.reader.received]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "here", "there", "qos"), [("a", "a.0", "a.1", 2), ("a-b", "a.0", "b.0", 1), ("a-b-c", "a.0", "c.0", 2)]
)
def test_order_is_kept_around_a_cut_and_back(path: str, here: str, there: str, qos: int, seed: int) -> None:
    road = Road(seed, path, here, there, qos)
    far = there if path != "a-b-c" else "b.0"
    road.publish(5, 20 * MILLISECOND)
    road.wait(SECOND)
    road.gateways.road(here, far).cut()
    road.wait(2 * SECOND)
    road.publish(200, MILLISECOND)
    road.gateways.road(here, far).mend()
    road.publish(700, 2 * MILLISECOND)
    road.wait(10 * SECOND)
    assert road.heard == [*range(1, road.number + 1)]
    assert road.number > 200


@pytest.mark.parametrize("qos", [1, 2])
def test_what_waits_for_its_turn_outlives_a_crash(qos: int, seed: int) -> None:
    for crash_after in range(0, 140 * MILLISECOND, 14 * MILLISECOND):
        road = Road(seed, "a", "a.0", "a.1", qos)
        road.gateways.road("a.0", "a.1").cut()
        road.wait(2 * SECOND)
        road.publish(3, 10 * MILLISECOND)
        road.wait(crash_after)
        road.gateways["a.1"].crash()
        road.wait(SECOND)
        road.reader.connect()
        road.wait(5 * SECOND)
        assert sorted(set(road.heard)) == [1, 2, 3], f"crash after {crash_after} us"
        if qos == 2:
            assert len(road.heard) == 3, f"crash after {crash_after} us"
