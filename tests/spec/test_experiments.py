"""`edgebroker experiment scot` and `idr`: small runs come out as published, and the commands say what is not."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edgebroker.cli import main
from edgebroker.overlay.topology.topology import Topology
from edgelab.experiment import idr as burst_module
from edgelab.experiment import idr as idr_command
from edgelab.experiment.idr import PAIRS, SEEDS, Both, BurstCase, BurstOutcome, beyond, burst, cases, findings
from edgelab.experiment.overlay import CLUSTERS, MACHINES, OverlayCosts, machines_of, seventy_brokers
from edgelab.experiment.report import ExperimentFigure, unmet
from edgelab.experiment.scot import FloodControl

SVG = "{http://www.w3.org/2000/svg}"
STATIC = BurstOutcome(10.0, 40.0, 0.34, 90.0, 1_000, 0, 5_000, 900, (1.0, 40.0, 2.0))
DYNAMIC = BurstOutcome(8.0, 30.0, 0.36, 80.0, 1_000, 0, 5_010, 500, (1.0, 30.0, 2.0))


def experiment(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["experiment", *arguments])


# -- the network ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def topology() -> Topology:
    return seventy_brokers()


def test_there_are_70_brokers_20_of_them_inner_and_205_links(topology: Topology) -> None:
    scot = topology.scot
    assert (len(scot), 5 * sum(len(scot.factor.neighbours(one)) >= 2 for one in scot.factor.positions)) == (70, 20)
    assert len({frozenset((one.name, peer)) for one in topology.gateways for peer in one.peers()}) == 205


def test_no_two_peers_are_on_one_machine(topology: Topology) -> None:
    machines = machines_of(topology)
    assert all(machines[one.name] != machines[peer] for one in topology.gateways for peer in one.peers())
    assert sorted(map([*machines.values()].count, range(MACHINES))) == [11, 11, 12, 12, 12, 12]


def test_flooding_costs_341_messages_wherever_it_begins(topology: Topology) -> None:
    neighbours = {gateway.name: gateway.peers() for gateway in topology.gateways}
    for costs in (OverlayCosts(0, 0), OverlayCosts(100, 100, 1_000), OverlayCosts(0, 700, 10)):
        flooding = FloodControl(neighbours, costs)
        for host in ("a.0", "F.2", "i.4"):
            tree = flooding.advertise(host)
            assert (tree.messages, len(tree.last_hops)) == (341, 70)


def test_a_subscription_meets_no_tree_and_goes_nowhere(topology: Topology) -> None:
    flooding = FloodControl({gateway.name: gateway.peers() for gateway in topology.gateways}, OverlayCosts(100, 100))
    assert flooding.subscribe("a.0", [], 10).messages == 0
    tree = flooding.advertise("F.0")
    spread = flooding.subscribe("i.0", [tree, tree], 10)
    assert spread.messages == 4, "i-I-H-G-F, once for both"
    assert max(spread.reached_after.values()) == 4 * (10 + 100 + 100 + 100)


# -- routing state ----------------------------------------------------------------------------------------------------


def test_a_small_run_of_scot_is_as_published() -> None:
    result = experiment("scot", "--scale", "0.02")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "what routing state costs, 70 brokers in 5 clusters, seed 1"
    assert lines[-1] == "reproduced"
    assert lines[5].split() == ["messages", "per", "advertisement", "4", "4", "4", "ok"]


def test_scot_tells_programs_and_draws(tmp_path: Path) -> None:
    chart = tmp_path / "chart.svg"
    result = experiment("scot", "--scale", "0.01", "--json", "--svg", str(chart))
    told = json.loads(result.stdout)
    assert told["reproduced"] is True
    assert {"name", "published", "accepted", "found", "met"} == set(told["findings"][0])
    assert len(ET.fromstring(chart.read_text(encoding="utf-8")).findall(f"{SVG}polyline")) == 2


# -- bursts -----------------------------------------------------------------------------------------------------------


def test_a_burst_loses_and_doubles_nothing_and_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(burst_module, "SUBSCRIBERS", 200)
    monkeypatch.setattr(burst_module, "EVENTS", 300)
    static, dynamic = (burst(3, is_dynamic, 0.001) for is_dynamic in (False, True))
    assert static.wrong == dynamic.wrong == 0
    assert static.deliveries == dynamic.deliveries > 3_000
    assert dynamic != static
    assert burst(3, True, 0.001) == dynamic


def outcomes(found: Iterable[Both] = ()) -> dict[BurstCase, Both]:
    every: dict[BurstCase, Both] = dict.fromkeys(cases(SEEDS), (STATIC, DYNAMIC))
    for number, mean in ((2, 8.5), (3, 9.0), (5, 9.5)):
        for seed in range(1, PAIRS + 1):
            every[BurstCase(seed, bursting=number)] = (STATIC, replace(DYNAMIC, mean_s=mean))
    return every | dict(zip(every, found, strict=False))


def test_what_is_as_published_is_found_so() -> None:
    assert unmet(findings(outcomes())) == []
    assert [finding.name for finding in unmet(beyond(outcomes()))] == ["mean delay, dynamic / static"]


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ({"mean_s": 1.0}, ["mean delay, dynamic against static"]),
        ({"messages": 9_000}, ["messages"]),
        ({"soon": 0.3}, ["  more, in so many runs"]),
        ({"stable_s": 100.0}, ["stable after the burst, earlier by"]),
    ],
)
def test_what_is_not_as_published_is_named(changed: dict[str, float], names: list[str]) -> None:
    other = replace(DYNAMIC, **changed)
    found = [finding.name for finding in unmet(findings(outcomes([(STATIC, other)] * SEEDS)))]
    assert set(names) <= set(found)


def test_idr_prints_its_table_and_ends_with_1_if_not_as_published(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(idr_command, "measured", lambda seeds, scale, jobs: outcomes())
    chart = tmp_path / "chart.svg"
    result = experiment("idr", "--svg", str(chart))
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "reproduced"
    assert "what a product should reach" in result.stdout
    assert len(ET.fromstring(chart.read_text(encoding="utf-8")).findall(f"{SVG}polyline")) == 2
    monkeypatch.setattr(idr_command, "measured", lambda seeds, scale, jobs: outcomes([(STATIC, STATIC)] * SEEDS))
    result = experiment("idr", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["reproduced"] is False


def test_all_runs_are_made_in_processes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(burst_module, "SUBSCRIBERS", 100)
    monkeypatch.setattr(burst_module, "EVENTS", 200)
    monkeypatch.setattr(idr_command, "cases", lambda seeds: [BurstCase(seed) for seed in range(1, seeds + 1)])
    found = idr_command.measured(2, 0.001, 2)
    assert list(found) == [BurstCase(1), BurstCase(2)]
    assert found[BurstCase(1)] != found[BurstCase(2)]


# -- findings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "accepted"),
    [(4, 4, "4"), (1, 2, "1 .. 2"), (float("-inf"), 2, "<= 2"), (1, float("inf"), ">= 1")],
)
def test_a_finding_says_what_is_accepted(low: float, high: float, accepted: str) -> None:
    assert ExperimentFigure("x", "", 1.5, low=low, high=high).accepted == accepted
    assert ExperimentFigure("x", "", 1.5, low=low, high=high).is_met is (low <= 1.5 <= high)


def test_a_finding_of_which_nothing_is_asked_is_met() -> None:
    assert ExperimentFigure("x", "", 1.5).is_met
    assert ExperimentFigure("x", "", 1.5).accepted == ""
    assert CLUSTERS == 5
