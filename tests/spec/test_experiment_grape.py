"""`edgebroker experiment grape`: small runs lose nothing and find the best place, and findings name what is wrong."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from edgebroker.cli import main
from edgebroker.instants import MINUTE
from edgebroker.relocation.pop import PopOptions
from edgebroker.relocation.publisher_sessions import PUBLISHED_SESSIONS
from edgelab.experiment import grape as grape_module
from edgelab.experiment.grape import (
    SCHEMES,
    THRESHOLDS,
    PlacementCase,
    PlacementResults,
    beyond,
    cases,
    findings,
    linearity,
    rank_correlation,
)
from edgelab.experiment.placement_world import PlacementOutcome, PlacementScheme, PlacementWorld
from edgelab.experiment.report import unmet
from edgelab.experiment.stock_quotes import PlacementNetwork, QuoteReaders, cluster, planetlab, stock_symbols

SVG = "{http://www.w3.org/2000/svg}"
FAST = replace(SCHEMES["load100"], sessions=replace(PUBLISHED_SESSIONS, events=20))
FAST_POP = PlacementScheme(pop=PopOptions(traces=20))


def world_of(network: PlacementNetwork, spots: int, scheme: PlacementScheme, seed: int = 1) -> PlacementWorld:
    """Three publishers and their readers."""
    brokers = [gateway.name for gateway in network.topology.gateways]
    return PlacementWorld(network, stock_symbols(brokers, 3, spots, True, seed), scheme, seed)


# -- workload and networks ---------------------------------------------------------------------------------------------


def test_clustered_readers_of_all_quotes_are_at_one_broker() -> None:
    brokers = [f"b{number}" for number in range(20)]
    for symbol in stock_symbols(brokers, 5, 8, True, 1):
        assert sum(readers.low for readers in symbol.readers.values()) == 95
        assert [readers for readers in symbol.readers.values() if readers.high] == [QuoteReaders(high=5)]
        assert len(symbol.readers) <= 8
    (alone,) = stock_symbols(brokers, 1, 1, True, 1)
    assert [*alone.readers.values()] == [QuoteReaders(95, 0, 5)]


def test_random_readers_of_each_rate_are_anywhere() -> None:
    symbols = stock_symbols([f"b{number}" for number in range(20)], 5, 8, False, 1)
    for symbol in symbols:
        totals = [sum(counts) for counts in zip(*symbol.readers.values(), strict=True)]
        assert totals == [70, 25, 5]
    assert any(readers.high and readers.low for readers in symbols[0].readers.values())


def test_readers_take_10_50_and_100_percent() -> None:
    readers = QuoteReaders(1_000, 100, 1)
    wanted = [readers.wanting(volume, high_low) for volume in range(0, 1_000, 10) for high_low in range(0, 1_000, 10)]
    assert sum(wanted) / len(wanted) == 1_000 * 0.1 + 100 * 0.5 + 1


def test_the_published_cluster_has_127_brokers_on_20_machines() -> None:
    network = cluster(127)
    assert len(network.topology.gateways) == 127
    per_machine = [[*network.machines.values()].count(machine) for machine in range(20)]
    assert sorted({*per_machine}) == [6, 7]


# -- small runs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", [FAST, FAST_POP], ids=["grape", "pop"])
def test_publishers_end_where_all_their_readers_are(scheme: PlacementScheme) -> None:
    network = planetlab(7, 1, 1)
    brokers = [gateway.name for gateway in network.topology.gateways]
    symbols = stock_symbols(brokers, 3, 1, True, 1)
    outcome = PlacementWorld(network, symbols, scheme, 1).outcome(3 * MINUTE, 2 * MINUTE)
    assert outcome.hosts == tuple(next(iter(symbol.readers)) for symbol in symbols)
    assert (outcome.visits, outcome.hops) == (1, 0)
    assert (outcome.wrong, outcome.disordered) == (0, 0)
    assert {hops for hops, _ in outcome.moves} <= set(range(1, 5))


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_move_loses_doubles_and_reorders_nothing_at_any_moment(seed: int) -> None:
    """Publishers say something every second, at moments that the seed draws, and some of it while they move."""
    outcome = world_of(planetlab(15, 1, seed), 4, FAST, seed).outcome(2 * MINUTE, MINUTE)
    assert outcome.moves
    assert (outcome.wrong, outcome.disordered) == (0, 0)
    staying = world_of(planetlab(15, 1, seed), 4, SCHEMES["none"], seed).outcome(2 * MINUTE, MINUTE)
    assert outcome.deliveries == staying.deliveries
    assert outcome.visits < staying.visits


def test_a_run_repeats() -> None:
    first, again = (world_of(planetlab(7, 1, 2), 3, FAST_POP, 2).outcome(2 * MINUTE, MINUTE) for _ in range(2))
    assert first == again


def test_a_publisher_that_moved_to_another_site_is_advertised_as_if_it_had_begun_there() -> None:
    network = planetlab(3, 3, 4)
    brokers = [gateway.name for gateway in network.topology.gateways]
    symbols = stock_symbols(brokers, 3, 3, True, 4)
    moved = PlacementWorld(network, symbols, replace(FAST, with_links=True), 4)
    outcome = moved.outcome(2 * MINUTE, MINUTE)
    assert (outcome.wrong, outcome.disordered) == (0, 0)
    places = [replace(symbol, host=host) for symbol, host in zip(symbols, outcome.hosts, strict=True)]
    assert any(place.host[-1] != symbol.host[-1] for place, symbol in zip(places, symbols, strict=True))
    fresh = PlacementWorld(network, places, SCHEMES["none"], 4)
    for place in places:
        found = [
            world.peers[place.host].region.advertisements.find(place.client, place.topic) for world in (moved, fresh)
        ]
        records = [flow.record for flow in found if flow is not None]
        assert len({(record.targets, record.unanswered, record.wanted) for record in records}) == 1
        assert len(records) == 2


# -- findings ----------------------------------------------------------------------------------------------------------

BASE = PlacementOutcome(10.0, 8.0, 0.1, 400.0, 6.0, 0, 0.0, ("b1",), (), 0, 100, 0, 0)


def outcome_of(case: PlacementCase) -> PlacementOutcome:
    """What a perfect run would find."""
    moves = tuple((hops, 0.02 * hops + 0.01) for hops in range(1, 6) for _ in range(5))
    moved = replace(BASE, moves=moves, control=20, control_share=0.02, most_moves=1, hops=3.0)
    scheme = case.scheme.removeprefix("product ")
    if scheme == "none":
        return BASE
    if not case.is_clustered:
        return replace(moved, control=200 if scheme == "pop" else 20)
    if case.spots == 1:
        return replace(moved, message_rate=1.0, visits=1.0, input_load=0.01, delay_ms=80.0)
    if scheme == "pop":
        return replace(moved, message_rate=2.0, input_load=0.02, delay_ms=125.0)
    if " of " in scheme:
        events = int(scheme.partition(" of ")[2])
        return replace(moved, control=2_000 // events, hops=3.0 if events > 10 else 4.0)
    priority = "load" if scheme.startswith("load") else "delay"
    weight = int(scheme.removeprefix(priority) or 100)
    loaded = weight / 100 if priority == "load" else 1 - (weight - 1) / 100
    rate = 2.5 - loaded
    return replace(moved, message_rate=rate, input_load=rate / 100, delay_ms=100 + 50 * loaded)


def results_of(**changes: PlacementOutcome) -> PlacementResults:
    """The outcomes of two seeds; *changes*: scheme -> its outcome in all runs."""
    named = {name.replace("_", " "): outcome for name, outcome in changes.items()}
    return PlacementResults({case: named.get(case.scheme, outcome_of(case)) for case in cases(2)})


def test_what_is_as_published_is_found_so() -> None:
    assert unmet(findings(results_of())) == []
    assert unmet(beyond(results_of())) == []


@pytest.mark.parametrize(
    ("scheme", "changed", "name"),
    [
        ("load100", {"message_rate": 4.0}, "clustered, best X: message rate, load100"),
        ("delay100", {"delay_ms": 300.0}, "  delay, delay100"),
        ("pop", {"delay_ms": 200.0}, "POP's delay outside of GRAPE's, at most"),
        ("pop", {"hosts": ("b2",)}, "X = 1: publishers placed alike by all three"),
        ("pop", {"control": 30}, "  POP's control messages / GRAPE's"),
        ("load50", {"delay_ms": 10.0, "message_rate": 9.0}, "weights: least rank correlation"),
        ("load1", {"delay_ms": 300.0}, "  load1, delay100 and delay1, load100 differ by"),
        ("delay100", {"hops": 9.0}, "sessions of 10 events: hops, against 100"),
        ("delay100", {"control": 900}, "  longer sessions with more control messages"),
        ("load75", {"wrong": 1}, "deliveries lost or doubled"),
        (
            "load100",
            {"moves": tuple((1 + n % 5, float(n % 5 % 2)) for n in range(400))},
            "silence over hops, R squared",
        ),
    ],
)
def test_what_is_not_as_published_is_named(scheme: str, changed: dict[str, Any], name: str) -> None:
    other = replace(outcome_of(PlacementCase(1, scheme)), **changed)
    assert name in [finding.name for finding in unmet(findings(results_of(**{scheme: other})))]


def test_what_a_product_should_reach_is_named() -> None:
    poor = replace(BASE, moves=((3, 1.5),), control_share=0.04, most_moves=3)
    found = [finding.name for finding in unmet(beyond(results_of(product_load=poor)))]
    assert found == ["best X: message rate", "a publisher is silent, s", "moves of one publisher in 18 minutes"]
    found = [finding.name for finding in unmet(beyond(results_of(product_load=poor, product_delay=poor)))]
    assert "control messages, mean" in found


def test_rank_correlation_and_linearity() -> None:
    assert rank_correlation([1, 2, 3], [10, 20, 90]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [5, 4, 4]) == pytest.approx(-0.866, abs=0.001)
    assert rank_correlation([1, 2], [7, 7]) == 0
    assert rank_correlation([3, 2, 1], [13.2, 13.22, 10.0]) == pytest.approx(0.866, abs=0.001), (
        "the first two are equal"
    )
    assert linearity([(1, 1.0), (2, 2.0)]) == 0, "too few moves for a mean"


def test_every_scheme_and_network_is_run() -> None:
    every = cases(2)
    assert len({*every}) == len(every)
    assert {case.scheme for case in every} == {*SCHEMES}
    assert {case.network for case in every} == {*grape_module.NETWORKS}
    assert len(THRESHOLDS) == sum("delay100" in scheme for scheme in SCHEMES)


def experiment(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["experiment", "grape", *arguments])


def test_grape_prints_its_table_and_ends_with_1_if_not_as_published(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(grape_module, "measured", lambda *_: dict(results_of().outcomes))
    rates, delays = tmp_path / "rates.svg", tmp_path / "delays.svg"
    result = experiment("--seeds", "2", "--svg", str(rates), "--delay-svg", str(delays))
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "where publishers are placed: 10 publishers, 2 seeds, 6 of the published 18 minutes"
    assert lines[-1] == "reproduced"
    for chart in (rates, delays):
        assert len(ET.fromstring(chart.read_text(encoding="utf-8")).findall(f"{SVG}polyline")) == 4
    monkeypatch.setattr(grape_module, "measured", lambda *_: dict(results_of(load100=BASE).outcomes))
    result = experiment("--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert told["reproduced"] is False
    assert len(told["cells"]) * 2 == len(cases(2))


def test_all_runs_are_made_in_processes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [PlacementCase(1, "none", 1, "scot"), PlacementCase(1, "product load", 1, "scot")]
    monkeypatch.setattr(grape_module, "cases", lambda seeds: few)
    found = grape_module.measured(1, 1, 0.2, 2)
    assert [*found] == few
    assert all(outcome.wrong == 0 for outcome in found.values())
