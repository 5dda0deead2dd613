"""A gateway that is back is dialled at once by those who hear of it, and not again and again by those who cannot."""

from __future__ import annotations

import pytest

from edgebroker.instants import MINUTE, SECOND
from edgebroker.overlay.link.link import HURRY
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.simulation import Simulation

ROUND_TRIPS = SECOND // 10


def nine(seed: int) -> SimulatedGateways:
    gateways = SimulatedGateways(Simulation(seed), Topology.product(Scot(Factor.parse("a-b-c"), 3)), is_stored=True)
    gateways.wait_for_links()
    return gateways


def wait(gateways: SimulatedGateways, length: int) -> None:
    gateways.simulation.run_until(gateways.simulation.now + length)


@pytest.mark.parametrize("off", [5 * SECOND, 10 * MINUTE])
def test_a_gateway_that_is_back_is_met_by_all_soon(off: int, seed: int) -> None:
    gateways = nine(seed)
    back = gateways["b.1"]
    back.power_off(False)
    wait(gateways, off)
    back.power_on()
    wait(gateways, HURRY + ROUND_TRIPS)
    assert [link.peer for link in back.overlay.links if link.connection is None] == []


def test_a_peer_that_others_reach_is_not_dialled_more_often(seed: int) -> None:
    gateways = nine(seed)
    road = gateways.road("a.0", "a.1")
    road.cut()
    wait(gateways, MINUTE)
    before = road.dials
    for _ in range(10):
        gateways["c.2"].crash(False)
        wait(gateways, 6 * SECOND)
    assert road.dials - before <= 4, "twice a minute, and whatever others say"
