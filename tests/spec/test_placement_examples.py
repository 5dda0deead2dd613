"""The worked examples of [GRAPE] with exact values: POP on the tree of figure 1, bit vectors, GRAPE on a line."""

from __future__ import annotations

from random import Random

import pytest

from edgebroker.header import EventHeader
from edgebroker.instants import MINUTE, SECOND
from edgebroker.relocation.delay_monitor import DelayMonitor
from edgebroker.relocation.delivery_tree import DeliveryTree
from edgebroker.relocation.messages import (
    ClosestBroker,
    MigrationEnd,
    RelocationRequest,
    SessionEnd,
)
from edgebroker.relocation.placement import (
    PlacementGoal,
    PlacementPriority,
    PlacementRefusal,
    choose,
    normalised,
    survivors,
)
from edgebroker.relocation.pop import PopOptions, PublisherProfile, TraceSampler
from edgebroker.relocation.trace_recorder import TraceRecorder
from edgebroker.trace_records import QueueDelays
from tests.support.relocation import PUBLISHER, RelocationNetwork, neighbours_of, one_cluster, record_of

FIGURE_1 = neighbours_of("B1-B2", "B1-B4", "B1-B5", "B2-B3", "B5-B6", "B6-B7", "B6-B8")
SUBSCRIBERS = {"B1": 1, "B2": 4, "B3": 2, "B4": 3, "B6": 3, "B7": 7, "B8": 5}
ONCE = PopOptions(traces=1)

# -- POP ---------------------------------------------------------------------------------------------------------------


def closest(root: str, subscribers: dict[str, int]) -> tuple[RelocationNetwork, tuple[str, ...]]:
    """Where POP ends after one traced event at *root*."""
    network = RelocationNetwork(FIGURE_1, ONCE)
    assert network.gateways[root].tracer.is_traced(PUBLISHER, network.now, 0.0)
    network.publish(root, 1, subscribers)
    found = network.results.pop()
    assert isinstance(found, ClosestBroker)
    return network, found.path


def test_pop_walks_from_b1_to_b6() -> None:
    network, path = closest("B1", SUBSCRIBERS)
    assert path == ("B6", "B5", "B1")
    requests = [
        (sender, peer, message) for sender, peer, message in network.sent if isinstance(message, RelocationRequest)
    ]
    assert requests == [
        ("B1", "B5", RelocationRequest(PUBLISHER, 10, ("B1",))),
        ("B5", "B6", RelocationRequest(PUBLISHER, 10, ("B5", "B1"))),
    ]


def test_b6_is_where_subscribers_are_the_fewest_hops_away() -> None:
    def hops(root: str) -> int:
        waiting, total = [(root, root, 0)], 0
        for broker, before, far in waiting:
            total += far * SUBSCRIBERS.get(broker, 0)
            waiting += [(other, broker, far + 1) for other in FIGURE_1[broker] if other != before]
        return total

    found = {name: hops(name) for name in FIGURE_1}
    assert found == {"B1": 53, "B2": 66, "B3": 87, "B4": 72, "B5": 48, "B6": 43, "B7": 54, "B8": 58}


def test_pop_stays_where_it_is_closest_already_and_at_a_tie() -> None:
    assert closest("B6", SUBSCRIBERS)[1] == ("B6",)
    assert closest("B1", SUBSCRIBERS | {"B1": 11})[1] == ("B1",)
    assert closest("B1", SUBSCRIBERS | {"B1": 6})[1] == ("B1",), "15 = 15"


def test_the_migration_passes_the_path_and_comes_back_behind_the_last_event() -> None:
    network, path = closest("B1", SUBSCRIBERS)
    network.sent.clear()
    network.perform("B6", network.gateways["B6"].migrations.begin(PUBLISHER, path))
    assert [name for name in path if network.gateways[name].forgotten == [PUBLISHER]] == [*path]
    assert network.results == [], "the publisher has not fallen silent"
    network.perform("B1", network.gateways["B1"].migrations.fall_silent(PUBLISHER))
    assert network.results == [MigrationEnd(PUBLISHER)]
    assert [(sender, peer) for sender, peer, _ in network.sent] == [
        ("B6", "B5"),
        ("B5", "B1"),
        ("B1", "B5"),
        ("B5", "B6"),
    ], "2 (M - 1) messages for a path of M gateways"


def test_the_probability_of_a_trace_falls_with_each_trace_of_the_window() -> None:
    sampler = TraceSampler(PopOptions())
    found = []
    for traced in range(51):
        if traced in (0, 25, 49, 50):
            found.append(round(sampler.probability, 9))
        sampler.is_traced(1, 0.0)
    assert found == [1, 0.5, 0.02, 0]
    assert not sampler.is_traced(MINUTE, 0.0)
    assert sampler.is_traced(MINUTE + 1, 0.99), "the first event of a window is always traced"


@pytest.mark.parametrize(("events", "expected"), [(50, 31.8), (100, 43.4)])
def test_so_many_events_of_a_window_are_traced(events: int, expected: float) -> None:
    chance = Random(1)
    counts = []
    for _ in range(300):
        sampler = TraceSampler(PopOptions())
        counts.append(sum(sampler.is_traced(1, chance.random()) for _ in range(events)))
    assert sum(counts) / len(counts) == pytest.approx(expected, abs=0.7)


def test_the_running_average_of_10_20_20() -> None:
    profile = PublisherProfile()
    found = []
    for sample in (10, 20, 20):
        profile.add("B2", sample)
        found.append(profile.clients["B2"])
    assert found == [10, 12.5, 14.375]


# -- bit vectors -------------------------------------------------------------------------------------------------------


def test_the_bit_vector_of_a_session_that_begins_with_212() -> None:
    recorder = TraceRecorder("X", DelayMonitor(()))
    for sequence, clients in ((212, 1), (213, 4), (214, 0), (216, 2)):
        recorder.record(EventHeader(PUBLISHER, sequence, 0, 0, trace=212), (), clients, False, 1)
    (end,) = recorder.collect(PUBLISHER, 212, 1)
    assert isinstance(end, SessionEnd)
    (record,) = end.records
    assert (record.delivered, record.delivered.bit_count(), record.deliveries) == (0b10011, 3, 7)
    assert (record.delivered | 0b00110, (record.delivered | 0b00110).bit_count()) == (0b10111, 4)


# -- GRAPE on the line X - Y - Z, publisher at X, 8 traced events ------------------------------------------------------

LINE = neighbours_of("X-Y", "Y-Z")
RECORDS = (
    record_of("X", 0b0000_0001, 10, QueueDelays(1, 2, 1, {"Y": 1}, {"Y": 10})),
    record_of("Y", 0b0000_0011, 4, QueueDelays(2, 4, 1, {"X": 1, "Z": 1}, {"X": 10, "Z": 20})),
    record_of("Z", 0b1111_1111, 8, QueueDelays(1, 2, 1, {"Y": 1}, {"Y": 20})),
)
PINGS = {"X": 2, "Y": 14, "Z": 30}


def costs(with_links: bool = False) -> tuple[dict[str, float], dict[str, float]]:
    tree = DeliveryTree(one_cluster(LINE), RECORDS, with_links)
    loads = {broker: float(tree.load(broker)) for broker in tree.brokers}
    return loads, {broker: tree.delay(broker, ping) for broker, ping in PINGS.items()}


def test_loads_and_delays_on_the_line() -> None:
    loads, delays = costs()
    assert loads == {"X": 24, "Y": 17, "Z": 11}
    assert delays == {"X": 226 / 22, "Y": 380 / 22, "Z": 556 / 22}
    assert {broker: round(delay, 3) for broker, delay in costs(with_links=True)[1].items()} == {
        "X": 23.0,
        "Y": 29.091,
        "Z": 42.545,
    }


def test_normalised_costs_on_the_line() -> None:
    loads, delays = costs()
    assert {broker: round(cost, 2) for broker, cost in normalised(delays).items()} == {"X": 0, "Y": 46.67, "Z": 100}
    assert {broker: round(cost, 2) for broker, cost in normalised(loads).items()} == {"X": 100, "Y": 46.15, "Z": 0}
    assert round(normalised(costs(with_links=True)[1])["Y"], 2) == 31.16
    assert normalised({"X": 5.0, "Y": 5.0}) == {"X": 0, "Y": 0}


@pytest.mark.parametrize("with_links", [False, True])
@pytest.mark.parametrize(
    ("priority", "weight", "target"),
    [
        ("delay", 100, "X"),
        ("delay", 50, "Y"),
        ("load", 100, "Z"),
        ("load", 50, "Y"),
        ("delay", 1, "Y"),
        ("load", 1, "Y"),
    ],
)
def test_choices_on_the_line(priority: str, weight: int, target: str, with_links: bool) -> None:
    goal = PlacementGoal(PlacementPriority(priority), weight, gain_min=0)
    assert choose(goal, "X", *costs(with_links)).target == target


def test_with_priority_on_load_only_survivors_are_asked_for_their_distance() -> None:
    loads, delays = costs()
    goal = PlacementGoal(PlacementPriority.LOAD, 50)
    asked = {*survivors(loads, goal.weight), "X"}
    assert asked == {"X", "Y", "Z"}
    assert survivors(loads, 60) == ["Z"]
    few = {broker: delays[broker] for broker in ("X", "Z")}
    assert choose(PlacementGoal(PlacementPriority.LOAD, 60), "X", loads, few).target == "Z"


def test_a_move_must_gain_five_percent() -> None:
    goal = PlacementGoal(PlacementPriority.DELAY, 100)
    loads = {"X": 10.0, "Y": 10.0}
    assert choose(goal, "X", loads, {"X": 100.0, "Y": 96.0}).refusal is PlacementRefusal.GAIN
    assert choose(goal, "X", loads, {"X": 100.0, "Y": 95.0}).refusal is None
    assert choose(goal, "X", {"X": 10.0, "Y": 9.0}, {"X": 100.0, "Y": 100.0}).target == "Y", "the same delay, less load"
    assert choose(goal, "X", loads, {"X": 100.0, "Y": 100.0}).refusal is PlacementRefusal.BEST
    wide = PlacementGoal(PlacementPriority.DELAY, 50)
    third = {"X": 10.0, "Y": 9.0, "Z": 20.0}
    assert choose(wide, "X", third, {"X": 10.0, "Y": 12.0, "Z": 20.0}).target == "Y", "near enough, and less load"


def test_a_delay_is_the_median_of_the_latest_and_no_longer_than_a_session() -> None:
    monitor = DelayMonitor(("Y",))
    for waited in [10] * 60 + [SECOND] * 41:
        monitor.add_input(waited, 3)
        monitor.add_output("Y", waited)
    monitor.add_clients(5)
    monitor.set_link("Y", 77)
    assert monitor.snapshot() == QueueDelays(10, 3, 5, {"Y": 10}, {"Y": 77})
    for _ in range(200):
        monitor.add_input(4, 9)
    assert (monitor.snapshot().input, monitor.snapshot().matching) == (4, 9)
