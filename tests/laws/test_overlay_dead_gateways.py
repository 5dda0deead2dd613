"""A gateway that is dead for a while, with clients, bytes and journals: its cluster is joined around it, and heals."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edgebridge.wire.dialect import V5
from edgebroker.instants import MINUTE, SECOND
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgelab.simworld.broker import FAIR
from edgelab.simworld.checkers import doubled, unaccounted, unwanted
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.simulation import Simulation

NOTICED = 30 * SECOND
"""A peer without power is silent: it is asked after 10 s at most, and twice."""


class Site:
    """Three gateways in a row at each site, each with a reader and a publisher that keep their sessions."""

    def __init__(self, clusters: int, seed: int) -> None:
        self.simulation = Simulation(seed)
        topology = Topology.product(Scot(Factor.parse("a-b-c"), clusters))
        self.gateways = SimulatedGateways(self.simulation, topology, is_stored=True)
        self.gateways.wait_for_links()
        self.readers = {one.name: Participant(f"reader-{one.name}", one, V5, True, 20, FAIR) for one in self.gateways}
        self.publisher = Participant("publisher", self.gateways["a.0"], V5, True, 20, FAIR)
        self._number = 0
        for one in self.everybody:
            one.connect()
        self.wait(SECOND)
        for reader in self.readers.values():
            reader.subscribe("t/#", 2)
        self.wait(2 * SECOND)

    @property
    def everybody(self) -> list[Participant]:
        return [*self.readers.values(), self.publisher]

    def wait(self, length: int) -> None:
        self.simulation.run_until(self.simulation.now + length)

    def publish(self, topic: str) -> list[bytes]:
        """One message at each QoS."""
        payloads = []
        for qos in (0, 1, 2):
            self._number += 1
            payloads.append(b"%d" % self._number)
            assert self.publisher.publish(topic, payloads[-1], qos)
        self.wait(2 * SECOND)
        return payloads

    def heard(self, gateway: str) -> list[bytes]:
        return [heard.payload for heard in self.readers[gateway].received]

    def broken(self) -> Iterator[str]:
        yield from unwanted(self.everybody)
        yield from doubled(self.everybody)
        for gateway in self.gateways:
            yield from unaccounted(gateway, [])


@pytest.mark.slow
@pytest.mark.parametrize("clusters", [2, 3])
@pytest.mark.parametrize("is_power_cut", [True, False])
def test_readers_behind_a_dead_gateway_are_served(clusters: int, is_power_cut: bool, seed: int) -> None:
    site = Site(clusters, seed)
    before = site.publish("t/x")
    dead = site.gateways["b.0"]
    roads = [road for pair, road in site.gateways.roads.items() if "b.0" in pair]
    dead.crash(is_power_cut)
    for road in roads:
        road.cut()
    site.wait(NOTICED)
    during = site.publish("t/x")
    assert site.heard("c.0") == before + during
    site.readers["c.0"].subscribe("n/#", 2)
    site.wait(SECOND)
    new = site.publish("n/x")
    assert site.heard("c.0") == before + during + new
    for gateway in site.readers.keys() - {"b.0", "c.0"}:
        assert site.heard(gateway) == before + during
    for road in roads:
        road.mend()
    site.readers["b.0"].connect()
    site.wait(2 * MINUTE)
    after = site.publish("t/x")
    assert site.heard("c.0") == before + during + new + after
    assert site.heard("b.0") == before + during[1:] + after, "what was not numbered was not kept for it"
    assert [*site.broken()] == []
    assert not any(one.ledger.queued for one in site.gateways)
