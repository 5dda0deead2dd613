"""A gateway that is back is dialled at once by those who hear of it, and not again and again by those who cannot."""

from __future__ import annotations

import pytest

from edgebroker.instants import MINUTE, SECOND
from edgebroker.overlay.link.link import HURRY
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgebroker.runtime.peers.connection import (
    IFF_LOWER_UP,
    LINK_STATE,
    NETLINK_HEADER,
    NEW_ADDRESS,
    NEW_LINK,
    has_network_news,
)
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


def test_a_gateway_that_was_cut_off_meets_all_when_one_is_there(seed: int) -> None:
    """Windows of a moving gateway are short: one connection is a sign that the others can be had too."""
    gateways = nine(seed)
    moving = gateways["b.1"]
    for road in moving.roads.values():
        road.cut()
    wait(gateways, 10 * MINUTE)
    for road in moving.roads.values():
        road.mend()
    while not any(link.connection for link in moving.overlay.links):
        wait(gateways, SECOND // 10)
    wait(gateways, HURRY + ROUND_TRIPS)
    assert [link.peer for link in moving.overlay.links if link.connection is None] == []


def test_a_sign_of_a_network_leads_to_dials_with_short_pauses(seed: int) -> None:
    gateways = nine(seed)
    diallers = [gateway for gateway in gateways if any(link.options.dials for link in gateway.overlay.links)]
    moving = diallers[0]
    roads = [moving.roads[link.peer] for link in moving.overlay.links if link.options.dials]
    for road in moving.roads.values():
        road.cut()
    wait(gateways, 10 * MINUTE)
    before = [road.dials for road in roads]
    moving.overlay.network_seen(gateways.simulation.now)
    moving.turn()
    wait(gateways, 4 * SECOND)
    assert all(2 <= road.dials - count <= 5 for road, count in zip(roads, before, strict=True))


def test_the_kernel_reports_networks_as_netlink_messages() -> None:
    address = NETLINK_HEADER.pack(20, NEW_ADDRESS, 0, 0, 0) + bytes(4)
    gone = NETLINK_HEADER.pack(20, NEW_ADDRESS + 1, 0, 0, 0) + bytes(4)
    down = NETLINK_HEADER.pack(32, NEW_LINK, 0, 0, 0) + LINK_STATE.pack(0, 1, 2, 1, 1)
    up = NETLINK_HEADER.pack(32, NEW_LINK, 0, 0, 0) + LINK_STATE.pack(0, 1, 2, 1 | IFF_LOWER_UP, 1)
    assert has_network_news(address)
    assert has_network_news(gone + down + up)
    assert not has_network_news(gone + down)
    assert not has_network_news(b"")
    assert not has_network_news(bytes(64))
