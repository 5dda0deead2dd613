"""A copy of a retained message is used only while its original cannot be queried, wherever the copy is."""

from __future__ import annotations

import pytest

from edgebridge.wire.dialect import V5
from edgebroker.instants import MINUTE, SECOND
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgelab.simworld.broker import FAIR
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.simulation import Simulation


class Detour:
    """Two sites of two gateways. What b.0 publishes went over a.0 and a.1, which keeps a copy that has no original."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.gateways = SimulatedGateways(
            self.simulation, Topology.product(Scot(Factor.parse("a-b"), 2)), is_stored=True
        )
        self.gateways.wait_for_links()
        self.road = self.gateways.road("b.0", "b.1")
        self.publisher = self.joined("publisher", "b.0")
        reader = self.joined("reader", "a.1")
        self.ask(reader)
        self.road.cut()
        self.wait(5 * SECOND)
        self.retain(b"here")
        assert [heard.payload for heard in reader.received] == [b"here"]
        assert self.gateways["a.1"].frontend.retained.find("t") is not None
        reader.unsubscribe("t")
        self.wait(SECOND)

    def joined(self, name: str, gateway: str) -> Participant:
        one = Participant(name, self.gateways[gateway], V5, True, 20, FAIR)
        one.connect()
        self.wait(SECOND)
        return one

    def ask(self, reader: Participant) -> list[bytes]:
        reader.subscribe("t", 1)
        self.wait(2 * SECOND)
        return [heard.payload for heard in reader.received]

    def retain(self, payload: bytes) -> None:
        assert self.publisher.publish("t", payload, 1, retain=True)
        self.wait(2 * SECOND)

    def wait(self, length: int) -> None:
        self.simulation.run_until(self.simulation.now + length)


@pytest.mark.parametrize("gateway", ["a.1", "b.1"])
def test_a_copy_where_no_original_is_asked_for_does_not_outlive_it(gateway: str, seed: int) -> None:
    detour = Detour(seed)
    detour.road.mend()
    detour.wait(2 * MINUTE)
    detour.retain(b"")
    assert detour.ask(detour.joined("late", gateway)) == []


@pytest.mark.parametrize("gateway", ["a.1", "b.1"])
def test_while_the_original_can_be_asked_for_that_is_what_a_late_subscriber_gets(gateway: str, seed: int) -> None:
    detour = Detour(seed)
    detour.road.mend()
    detour.wait(2 * MINUTE)
    detour.retain(b"there")
    assert detour.ask(detour.joined("late", gateway)) == [b"there"]


@pytest.mark.parametrize("gateway", ["a.1", "b.1"])
def test_while_it_cannot_be_asked_for_the_copy_has_to_do(gateway: str, seed: int) -> None:
    detour = Detour(seed)
    detour.gateways["b.0"].power_off()
    detour.wait(30 * SECOND)
    assert detour.ask(detour.joined("late", gateway)) == [b"here"]
