"""Laws of placement on random trees: rerooting equals the direct walk, POP ends at a weighted median."""

from __future__ import annotations

from random import Random

import pytest

from edgebroker.instants import SECOND
from edgebroker.relocation.delivery_tree import DeliveryTree, OverlayTrees
from edgebroker.relocation.messages import ClosestBroker, SessionEnd
from edgebroker.relocation.placement import PlacementGoal, PlacementPriority, choose
from edgebroker.relocation.pop import PopOptions
from edgebroker.trace_records import QueueDelays, TraceRecord
from tests.support.relocation import (
    PUBLISHER,
    Neighbours,
    RelocationNetwork,
    neighbours_of,
    one_cluster,
    record_of,
    walked_load,
    walked_times,
)

TREES = 2_000
"""Run by hand with 100,000: no difference."""
EVENTS = 12


def random_tree(chance: Random, brokers: int, prefix: str = "b") -> dict[str, list[str]]:
    if brokers == 1:
        return {f"{prefix}0": []}
    return neighbours_of(*(f"{prefix}{chance.randrange(one)}-{prefix}{one}" for one in range(1, brokers)))


def random_records(chance: Random, neighbours: Neighbours, others: dict[str, list[str]]) -> dict[str, TraceRecord]:
    """Some gateways have a record, some of them readers."""
    records = {}
    for broker in neighbours:
        if chance.random() < 0.8:
            peers = [*neighbours[broker], *others.get(broker, ())]
            outputs = {peer: chance.randrange(50) for peer in peers if chance.random() < 0.8}
            links = {peer: chance.randrange(90) for peer in peers if chance.random() < 0.8}
            delays = QueueDelays(*(chance.randrange(40) for _ in range(3)), outputs or None, links or None)
            delivered = chance.getrandbits(EVENTS) & chance.getrandbits(EVENTS) if chance.random() < 0.6 else 0
            deliveries = delivered.bit_count() * chance.randrange(1, 5)
            records[broker] = record_of(broker, delivered, deliveries, delays)
    return records


@pytest.mark.parametrize("seed", range(4))
def test_rerooting_equals_the_direct_walk_on_random_trees(seed: int) -> None:
    chance = Random(f"trees {seed}")
    for number in range(TREES // 4):
        neighbours = random_tree(chance, chance.randrange(1, 14))
        records = random_records(chance, neighbours, {})
        tree = DeliveryTree(one_cluster(neighbours), records.values(), with_links=number % 2 == 0)
        deliveries = sum(record.deliveries for record in records.values())
        for broker in neighbours:
            assert tree.load(broker) == walked_load(neighbours, records, broker), (seed, number, broker)
            walked = walked_times(tree, neighbours, records, broker)
            assert tree.delay(broker, 6) == 3 + walked / max(1, deliveries), (seed, number, broker)


@pytest.mark.parametrize("is_precise", [True, False])
def test_load_and_delay_of_a_federation_equal_the_direct_walk(is_precise: bool) -> None:
    chance = Random(f"federations {is_precise}")
    for number in range(TREES // 4):
        size, count = chance.randrange(1, 7), chance.randrange(2, 5)
        factor = random_tree(chance, size, "")
        clusters = [{f"{u}.{j}": [f"{v}.{j}" for v in factor[u]] for u in factor} for j in range(count)]
        mates = {f"{u}.{j}": [f"{u}.{k}" for k in range(count) if k != j] for u in factor for j in range(count)}
        records: dict[str, TraceRecord] = {}
        for cluster in clusters:
            records |= random_records(chance, cluster, mates)
        overlay = OverlayTrees(clusters, lambda broker, j: f"{broker.partition('.')[0]}.{j}", is_precise)
        tree = DeliveryTree(overlay, records.values())
        wanted = [0] * count
        for broker, record in records.items():
            wanted[int(broker.partition(".")[2])] |= record.delivered
        everything = 0
        for vector in wanted:
            everything |= vector
        for broker in mates:
            own = int(broker.partition(".")[2])
            targets = [j for j in range(count) if j != own and wanted[j]]
            whole = clusters[own] | {broker: [*clusters[own][broker]]}
            for j in targets:  # the publisher's tree: its cluster, and an iLink to each target cluster
                entry = overlay.entry(broker, j)
                whole |= clusters[j] | {entry: [*clusters[j][entry], broker]}
                whole[broker].append(entry)
            load = walked_load(whole, records, broker)
            if not is_precise:  # every entry gets all events
                load += sum((everything & ~wanted[j]).bit_count() for j in targets)
            assert tree.load(broker) == load, (number, broker)
            deliveries = sum(record.deliveries for record in records.values())
            assert tree.delay(broker, 0) == walked_times(tree, whole, records, broker) / max(1, deliveries)


def test_full_weight_takes_the_least_of_what_has_priority() -> None:
    chance = Random("weights")
    for _ in range(200):
        brokers = [f"b{number}" for number in range(chance.randrange(1, 9))]
        loads = {broker: float(chance.randrange(6)) for broker in brokers}
        delays = {broker: float(chance.randrange(6)) for broker in brokers}
        for priority, costs in ((PlacementPriority.DELAY, delays), (PlacementPriority.LOAD, loads)):
            choice = choose(PlacementGoal(priority, 100, gain_min=0), "b0", loads, delays)
            assert costs[choice.target] == min(costs.values())


def test_a_move_is_never_followed_by_another_one_with_the_same_costs() -> None:
    chance = Random("oscillation")
    for _ in range(300):
        brokers = [f"b{number}" for number in range(chance.randrange(2, 9))]
        loads = {broker: float(chance.randrange(1, 30)) for broker in brokers}
        delays = {broker: float(chance.randrange(1, 30)) for broker in brokers}
        goal = PlacementGoal(chance.choice([*PlacementPriority]), chance.randrange(101))
        target = choose(goal, chance.choice(brokers), loads, delays).target
        assert choose(goal, target, loads, delays).refusal is not None


def hops_to_readers(neighbours: Neighbours, readers: dict[str, int], root: str) -> int:
    waiting, total = [(root, root, 0)], 0
    for broker, before, far in waiting:
        total += far * readers.get(broker, 0)
        waiting += [(other, broker, far + 1) for other in neighbours[broker] if other != before]
    return total


def test_pop_ends_at_a_weighted_median() -> None:
    chance = Random("medians")
    for number in range(TREES // 2):
        neighbours = random_tree(chance, chance.randrange(1, 12))
        readers = {broker: chance.randrange(8) for broker in neighbours if chance.random() < 0.6}
        source = chance.choice([*neighbours])
        network = RelocationNetwork(neighbours, PopOptions(traces=1))
        network.gateways[source].tracer.is_traced(PUBLISHER, 1, 0.0)
        network.publish(source, 1, readers)
        (found,) = network.results
        assert isinstance(found, ClosestBroker)
        best = min(hops_to_readers(neighbours, readers, broker) for broker in neighbours)
        assert hops_to_readers(neighbours, readers, found.path[0]) == best, (number, source, readers)


def test_a_session_brings_every_record_and_forgets_the_session() -> None:
    chance = Random("sessions")
    for number in range(TREES // 4):
        neighbours = random_tree(chance, chance.randrange(1, 12))
        source = chance.choice([*neighbours])
        network = RelocationNetwork(neighbours)
        delivered = dict.fromkeys(neighbours, 0)
        for offset in range(EVENTS):
            readers = {broker: chance.randrange(1, 4) for broker in neighbours if chance.random() < 0.2}
            network.publish(source, 5 + offset, readers, trace=5)
            for broker in readers:
                delivered[broker] |= 1 << offset
        network.perform(source, network.gateways[source].recorder.collect(PUBLISHER, 5, 1))
        (end,) = network.results
        assert isinstance(end, SessionEnd)
        assert not end.is_partial
        found = {record.broker: record for record in end.records}
        assert {broker: record.delivered for broker, record in found.items() if record.delivered} == {
            broker: vector for broker, vector in delivered.items() if vector
        }, number
        assert len(network.sent) == 2 * (len(found) - 1), "a TIR and a TIA for each link"
        assert all(not len(gateway.recorder) for gateway in network.gateways.values())
        tree = DeliveryTree(one_cluster(neighbours), end.records)
        entered = sum(record.copies for record in end.records)
        unwanted = EVENTS - sum(any(vector >> at & 1 for vector in delivered.values()) for at in range(EVENTS))
        assert tree.load(source) == entered - unwanted, "the load that was predicted is the load that was"


def test_a_gateway_that_does_not_answer_makes_the_session_partial() -> None:
    neighbours = neighbours_of("a-b", "b-c", "c-d", "a-e")
    network = RelocationNetwork(neighbours)
    network.publish("a", 1, {"d": 1, "e": 1}, trace=1)
    network.silent.add("c")
    network.perform("a", network.gateways["a"].recorder.collect(PUBLISHER, 1, network.now))
    assert network.results == []
    dues = [due for name in "ab" if (due := network.gateways[name].recorder.next_due) is not None]
    assert dues[1] + SECOND // 2 == dues[0], "b gives up before a"
    for name in "ba":
        network.now = network.gateways[name].recorder.next_due or 0
        network.perform(name, network.gateways[name].recorder.fire(network.now))
    (end,) = network.results
    assert isinstance(end, SessionEnd)
    assert end.is_partial
    assert {record.broker for record in end.records} == {"a", "b", "e"}
