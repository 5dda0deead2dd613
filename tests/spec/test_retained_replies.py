"""Replies to a retained query continue, however busy the gateway is that sends them."""

from __future__ import annotations

from edgebridge.wire.dialect import V5
from edgebroker.instants import MILLISECOND, SECOND
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgelab.simworld.broker import FAIR
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.simulation import Simulation

KEPT = 1_000


def test_a_late_subscriber_elsewhere_gets_all_while_events_pass(seed: int) -> None:
    simulation = Simulation(seed)
    gateways = SimulatedGateways(simulation, Topology.product(Scot(Factor.parse("a"), 2)))
    gateways.wait_for_links()
    here, there = gateways
    places = {"keeper": here, "reader": here, "late": there, "chatty": there}
    everybody = {name: Participant(name, place, V5, True, 1_000, FAIR) for name, place in places.items()}
    for one in everybody.values():
        one.connect()
    simulation.run_until(simulation.now + SECOND)
    for number in range(KEPT):
        everybody["keeper"].publish(f"kept/{number}", b"%d" % number, 0, retain=True)
    everybody["reader"].subscribe("chat", 0)
    simulation.run_until(simulation.now + SECOND)
    everybody["late"].subscribe("kept/#", 0)
    for at in range(400):
        everybody["chatty"].publish("chat", b"chat %d" % at, 0)
        simulation.run_until(simulation.now + MILLISECOND)
    assert len(everybody["late"].received) == KEPT
