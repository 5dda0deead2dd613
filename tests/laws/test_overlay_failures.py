"""Whichever links of a region are down, as long as there are fewer than clusters: everybody is served at once (P9)."""

from __future__ import annotations

from random import Random

import pytest

from edgebroker.instants import SECOND

from .overlay.trials import DYNAMIC, TOPICS, Trial, some_topology

TRIALS = 120


def broken(chance: Random) -> Trial:
    """A federation in which fewer iLinks than clusters were cut after everybody knew everything."""
    topology = some_topology(chance)
    while len(topology.sites) < 2 or topology.tolerated_connections == 0:
        topology = some_topology(chance)
    trial = Trial(chance, topology)
    for _ in range(8):
        trial.subscribe()
    trial.settle()
    for host in trial.names:
        for topic in TOPICS if chance.random() < 0.5 or not trial.federation.options.wants_answers else ():
            trial.federation.perform(host, trial.federation.peers[host].advertise(f"c@{host}", topic, 1))
    trial.settle()
    i_links = [
        pair for pair in trial.federation.pairs() if topology.gateway(pair[0]).site != topology.gateway(pair[1]).site
    ]
    for pair in chance.sample(i_links, min(len(i_links), chance.randint(1, topology.tolerated_connections))):
        trial.federation.cut(*pair)
    return trial


@pytest.mark.parametrize("shard", range(4))
def test_everybody_is_served_around_links_that_are_down(shard: int, seed: int) -> None:
    print(f"EDGEBROKER_TEST_SEED={seed} .venv/bin/pytest '{__file__}' -k 'down and {shard}'")
    detours = 0
    for number in range(TRIALS // 4):
        chance = Random(seed * 10_000 + shard * 1_000 + number)
        trial = broken(chance)
        for _ in range(10):
            if trial.federation.options is DYNAMIC:
                trial.crowd()
            host, topic, value = trial.publish()
            handed = trial.arrive()
            wanting = trial.wanting(topic, value) - {host}
            assert wanting <= handed.keys(), (
                f"trial {number}: {topic} of {host} never came to {wanting - handed.keys()}"
            )
            assert max(handed.values(), default=1) == 1, f"trial {number}: {handed}"
            assert not any(trial.federation.outboxes.values()), f"trial {number}: something waits for a dead link"
        detours += sum(sum(peers.forwarder.cases.values()) for peers in trial.federation.peers.values())
    assert detours, "no dead link was ever met"


def test_what_is_told_while_a_link_is_down_is_known_when_it_is_up(chance: Random) -> None:
    for _ in range(30):
        trial = Trial(chance)
        for _ in range(6):
            trial.subscribe()
        trial.settle()
        pairs = trial.federation.pairs()
        cut = chance.sample(pairs, chance.randint(0, len(pairs)))
        for pair in cut:
            trial.federation.cut(*pair)
        for _ in range(8):
            trial.churn()
        trial.settle()
        for pair in cut:
            trial.federation.connect(*pair)
        trial.settle()
        trial.federation.advance(3 * SECOND)
        for _ in range(10):
            trial.check(is_calm=True)
