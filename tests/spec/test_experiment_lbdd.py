"""`edgebroker experiment lbdd`: small transfers take the published times, and findings name what is wrong."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edgebroker.cli import main
from edgelab.experiment import lbdd as lbdd_module
from edgelab.experiment.lbdd import (
    ALL,
    FILE_SLICES,
    PUBLISHED_LOADS,
    SCHEMES,
    SLICE_ON_WIRE,
    SUBSCRIBERS,
    GroupShape,
    LbddResults,
    TransferOutcome,
    beyond,
    edges_as_published,
    expected_depth,
    findings,
    recovery,
    runs,
    shape,
    transfer,
)
from edgelab.experiment.report import unmet

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("scheme", "bound", "copies"),
    [("point-to-point", 7_793, 11), ("LBDD", 2_834, 2), ("F = 3", 2_125, 2), ("F = 2", 1_417, 2)],
)
def test_a_short_transfer_extrapolates_to_the_time_of_the_model(scheme: str, bound: float, copies: int) -> None:
    """The bound has neither headers nor proofs, which add 0.9 %, and a short run has a long beginning."""
    outcome = transfer(SCHEMES[scheme], SUBSCRIBERS, 80)
    assert bound < outcome.seconds < bound * 1.03
    assert (outcome.copies, outcome.published) == (ALL, copies)
    assert outcome.off < 0.01


def test_a_slice_on_the_wire_has_a_header_and_a_proof() -> None:
    assert 65_536 + 17 * 32 < SLICE_ON_WIRE < 65_536 + 17 * 32 + 50


def test_the_load_of_the_publisher_is_its_children_over_the_most_children() -> None:
    for number in (1, 4, 6):
        outcome = transfer(SCHEMES["LBDD"], SUBSCRIBERS[:number], 80)
        assert outcome.load == pytest.approx(PUBLISHED_LOADS[number - 1] / 100, abs=0.02)


def test_a_dead_relay_costs_three_seconds_and_no_slice() -> None:
    silence, lost = recovery(120)
    assert 2 < silence < 3.1
    assert lost == 0


def test_trees_of_random_groups_are_as_deep_as_expected() -> None:
    assert [round(expected_depth(each), 2) for each in (100, 200, 300, 400, 500)] == [6.98, 7.98, 8.56, 8.98, 9.30]
    found = shape(100, 40)
    assert found.depth == pytest.approx(expected_depth(100), abs=0.5)
    assert found.shallowest <= found.depth <= found.deepest
    assert edges_as_published() == ALL


def results_of() -> LbddResults:
    """What a perfect run would find."""
    seconds = {"point-to-point": 7_793.0, "LBDD": 2_850.0, "F = 2": 1_430.0, "F = 3": 2_140.0, "F = 2, paced": 2_040.0}
    transfers = {
        (name, number): TransferOutcome(seconds[name], number, min(number, 2), PUBLISHED_LOADS[number - 1] / 100, 0.0)
        for name, number in runs()
    }
    shapes = {each: GroupShape(expected_depth(each), 5, 11, 1.0, 1.4, 4.5) for each in (100, 500)}
    return LbddResults(transfers, shapes, dict.fromkeys(range(1, ALL + 1), 1.0), 2.9, 0)


def test_what_is_as_published_is_found_so() -> None:
    assert unmet(findings(results_of())) == []
    assert unmet(beyond(results_of())) == []


@pytest.mark.parametrize(
    ("scheme", "changed", "name"),
    [
        ("point-to-point", {"seconds": 7_000.0}, "11 subscribers, point-to-point"),
        ("LBDD", {"seconds": 3_500.0}, "  LBDD"),
        ("LBDD", {"copies": 11.5}, "copies of a slice, off the number of subscribers"),
        ("LBDD", {"load": 0.6}, "publisher's load, 11 subscribers"),
        ("F = 2", {"off": 0.1}, "a shorter run is off the line by"),
    ],
)
def test_what_is_not_as_published_is_named(scheme: str, changed: dict[str, float], name: str) -> None:
    results = results_of()
    other = {**results.transfers, (scheme, ALL): replace(results.transfers[scheme, ALL], **changed)}
    assert name in [finding.name for finding in unmet(findings(replace(results, transfers=other)))]


def test_what_a_product_should_reach_is_named() -> None:
    found = unmet(beyond(replace(results_of(), silence=9.0, lost=1)))
    assert [finding.name for finding in found] == ["silence after an inner node died, s", "  slices lost"]


def test_real_links_have_to_show_the_same_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"point-to-point": (80.0, 11.2), "LBDD": (29.0, 2.02), "F = 2": (15.0, 2.02)}
    monkeypatch.setattr(lbdd_module, "on_real_links", lambda *_: found)
    result = experiment("--netns", "--mbit", "10", "--mib", "8")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("a file of 8 MiB for 11 subscribers, processes with links of 10 Mbit/s")
    found["F = 2"] = (25.0, 5.0)
    result = experiment("--netns")
    assert result.exit_code == 1
    assert result.stdout.endswith("not as published: point-to-point / that, the publisher's copies\n")


def experiment(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["experiment", "lbdd", *arguments])


def test_lbdd_prints_its_table_and_ends_with_1_if_not_as_published(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(lbdd_module, "measured", lambda *_: results_of())
    times, depths = tmp_path / "times.svg", tmp_path / "depths.svg"
    result = experiment("--svg", str(times), "--depth-svg", str(depths))
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"a file of 8 GiB for 11 subscribers: 600 of {FILE_SLICES:,} slices, extrapolated;")
    assert lines[-1] == "reproduced"
    assert len(ET.fromstring(times.read_text(encoding="utf-8")).findall(f"{SVG}polyline")) == 3
    assert len(ET.fromstring(depths.read_text(encoding="utf-8")).findall(f"{SVG}polyline")) == 2
    monkeypatch.setattr(lbdd_module, "edges_as_published", lambda: 10)
    result = experiment("--json", "--slices", str(FILE_SLICES))
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert told["reproduced"] is False
    assert len(told["transfers"]) == 3 * ALL + 2
