"""A gateway that is back is dialled at once by those who hear of it, and not again and again by those who cannot."""

from __future__ import annotations

import pytest

from edgebroker.instants import MINUTE, SECOND
from edgebroker.overlay.factor import Factor
from edgebroker.overlay.link.backoff import HURRY
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology import Topology
from edgebroker.simworld.gateways import Gateways
from edgebroker.simworld.simulation import Simulation

ROUND_TRIPS = SECOND // 10


def nine(seed: int) -> Gateways:
    gateways = Gateways(Simulation(seed), Topology.product(Scot(Factor.parse("a-b-c"), 3)), is_stored=True)
    gateways.meet()
    return gateways


def wait(gateways: Gateways, length: int) -> None:
    gateways.simulation.run_until(gateways.simulation.now + length)


@pytest.mark.parametrize("off", [5 * SECOND, 10 * MINUTE])
def test_a_gateway_that_is_back_is_met_by_all_soon(off: int, seed: int) -> None:
    gateways = nine(seed)
    back = gateways["b.1"]
    back.fall(False)
    wait(gateways, off)
    back.rise()
    wait(gateways, HURRY + ROUND_TRIPS)
    assert [link.peer for link in back.overlay.links if link.stream is None] == []


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
