"""An uplink that becomes narrow all at once: with dynamic routing events go around it, and none is lost or doubled."""

from __future__ import annotations

import pytest

from edgebridge.wire.dialect import V5
from edgebroker.federation.options import FederationOptions
from edgebroker.instants import MILLISECOND, NEVER, SECOND, Duration
from edgebroker.overlay.routing import RoutingCase
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgelab.simworld.broker import FAIR
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.roads import RoadConditions
from edgelab.simworld.simulation import Simulation

NARROW = RoadConditions(bytes_per_s=2_000, buffer_bytes=4_096)
PROXIED = RoadConditions(bytes_per_s=2_000, buffer_bytes=1 << 20)
"""The same behind a proxy that ends TCP and takes whatever comes: nothing ever waits at the gateway."""
MESSAGES = 250
PAUSE = 20 * MILLISECOND
PUBLISHED_EVERY = 100 * MILLISECOND
PADDING = b"." * 250
"""What is published takes 15,000 bytes a second, and the road carries 2,000."""


class Cliff:
    """A publisher at one site, readers at the two others, and a road to one of them that becomes narrow."""

    def __init__(self, is_dynamic: bool, qos: int, seed: int, narrow: RoadConditions = NARROW) -> None:
        self.simulation = Simulation(seed)
        topology = Topology.product(Scot(Factor.parse("a"), 3))
        self.gateways = SimulatedGateways(
            self.simulation,
            topology,
            is_stored=True,
            federation_options=FederationOptions(is_dynamic=is_dynamic, roams=False),
        )
        self.gateways.wait_for_links()
        self.publisher = Participant("publisher", self.gateways["a.0"], V5, True, 20, FAIR)
        self.readers = [Participant(f"reader-{at}", self.gateways[f"a.{at}"], V5, True, 20, FAIR) for at in (1, 2)]
        for one in (self.publisher, *self.readers):
            one.connect()
        self.wait(SECOND)
        for reader in self.readers:
            reader.subscribe("t", 2)
        self.wait(SECOND)
        self.gateways.road("a.0", "a.1").conditions = narrow
        self.begun = self.simulation.now
        for number in range(MESSAGES):
            assert self.publisher.publish("t", b"%d %s" % (number, PADDING), qos)
            self.wait(PAUSE)
        self.wait(90 * SECOND)

    def wait(self, length: Duration) -> None:
        self.simulation.run_until(self.simulation.now + length)

    def delays(self, reader: Participant) -> dict[int, Duration]:
        """By number, how long each message took; none came twice."""
        found = {int(heard.payload.split()[0]): heard.at for heard in reader.received}
        assert len(found) == len(reader.received), "one came twice"
        return {number: at - self.begun - number * PAUSE for number, at in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_narrow_uplink_is_gone_around(qos: int, seed: int) -> None:
    static, dynamic = Cliff(False, qos, seed), Cliff(True, qos, seed)
    for cliff in (static, dynamic):
        for reader in cliff.readers:
            assert cliff.delays(reader).keys() == set(range(MESSAGES)), "one was lost"
    late = sorted(static.delays(static.readers[0]).values())
    soon = sorted(dynamic.delays(dynamic.readers[0]).values())
    assert late[-1] > 20 * SECOND, "it was narrow indeed"
    assert soon[MESSAGES // 2] < late[MESSAGES // 2] // 3, "they wait for what stands in the queue, and no longer"
    assert soon[-1] < late[-1] // 2
    for reader in dynamic.readers:
        heard = [int(each.payload.split()[0]) for each in reader.received]
        assert heard == sorted(heard), "none overtook another"
    cases = dynamic.gateways["a.0"].overlay.peers.forwarder.cases
    assert cases[RoutingCase.ANOTHER_CLUSTER] > MESSAGES // 2
    cases = static.gateways["a.0"].overlay.peers.forwarder.cases
    assert not any(count for case, count in cases.items() if case is not RoutingCase.NONE)


@pytest.mark.slow
@pytest.mark.parametrize("qos", [1, 2])
def test_an_uplink_that_is_narrow_behind_a_proxy_is_gone_around(qos: int, seed: int) -> None:
    cliff = Cliff(True, qos, seed, PROXIED)
    for reader in cliff.readers:
        assert cliff.delays(reader).keys() == set(range(MESSAGES)), "one was lost"
    static = Cliff(False, qos, seed, PROXIED)
    late = sorted(static.delays(static.readers[0]).values())
    soon = sorted(cliff.delays(cliff.readers[0]).values())
    assert soon[MESSAGES // 2] < late[MESSAGES // 2] // 2
    assert cliff.gateways["a.0"].overlay.peers.forwarder.cases[RoutingCase.ANOTHER_CLUSTER] > MESSAGES // 2


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
def test_a_gateway_whose_disk_takes_nothing_is_gone_around(is_dynamic: bool, qos: int, seed: int) -> None:
    """Readers behind it are served by the other gateway of their site."""
    simulation = Simulation(seed)
    gateways = SimulatedGateways(
        simulation,
        Topology.product(Scot(Factor.parse("a-b"), 2)),
        is_stored=True,
        federation_options=FederationOptions(is_dynamic=is_dynamic, roams=False),
    )
    gateways.wait_for_links()
    publisher = Participant("publisher", gateways["a.0"], V5, True, 20, FAIR)
    reader = Participant("reader", gateways["b.1"], V5, True, 20, FAIR)
    for one in (publisher, reader):
        one.connect()
    simulation.run_until(simulation.now + SECOND)
    reader.subscribe("t", 2)
    simulation.run_until(simulation.now + SECOND)
    store = gateways["a.1"].store
    assert store is not None
    store.disk.sync_fails = store.disk.write_fails = 1.0
    begun = simulation.now
    for number in range(200):
        publisher.publish("t", b"%d" % number, qos)
        simulation.run_until(simulation.now + PUBLISHED_EVERY)
    simulation.run_until(simulation.now + SECOND)
    heard = {int(heard.payload): heard.at - begun for heard in reader.received}
    late = [number for number in range(100, 200) if heard.get(number, NEVER) > number * PUBLISHED_EVERY + SECOND]
    assert not late, "they wait at the gateway whose disk takes nothing"
    store.disk.sync_fails = store.disk.write_fails = 0.0
    simulation.run_until(simulation.now + 60 * SECOND)
    assert sorted(int(heard.payload) for heard in reader.received) == list(range(200))


@pytest.mark.parametrize("qos", [1, 2])
def test_a_gateway_in_the_middle_of_a_site_whose_disk_takes_nothing_is_gone_around(qos: int, seed: int) -> None:
    """Readers behind it are served over the other site, and its own ones get QoS 0 as always."""
    simulation = Simulation(seed)
    gateways = SimulatedGateways(simulation, Topology.product(Scot(Factor.parse("a-b-c"), 2)), is_stored=True)
    gateways.wait_for_links()
    publisher, reader, inner = (
        Participant(name, gateways[where], V5, True, 20, FAIR)
        for name, where in (("publisher", "a.0"), ("reader", "c.0"), ("inner", "b.0"))
    )
    quick, far = (Participant(f"at {name}.0", gateways[f"{name}.0"], V5, False, 20, FAIR) for name in "bc")
    for one in (publisher, reader, inner, quick, far):
        one.connect()
    simulation.run_until(simulation.now + SECOND)
    for one, topic in ((reader, "t"), (inner, "t"), (quick, "quick"), (far, "quick")):
        one.subscribe(topic, 2)
    simulation.run_until(simulation.now + SECOND)
    store = gateways["b.0"].store
    assert store is not None
    store.disk.sync_fails = store.disk.write_fails = 1.0
    begun = simulation.now
    for number in range(120):
        publisher.publish("t", b"%d" % number, qos)
        if number > 60:
            publisher.publish("quick", b"%d" % number, 0)
        simulation.run_until(simulation.now + PUBLISHED_EVERY)
    simulation.run_until(simulation.now + SECOND)
    first = {int(heard.payload): heard.at - begun for heard in reader.received}
    late = [number for number in range(60, 120) if first.get(number, NEVER) > number * PUBLISHED_EVERY + SECOND]
    assert not late, "they wait at the gateway whose disk takes nothing"
    for one in (quick, far):
        assert [int(heard.payload) for heard in one.received] == list(range(61, 120))
    store.disk.sync_fails = store.disk.write_fails = 0.0
    simulation.run_until(simulation.now + 40 * SECOND)
    inner.connect()
    simulation.run_until(simulation.now + 5 * SECOND)
    for one in (reader, inner):
        assert sorted(int(heard.payload) for heard in one.received) == list(range(120))
    assert not any(gateway.overlay.peers.gossip.relay.is_active for gateway in gateways)


def test_nothing_is_looked_at_while_nothing_waits(seed: int) -> None:
    simulation = Simulation(seed)
    topology = Topology.product(Scot(Factor.parse("a"), 2))
    gateways = SimulatedGateways(simulation, topology, federation_options=FederationOptions(is_dynamic=True))
    gateways.wait_for_links()
    simulation.run_until(simulation.now + 60 * SECOND)
    for gateway in gateways:
        assert gateway.overlay.congestion.due is None
        assert gateway.overlay.peers.link_status.window == 0
