"""Full link outboxes behind remote publishers: acknowledged messages are kept, further ones are refused.

EDGEBROKER_BACKPRESSURE_TRIALS=1000 pytest tests/laws/test_overlay_backpressure.py
"""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random

import pytest

from edgebridge.frontend.federation import link_setup
from edgebridge.wire.dialect import V5
from edgebroker.instants import MILLISECOND, MINUTE, SECOND
from edgebroker.overlay.link.options import LinkOptions
from edgebroker.overlay.link.outbox import OutboxBounds
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgelab.simworld.broker import FAIR
from edgelab.simworld.checkers import doubled, missed, unaccounted, unwanted
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.simulation import Simulation

TRIALS = int(os.environ.get("EDGEBROKER_BACKPRESSURE_TRIALS", "3"))
ROOM = 64
ASKED = ("t", "t/#", "$filter/v%3C7/t", "#")


class Trial:
    """A federation with publishers everywhere, in which a gateway with a reader is dead for long."""

    def __init__(self, number: int) -> None:
        self.chance = Random(number)
        self.simulation = Simulation(number)
        path, clusters = self.chance.choice([("a-b", 1), ("a-b-c", 1), ("a-b", 2), ("a-b-c", 2), ("a-b", 3)])
        topology = Topology.product(Scot(Factor.parse(path), clusters))
        self.gateways = SimulatedGateways(self.simulation, topology, is_stored=True)
        self.gateways.wait_for_links()
        self.dead, *self.others = self.chance.sample([*self.gateways], len(self.gateways.by_name))
        self.publishers = [Participant(f"publisher-{one.name}", one, V5, True, 20, FAIR) for one in self.others]
        self.readers = [
            Participant(f"reader-{one.name}", one, V5, True, 20, FAIR) for one in (self.dead, self.others[0])
        ]
        for one in (*self.publishers, *self.readers):
            one.connect()
        self.wait(SECOND)
        for reader in self.readers:
            reader.subscribe(self.chance.choice(ASKED), 2)
        self.wait(2 * SECOND)
        self.said = 0

    def wait(self, length: int) -> None:
        self.simulation.run_until(self.simulation.now + length)

    def talk(self, times: int) -> None:
        for _ in range(times):
            self.said += 1
            value = self.chance.randrange(10)
            payload = b'{"v": %d, "n": %d}' % (value, self.said)
            topic = self.chance.choice(["t", "t/u", "w"])
            self.chance.choice(self.publishers).publish(topic, payload, self.chance.choice((1, 2)))
            self.wait(self.chance.randrange(100, 300) * MILLISECOND)

    def live(self) -> None:
        self.talk(10)
        self.wait(5 * SECOND)
        self.dead.power_off(self.chance.random() < 0.5)
        self.wait(30 * SECOND)
        while not any(one.refused for one in self.publishers):
            self.talk(ROOM)
            assert self.said < 16 * ROOM, "the outboxes are too wide"
        for _ in range(2):
            self.talk(ROOM)
            other = self.chance.choice(self.others)
            other.crash(self.chance.random() < 0.5)
            self.wait(30 * SECOND)
            for one in (*self.publishers, *self.readers[1:]):
                if not one.client.is_connected:
                    one.connect()
            self.wait(SECOND)
        self.talk(ROOM)
        self.dead.power_on()
        self.wait(2 * MINUTE)
        for one in (*self.publishers, *self.readers):
            one.connect()
        self.wait(MINUTE)


@pytest.mark.parametrize("trial", range(TRIALS))
def test_what_was_acknowledged_comes_and_the_rest_was_refused(
    trial: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = link_setup.link_options

    def narrow(topology: Topology, name: str, peer: str) -> LinkOptions:
        return replace(usual(topology, name, peer), bounds=OutboxBounds(messages=ROOM))

    monkeypatch.setattr(link_setup, "link_options", narrow)
    made = Trial(seed + trial)
    made.live()
    everybody = [*made.publishers, *made.readers]
    assert [*missed(everybody, made.readers, {text: 2 for one in made.readers for text in one.requested})] == []
    assert [*unwanted(everybody)] == []
    assert [*doubled(everybody)] == []
    assert [text for gateway in made.gateways for text in unaccounted(gateway, [])] == []
