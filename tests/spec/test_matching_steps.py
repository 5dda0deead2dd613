"""`edgebroker experiment link-matching`: the published chart comes out, and the command says so or what is wrong."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner, Result

from edgebroker.cli import main
from edgelab.experiment.link_matching import REFERENCE, MatchingSteps, complaints, mean_of, measure
from edgelab.experiment.report import ChartLine, line_chart, spread, tick_step

SVG = "{http://www.w3.org/2000/svg}"


def experiment(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["experiment", "link-matching", *arguments])


@pytest.mark.slow
def test_the_published_chart_is_reproduced() -> None:
    print(".venv/bin/edgebroker experiment link-matching")
    means = {size: mean_of([measure(Random(seed), size) for seed in range(1, 6)]) for size in REFERENCE}
    assert complaints(means) == []


def test_one_seed_of_the_smallest_network_prints_its_table() -> None:
    result = experiment("--seeds", "1", "--subscriptions", "2000")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "mean matching steps per event; 300 events, seed 1"
    assert lines[3].split()[:2] == ["2,000", "measured"]
    assert lines[4].split() == ["reference", "67", "15", "32", "46", "64", "78", "87"]
    assert lines[-2:] == ["as published:", "  every figure is within 15% of its reference"]
    assert result.stderr == ""  # nobody watches


def test_the_same_seeds_give_the_same_figures_to_programs_and_people(tmp_path: Path) -> None:
    chart = tmp_path / "chart.svg"
    result = experiment("--seeds", "1", "--subscriptions", "1500,600", "--json", "--svg", str(chart))
    assert result.exit_code == 0
    outcome = json.loads(result.stdout)
    assert (outcome["judged"], outcome["complaints"]) == (False, [])
    assert [row["subscriptions"] for row in outcome["rows"]] == [600, 1500]
    assert outcome["rows"][0]["reference"] is None
    again = measure(Random(1), 600)
    assert outcome["rows"][0]["measured"]["hops"] == [round(value, 2) for value in again.hops]
    root = ET.fromstring(chart.read_text(encoding="utf-8"))
    assert len(root.findall(f"{SVG}polyline")) == 7


def test_a_run_has_as_many_events_as_asked_for() -> None:
    result = experiment("--seeds", "1", "--subscriptions", "600", "--scale", "0.5", "--json")
    outcome = json.loads(result.stdout)
    assert outcome["events"] == 150
    steps = measure(Random(1), 600, 150)
    assert outcome["rows"][0]["measured"]["hops"] == [round(value, 2) for value in steps.hops]
    result = experiment("--seeds", "1", "--subscriptions", "20", "--scale", "0.01")
    assert result.exit_code == 2
    assert "3 events for 20 subscriptions leave a distance without any arrival" in result.stderr


def test_other_optimisations_are_not_judged_and_cost_other_steps() -> None:
    plain, pruned = (
        json.loads(experiment("--seeds", "1", "--subscriptions", "600", "--json", *flags).stdout)["rows"][0]["measured"]
        for flags in ([], ["--eliminate-trivial-tests", "--delay-branches"])
    )
    assert pruned["centralised"] < plain["centralised"]
    assert all(after <= before for before, after in zip(plain["hops"], pruned["hops"], strict=True))
    text = experiment("--seeds", "1", "--subscriptions", "600", "--index-attributes", "2").stdout
    assert text.splitlines()[-1] == "not judged: there is no reference for such a run"


def test_figures_that_are_not_as_published_end_with_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    published = REFERENCE[2_000]
    monkeypatch.setitem(REFERENCE, 2_000, published._replace(centralised=40))
    result = experiment("--seeds", "1", "--subscriptions", "2000")
    assert result.exit_code == 1
    assert "not as published:" in result.stdout
    assert "2,000 subscriptions, centralised: " in result.stdout


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({2_000: REFERENCE[2_000]._replace(hops=(18, 32, 46, 64, 78, 87))}, ["1 hop: 18.0 steps, +20% from 15"]),
        ({10_000: REFERENCE[10_000]._replace(centralised=121)}, ["does not lie between 4 and 5 hops"]),
        ({10_000: REFERENCE[10_000]._replace(centralised=97)}, []),
        ({2_000: REFERENCE[2_000], 10_000: REFERENCE[10_000]}, []),
        (
            {
                2_000: REFERENCE[2_000]._replace(hops=(13, 32, 46, 64, 78, 87)),
                10_000: REFERENCE[10_000]._replace(hops=(26, 47, 72, 96, 120, 137)),
            },
            ["1 hop: 2.00 times the steps"],
        ),
        ({500: MatchingSteps(1, (2, 3, 4, 5, 6, 7))}, []),
    ],
)
def test_complaints_name_what_is_off(rows: dict[int, MatchingSteps], words: list[str]) -> None:
    found = complaints(rows)
    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found, strict=True))


@pytest.mark.parametrize("counts", ["", "0", "many", "2000,,6000", "-5", "1000000"])
def test_numbers_of_subscriptions_that_make_no_sense_are_refused(counts: str) -> None:
    result = experiment("--subscriptions", counts)
    assert result.exit_code == 2
    assert "is no list of numbers from 1 to 100000" in result.stderr


def test_too_few_subscriptions_for_a_mean_are_refused() -> None:
    result = experiment("--seeds", "1", "--subscriptions", "3")
    assert result.exit_code == 2
    assert "300 events for 3 subscriptions leave a distance without any arrival" in result.stderr


def test_a_chart_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    result = experiment("--seeds", "1", "--subscriptions", "600", "--svg", str(tmp_path / "missing" / "chart.svg"))
    assert result.exit_code == 2
    assert "cannot write the chart" in result.stderr


# -- the chart --------------------------------------------------------------------------------------------------------


def test_a_chart_names_its_lines_and_escapes_what_it_says() -> None:
    lines = [ChartLine("a < b", {1: 2, 3: 4}, "#000", {3: 5}), ChartLine("flat", {2: 4}, "#111")]
    root = ET.fromstring(line_chart("A & B", "", "x", "y", lines))
    texts = [element.text for element in root.findall(f"{SVG}text")]
    assert {"A & B", "a < b", "flat", "x", "y"} <= set(texts)
    # Two points of the first line with one ring, one point of the second.
    assert len(root.findall(f"{SVG}circle")) == 4


@pytest.mark.parametrize(("largest", "step"), [(10_000, 2_000), (139, 50), (6, 1), (0.9, 0.2), (61, 20)])
def test_ticks_are_round(largest: float, step: float) -> None:
    assert tick_step(largest) == pytest.approx(step)


def test_names_do_not_cover_each_other() -> None:
    assert dict(spread({"a": 100, "b": 104, "c": 300})) == {"a": 100, "b": 114, "c": 300}
