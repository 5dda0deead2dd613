"""Messages that a peer has acknowledged are not dropped for a slow reader: its queue may exceed the bound."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.frontend.options import FrontendOptions
from edgebridge.session.queue.outbox import OverflowPolicy
from edgebridge.wire.dialect import V5
from edgebroker.instants import MINUTE, SECOND
from edgebroker.log_schema import Cause
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgelab.simworld.broker import FAIR
from edgelab.simworld.checkers import disordered, doubled
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.simulation import Simulation

MESSAGES = 60
QUEUE = 5


class Outage:
    """Two gateways and a road that is cut while a device publishes; readers at the other end get it all at once."""

    def __init__(self, seed: int, **options: Any) -> None:
        self.simulation = Simulation(seed)
        self.options = FrontendOptions(queue_messages_max=QUEUE, inflight_max=2, **options)
        topology = Topology.product(Scot(Factor.parse("a"), 2))
        self.gateways = SimulatedGateways(self.simulation, topology, is_stored=True, options=self.options)
        self.gateways.wait_for_links()
        self.near, self.far = self.gateways
        self.publisher = Participant("publisher", self.near, V5, True, 20, FAIR)
        self.readers = [Participant(f"reader-{number}", self.far, V5, True, 20, FAIR) for number in range(2)]
        for one in (self.publisher, *self.readers):
            one.connect()
        self.wait(SECOND)
        for reader in self.readers:
            reader.subscribe("t", 2)
        self.wait(SECOND)

    def wait(self, length: int) -> None:
        self.simulation.run_until(self.simulation.now + length)

    def publish(self) -> None:
        for number in range(MESSAGES):
            assert self.publisher.publish("t", b"%d" % number, 1 + number % 2)
            self.wait(SECOND // 5)

    def break_off(self) -> None:
        """All that is published meanwhile waits, and comes as fast as the road takes it."""
        road = next(iter(self.gateways.roads.values()))
        road.cut()
        self.publish()
        road.mend()
        self.wait(2 * MINUTE)

    @property
    def dropped(self) -> int:
        return self.far.ledger.dropped.get(Cause.QUEUE_FULL, 0)


@pytest.mark.parametrize("policy", [OverflowPolicy.DROP_NEWEST, OverflowPolicy.REFUSE])
def test_who_reads_gets_all_that_waited_for_the_network(policy: OverflowPolicy, seed: int) -> None:
    outage = Outage(seed, queue_full=policy)
    outage.break_off()
    for reader in outage.readers:
        assert {heard.payload for heard in reader.received} == {b"%d" % number for number in range(MESSAGES)}
    assert outage.dropped == 0
    everybody = [outage.publisher, *outage.readers]
    assert [*doubled(everybody)] == []
    assert [*disordered(everybody, outage.readers)] == []


def test_no_more_than_half_of_what_all_may_hold_waits_so(seed: int) -> None:
    outage = Outage(seed, queued_messages_max=2 * QUEUE + 2)
    outage.break_off()
    assert outage.dropped > 0, "and it is counted"
    assert outage.far.ledger.queued == 0
    heard = sum(len(reader.received) for reader in outage.readers)
    assert heard + outage.dropped == len(outage.readers) * MESSAGES


@pytest.mark.parametrize(("policy", "kept"), [(OverflowPolicy.DROP_NEWEST, QUEUE), (OverflowPolicy.REFUSE, MESSAGES)])
def test_for_who_is_away_the_queue_is_what_it_is_unless_nothing_may_be_dropped(
    policy: OverflowPolicy, kept: int, seed: int
) -> None:
    outage = Outage(seed, queue_full=policy)
    away, _ = outage.readers
    away.cut()
    outage.publish()
    outage.wait(SECOND)
    assert outage.dropped == MESSAGES - kept
    away.connect()
    outage.wait(30 * SECOND)
    assert len(away.received) == kept
