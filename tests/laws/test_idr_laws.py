"""The invariants of dynamic routing [SCOT 2.8], whichever links are congested, on products of any small tree and K_m.

EDGEBROKER_IDR_CASES=100000 .venv/bin/pytest -n 2 tests/laws/test_idr_laws.py     as many cases as wanted

I1  every target cluster is entered exactly once, and every broker sees an event at most once
I2  it ends: no way is longer than m (diam + 1) links
I3  no routing state changes
I4  all subscribers are served
"""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest

from edgebroker.federation.options import FederationOptions
from edgebroker.overlay.messages import Forward
from edgebroker.overlay.routing import RoutingCase
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology

from .overlay.trials import Trial, some_factor

CASES = int(os.environ.get("EDGEBROKER_IDR_CASES", "4_000"))
SHARDS = 4
PER_PLACEMENT = 50
AS_PUBLISHED = FederationOptions(is_dynamic=True, sorts=False, is_precise=False, is_covering=False, wants_answers=False)


def state(trial: Trial) -> list[object]:
    """All that decides where events go, but for congestion."""
    found: list[object] = []
    for peers in trial.federation.peers.values():
        found += [(record.advertise, record.targets) for record in peers.region.advertisements]
        found += [peers.interests.announced_by(peer) for peer in peers.gateway.neighbours]
    return found


def checked(trial: Trial, cases: Counter[RoutingCase]) -> None:
    """Publish one event under new congestion, and check all of it."""
    topology = trial.federation.topology
    trial.crowd()
    before = state(trial)
    host, topic, value = trial.publish()
    first = state(trial)
    handed = trial.arrive()
    assert state(trial) == first, "I3"
    assert before == first or len(before) < len(first), "I3: only the publisher's own advertisement may be new"
    assert all(times == 1 for times in handed.values()), f"I1: {handed}"
    assert host not in handed, "I1"
    assert trial.wanting(topic, value) - {host} <= handed.keys(), "I4"
    depths, entries = {host: 0}, Counter[int]()
    for sender, peer, message in trial.federation.sent:
        if isinstance(message, Forward):
            assert peer not in depths, f"I1: {peer} is sent two copies"
            depths[peer] = depths[sender] + 1
            if topology.gateway(sender).cluster != topology.gateway(peer).cluster:
                entries[topology.gateway(peer).cluster] += 1
    targets = trial.interested(topic) - {topology.gateway(host).cluster}
    assert entries == Counter(targets), "I1: each target cluster is entered once"
    assert max(depths.values()) <= len(topology.sites) * (topology.factor.diameter + 1), "I2"
    for peers in trial.federation.peers.values():
        cases.update(peers.forwarder.cases)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_the_invariants_hold(shard: int, seed: int) -> None:
    print(f"EDGEBROKER_TEST_SEED={seed} EDGEBROKER_IDR_CASES={CASES} .venv/bin/pytest '{__file__}' -k '{shard}'")
    chance = Random(seed * 10 + shard)
    cases = Counter[RoutingCase]()
    left = CASES // SHARDS
    while left > 0:
        factor = Factor.parse("a-b-c") if chance.random() < 0.5 else some_factor(chance, 5)
        topology = Topology.product(Scot(factor, chance.choice((2, 3, 3, 4))))
        trial = Trial(chance, topology, AS_PUBLISHED)
        for _ in range(chance.randint(1, 8)):
            trial.subscribe()
        trial.settle()
        for _ in range(PER_PLACEMENT):
            checked(trial, cases)
        left -= PER_PLACEMENT
    met = {case for case, times in cases.items() if times}
    assert {RoutingCase.ANOTHER_CLUSTER, RoutingCase.NEIGHBOUR, RoutingCase.LAST_RESORT} <= met
