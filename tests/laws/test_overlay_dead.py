"""Gateways that are dead: their clusters are joined again around them, and nothing is lost or doubled (P9).

Whichever gateways are dead, as long as there are fewer than clusters: every choice of them in small federations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import combinations
from random import Random

import pytest

from edgebroker.instants import MINUTE, SECOND
from edgebroker.overlay.messages import Forward, Relay
from edgebroker.overlay.reorder_buffer import BROKEN_WAIT_MAX
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgelab.simworld.federation import Federation

from .overlay.trials import some_topology

SHAPES = (("a-b-c", 2, 1), ("a-b-c", 3, 1), ("a-b-c", 3, 2), ("a-b-c-d", 2, 1))
CASES = [
    (path, clusters, dead)
    for path, clusters, count in SHAPES
    for dead in combinations([one.name for one in Topology.product(Scot(Factor.parse(path), clusters)).gateways], count)
]
STORMS = 40
OLD, NEW, LATE = 1, 2, 3
TOPICS = {OLD: "t", NEW: "n", LATE: "l"}


class Life:
    """A federation in which every gateway has clients: one asks for OLD from the beginning."""

    def __init__(self, path: str, clusters: int) -> None:
        self.federation = Federation(Topology.product(Scot(Factor.parse(path), clusters)))
        self.federation.connect_all()
        self.names = [gateway.name for gateway in self.federation.topology.gateways]
        self.asked: dict[str, set[int]] = {name: {OLD} for name in self.names}
        for name in self.names:
            self.federation.subscribe(name, OLD, "t/#")
        self.federation.settle()
        self.federation.advance(2 * SECOND)

    def change(self, names: Iterable[str], gone: set[int], new: set[int]) -> None:
        """Clients of *names* ask for other things from now on."""
        for name in names:
            for number in gone:
                self.federation.unsubscribe(name, number)
            for number in new - self.asked[name]:
                self.federation.subscribe(name, number, f"{TOPICS[number]}/#")
            self.asked[name] = self.asked[name] - gone | new
        self.federation.settle()
        self.federation.advance(SECOND)

    @property
    def living(self) -> list[str]:
        return [*self.federation.peers]

    def publish(self, topic: str) -> Counter[str]:
        """Somebody publishes at every gateway that lives; return how often each gateway was handed anything."""
        self.federation.local_deliveries.clear()
        for name in self.living:
            self.federation.publish(name, f"p@{name}", topic)
        self.federation.settle()
        self.federation.advance(BROKEN_WAIT_MAX)
        return self.came()

    def came(self) -> Counter[str]:
        """How often each gateway was handed an event that its clients ask for, none twice."""
        handed = Counter((one.gateway, one.forward.header.eid) for one in self.federation.local_deliveries)
        assert max(handed.values(), default=1) == 1
        asked = {(name, TOPICS[number]) for name, numbers in self.asked.items() for number in numbers}
        return Counter(
            one.gateway for one in self.federation.local_deliveries if (one.gateway, one.forward.topic[0]) in asked
        )

    def expected(self) -> Counter[str]:
        """One event from everybody else."""
        return Counter({name: len(self.living) - 1 for name in self.living})


@pytest.mark.parametrize(("path", "clusters", "dead"), CASES, ids=lambda value: str(value).replace("'", ""))
def test_clusters_are_joined_around_the_dead_and_heal(path: str, clusters: int, dead: tuple[str, ...]) -> None:
    life = Life(path, clusters)
    federation = life.federation
    assert life.publish("t/1") == life.expected()
    for name in dead:
        federation.kill(name)
    federation.settle()
    federation.advance(3 * SECOND)
    survivors = life.living
    life.change(survivors, set(), {NEW})
    assert life.publish("t/2") == life.expected(), "an old subscription"
    assert life.publish("n/1") == life.expected(), "one made while they were dead"
    life.change(survivors, {NEW}, {LATE})
    federation.local_deliveries.clear()
    for name in dead:
        federation.revive(name, {OLD: "t/#"})
    federation.settle()
    federation.advance(2 * MINUTE)
    assert life.came() == Counter(dict.fromkeys(dead, len(survivors))), "what was for the dead comes to them alone"
    assert not any(peers.gossip.relay.is_active for peers in federation.peers.values())
    federation.sent.clear()
    assert life.publish("t/3") == life.expected()
    life.change(life.living, set(), {LATE})
    assert life.publish("l/1") == life.expected()
    assert life.publish("n/2") == Counter()
    assert not any(isinstance(message, Relay) for _, _, message in federation.sent)
    assert not any(federation.outboxes.values())
    assert not any(peers.forwarder.duplicates for peers in federation.peers.values()), "one way to each, chosen once"


def test_who_stands_in_is_told_what_is_wanted_and_gets_nothing_else() -> None:
    life = Life("a-b-c", 3)
    federation = life.federation
    federation.kill("b.0")
    federation.settle()
    federation.advance(3 * SECOND)
    for one, other in (("a.0", "c.0"), ("c.0", "a.0")):
        assert federation.peers[one].interests.is_known(other)
    federation.sent.clear()
    for name in ("a.0", "c.0"):
        federation.publish(name, f"p@{name}", "nobody/asks")
    federation.settle()
    assert not [message for _, _, message in federation.sent if isinstance(message, Forward | Relay)]


class Storm:
    """Gateways die and connections are cut, at any moment, fewer at once than are tolerated; then all is mended.

    All of it takes less than a minute: so long a gateway that began anew keeps for a dead neighbour whatever comes.
    """

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        topology = some_topology(chance)
        while not topology.tolerated_gateways or len(topology.gateways) < 3:
            topology = some_topology(chance)
        self.federation = Federation(topology)
        self.federation.connect_all()
        self.names = [gateway.name for gateway in topology.gateways]
        self.asking = [name for name in self.names if chance.random() < 0.7]
        for name in self.asking:
            self.federation.subscribe(name, OLD, "t/#")
        for name in self.names:
            self.federation.publish(name, f"p@{name}", "t/first")
        self.federation.settle(chance)
        self.federation.advance(2 * SECOND)
        self.federation.local_deliveries.clear()
        self.published: dict[tuple[int, int], str] = {}
        self.cut: list[tuple[str, str]] = []
        self.dead: list[str] = []

    def act(self) -> None:
        """Something happens."""
        federation, chance = self.federation, self.chance
        lot = chance.random()
        faults = len(self.dead) + len(self.cut)
        if lot < 0.15 and faults < federation.topology.tolerated_connections:
            if chance.random() < 0.5:
                self.dead.append(chance.choice([*federation.peers]))
                federation.kill(self.dead[-1])
            elif federation.links:
                self.cut.append(chance.choice([*federation.links]))
                federation.cut(*self.cut[-1])
        elif lot < 0.25 and faults:
            self.mend()
        elif lot < 0.5:
            federation.advance(chance.choice((SECOND // 10, SECOND, 2 * SECOND, 3 * SECOND)))
        elif lot < 0.75:
            for _ in range(chance.randrange(12)):
                busy = [pair for pair, messages in federation.links.items() if messages]
                if busy:
                    federation.deliver(chance.choice(busy))
        else:
            host = chance.choice([*federation.peers])
            federation.publish(host, f"p@{host}", "t/x", may_wait=False)
            self.published[federation.peers[host].last_event_id] = host

    def mend(self) -> None:
        """One fault less."""
        federation = self.federation
        if self.dead and (not self.cut or self.chance.random() < 0.5):
            name = self.dead.pop(self.chance.randrange(len(self.dead)))
            federation.revive(name, {OLD: "t/#"} if name in self.asking else {})
            for pair in [pair for pair in self.cut if name in pair and pair in federation.links]:
                federation.cut(*pair)
        else:
            pair = self.cut.pop(self.chance.randrange(len(self.cut)))
            if not set(pair) & set(self.dead) and pair not in federation.links:
                federation.connect(*pair)

    def check(self) -> None:
        federation = self.federation
        while self.dead or self.cut:
            self.mend()
            federation.advance(self.chance.choice((SECOND // 10, 3 * SECOND)))
        federation.settle(self.chance)
        federation.advance(2 * MINUTE)
        handed = Counter((one.gateway, one.forward.header.eid) for one in federation.local_deliveries)
        assert max(handed.values(), default=1) == 1, "something came twice"
        for eid, host in self.published.items():
            missed = [name for name in self.asking if name != host and (name, eid) not in handed]
            assert not missed, f"{eid} of {host} never came to {missed}"
        assert not any(federation.outboxes.values())
        assert not any(peers.gossip.relay.is_active for peers in federation.peers.values())


@pytest.mark.parametrize("shard", range(4))
def test_nothing_is_lost_or_doubled_whoever_dies_whenever(shard: int, seed: int) -> None:
    print(f"EDGEBROKER_TEST_SEED={seed} .venv/bin/pytest '{__file__}' -k 'whenever and {shard}'")
    for number in range(STORMS // 4):
        storm = Storm(Random(seed * 10_000 + shard * 1_000 + number))
        try:
            for _ in range(60):
                storm.act()
            storm.check()
        except AssertionError as error:
            raise AssertionError(f"storm {number}: {error}") from error
