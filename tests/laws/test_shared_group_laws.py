"""A group loses nothing while one of its members comes back: QoS 2 reaches it exactly once, QoS 1 at least once."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from edgebridge.frontend.options import FrontendOptions
from edgebridge.wire.dialect import DIALECTS
from edgebroker.instants import MILLISECOND, SECOND
from edgebroker.log_schema import Cause
from edgebroker.storage.deliverylog.writer import DeliveryLog
from edgelab.simworld.broker import SimulatedBroker
from edgelab.simworld.checkers import unaccounted, unbalanced
from edgelab.simworld.conditions import LineConditions, anywhere
from edgelab.simworld.participant import Participant
from edgelab.simworld.simulation import Simulation
from edgelab.simworld.store import SimulatedStore

MEMBERS, PUBLISHERS, ACTIONS, RUNS = 4, 2, 120, 12
GROUPS = ("$share/g/t/#", "$share/g/$filter/n >= 0/t/+", "$share/h/t/#")
"""The second is what the first is, for the messages of this run; and yet each is a group of its own."""


class Shift:
    """Workers that lose their lines and keep their sessions, and publishers that lose neither."""

    def __init__(self, seed: int, sharing: str, crashes: float = 0.0) -> None:
        """*crashes*: how likely an action is that the power fails; then there is a disk."""
        self.simulation = Simulation(seed)
        self._crashes = crashes
        self.crashed = 0
        store = SimulatedStore(self.simulation) if crashes else None
        self.log = DeliveryLog("gateway", "boot")
        self.head = self.log.header(0, 0)
        options = FrontendOptions(inflight_max=3, sharing=sharing)
        self.broker = SimulatedBroker(self.simulation, options, self.log, store=store)
        self.workers = [self._participant(f"worker-{number}", True) for number in range(MEMBERS)]
        self.publishers = [self._participant(f"publisher-{number}", True) for number in range(PUBLISHERS)]
        self.everybody = self.workers + self.publishers
        self._numbers = 0

    def _participant(self, name: str, kept: bool) -> Participant:
        chance = self.simulation.random
        conditions = LineConditions((0, chance.choice([1, 50]) * MILLISECOND), anywhere)
        return Participant(name, self.broker, chance.choice(DIALECTS), kept, chance.choice([1, 2, 20]), conditions)

    def run(self) -> None:
        chance = self.simulation.random
        for one in self.everybody:
            one.connect()
        self._pass(SECOND)
        for worker in self.workers:
            for text in GROUPS:
                assert worker.subscribe(text, 2)
        self._pass(SECOND)
        for _ in range(ACTIONS):
            self._pass(chance.randrange(30) * MILLISECOND)
            lot = chance.random()
            if chance.random() < self._crashes:
                self.broker.crash(is_power_cut=chance.random() < 0.7)
                self.crashed += 1
            worker = chance.choice(self.workers)
            if lot < 0.75:
                self._publish(chance.choice(self.publishers))
            elif lot < 0.85:
                worker.cut()
            else:
                for one in (worker, *self.publishers):
                    if not one.client.is_connected:
                        one.connect()
        for _ in range(200):
            for one in self.everybody:
                if not one.client.is_connected:
                    one.connect()
            self._pass(SECOND)
            if not self.broker.ledger.queued and all(one.is_settled for one in self.everybody):
                return
        raise AssertionError(f"{self.broker.ledger.queued} copies are still open")

    def _publish(self, publisher: Participant) -> None:
        self._numbers += 1
        payload = f'{{"n":{self._numbers}}}'
        publisher.publish(f"t/{self._numbers % 3}", payload.encode(), self.simulation.random.choice([1, 2]))

    def _pass(self, length: int) -> None:
        self.simulation.run_until(self.simulation.now + length)


@pytest.mark.parametrize("sharing", ["fair", "sticky"])
def test_each_group_hears_everything(seed: int, chance: random.Random, sharing: str) -> None:
    handed_over = 0
    for number in range(RUNS):
        shift = Shift(seed + number, sharing)
        shift.run()
        said = {said.payload: said.qos for publisher in shift.publishers for said in publisher.published}
        heard = Counter(one.payload for worker in shift.workers for one in worker.received)
        assert said.keys() == heard.keys(), f"seed {seed + number}"
        for payload, qos in said.items():
            times = heard[payload]
            assert times == len(GROUPS) if qos == 2 else times >= len(GROUPS), f"seed {seed + number}: {payload!r}"
        assert not list(unaccounted(shift.broker, shift.everybody))
        ledger = shift.broker.ledger
        moved = ledger.dropped.get(Cause.HANDED_OVER, 0)
        assert ledger.matched == ledger.published * len(GROUPS) + moved
        assert ledger.delivered == ledger.published * len(GROUPS)
        handed_over += moved
        shift.broker.stop()
        log = shift.head + b"".join(shift.log.take(shift.simulation.now, closing=True))
        assert not list(unbalanced(log))
        assert len(shift.broker.frontend.node.groups) == len(GROUPS)
    assert handed_over > RUNS  # otherwise this law has seen nothing


@pytest.mark.parametrize("sharing", ["fair", "sticky"])
def test_each_group_hears_everything_over_crashes(seed: int, chance: random.Random, sharing: str) -> None:
    """P2, P3: at least once at QoS 1, exactly once at QoS 2, though copies change hands and the power fails."""
    crashed = 0
    for number in range(RUNS):
        shift = Shift(seed + number, sharing, crashes=0.03)
        shift.run()
        crashed += shift.crashed
        heard = Counter(one.payload for worker in shift.workers for one in worker.received)
        for publisher in shift.publishers:
            for said in publisher.published:
                times = heard[said.payload]
                assert times >= len(GROUPS), f"seed {seed + number}: {said} was heard {times} times"
                assert said.qos == 1 or times == len(GROUPS), f"seed {seed + number}: {said} was heard {times} times"
    assert crashed > RUNS  # otherwise this law has seen nothing
