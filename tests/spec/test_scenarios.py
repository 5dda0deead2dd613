"""Scenario files: every example is valid and keeps its promises on virtual time; what is wrong is told at its line."""

from __future__ import annotations

import io
import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from edgebroker.instants import SECOND
from edgebroker.runtime.settings import SettingsRefused
from edgedevices.__main__ import main
from edgedevices.ledger import MessageLedger
from edgedevices.population import FleetPopulation, populate
from edgedevices.scenario.scenario import load_scenario, parse_scenario
from edgedevices.simulated import SimulatedWorld
from edgedevices.summary import is_kept, summary_of

SCENARIOS = sorted((Path(__file__).resolve().parents[2] / "firmware-sim/scenarios").glob("*.toml"))
HEAD = '[scenario]\nname = "s"\nseconds = "5s"\n'
FLEET = '[[fleet]]\nname = "f"\ndevices = 2\n'
DEVICES = 12  # of each example, so that five of them take three seconds; each fleet keeps its share


def lived(population: FleetPopulation, seed: int, *cuts: int) -> SimulatedWorld:
    sky = SimulatedWorld(population.run, seed, cuts)
    sky.live()
    return sky


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_every_example_keeps_its_promises_through_a_power_cut_on_virtual_time(path: Path) -> None:
    scenario = load_scenario(path)
    population = populate(scenario, 3, MessageLedger(), DEVICES)
    lived(population, 3, 20 * SECOND)
    summary = summary_of(population)
    assert is_kept(summary), (
        f"edgedevices run {path} --simulated --seed 3 --devices {DEVICES} --power-cut 20s: {summary}"
    )
    assert summary["devices"] == DEVICES
    assert summary["published"] == summary["acknowledged"] + summary["sent"] + summary["failed"]
    assert summary["audit"]["acknowledged"] > DEVICES


def test_the_examples_show_what_they_are_there_for() -> None:
    seen: dict[str, dict[str, Any]] = {}
    for path in SCENARIOS:
        population = populate(load_scenario(path), 1, MessageLedger(), 20)
        lived(population, 1)
        seen[path.stem] = summary_of(population)
    assert seen["cold-chain"]["losses"]["radio lost"] > 0
    stations = seen["batteries"]["fleets"]["stations"]
    assert 0 < stations["empty"] < stations["devices"]
    assert stations["airtime_s"] > 0
    motors = seen["rollout"]["fleets"]["motors"]
    assert seen["rollout"]["losses"]["restarted"] == motors["devices"]
    assert motors["boots"] == 2 * motors["devices"]
    assert motors["updated"] + motors["updates_failed"] == motors["devices"]
    assert motors["bytes_down"] > 131_072 * motors["devices"]
    assert set(seen["misbehaving"]["fleets"]["bad"]["mischief"]) == {
        "clock-jump",
        "duplicate-id",
        "garbage-packet",
        "garbage-payload",
        "reconnect-storm",
    }
    assert seen["misbehaving"]["fleets"]["good"]["mischief"] == {}


def test_each_update_fails_as_often_as_it_says() -> None:
    updates = [f'[[update]]\nfleet = "f"\nat = "{at}s"\nfails_percent = {fails}\n' for at, fails in ((1, 0), (6, 100))]
    population = populate(
        parse_scenario(HEAD.replace("5s", "12s") + FLEET + "".join(updates), "s.toml"), 1, MessageLedger()
    )
    lived(population, 1)
    fleet = summary_of(population)["fleets"]["f"]
    assert (fleet["updated"], fleet["updates_failed"]) == (2, 2)


def test_a_storm_is_as_many_drops_as_it_says() -> None:
    storm = '[[mischief]]\nfleet = "f"\nkind = "reconnect-storm"\npercent = 100\nat = "2s"\ntimes = 4\n'
    population = populate(parse_scenario(HEAD + FLEET + storm, "s.toml"), 1, MessageLedger())
    lived(population, 1)
    summary = summary_of(population)
    assert (summary["losses"], summary["connections"]) == ({"dropped on purpose": 2 * 4}, 2 * 5)


def test_who_had_not_booted_when_a_run_was_interrupted_is_no_failure() -> None:
    text = HEAD.replace("5s", "2h") + 'ramp = "1h"\n' + FLEET
    population = populate(parse_scenario(text, "s.toml"), 1, MessageLedger())
    sky = SimulatedWorld(population.run, 1)
    sky.simulation.at(5 * SECOND, population.run.interrupt)
    sky.live()
    assert population.run.never_connected == 0
    assert not any(station.session.was_up for station in population.run.devices)


def test_the_same_seed_is_the_same_run_to_the_last_byte() -> None:
    scenario = load_scenario(SCENARIOS[0].with_name("misbehaving.toml"))

    def run(seed: int) -> tuple[str, str]:
        journal = io.StringIO()
        population = populate(scenario, seed, MessageLedger(journal), 10)
        return lived(population, seed, 10 * SECOND).broker.digest, journal.getvalue()

    assert run(5) == run(5)
    assert run(5) != run(6)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (HEAD, 0, "fleet: is missing; write [[fleet]]"),
        (FLEET, 0, "scenario: is missing; write [scenario]"),
        ('[scenario]\nname = "s"\n' + FLEET, 1, "scenario.seconds: is missing; say how long each device lives"),
        (HEAD + FLEET + 'evry = "5s"\n', 7, "fleet.evry: unknown key; did you mean every?"),
        (HEAD + FLEET + "every = 5\n", 7, "fleet.every: is a whole number; write a length of"),
        (HEAD + FLEET + 'every = "5 s"\n', 7, "fleet.every: is '5 s'; write a length of"),
        (HEAD + FLEET + 'profile = "wether"\n', 7, "is 'wether'; did you mean \"weather\"?"),
        (HEAD + FLEET + 'radio = "wird"\n', 7, 'fleet.radio: "wird" is no [[radio]]; did you mean "wired"?'),
        (HEAD + FLEET + "qos = [3]\n", 7, "fleet.qos: is 3; write a number, 0 to 2"),
        (HEAD + FLEET + "qos = []\n", 7, "fleet.qos: is empty"),
        (HEAD + FLEET + "batch = 9\nbuffer = 3\n", 7, "the buffer holds 3"),
        (HEAD + FLEET + FLEET, 8, 'fleet.name: "f" stands twice'),
        (HEAD + FLEET + '[[radoi]]\nname = "r"\n', 7, "radoi: unknown section; did you mean [radio]?"),
        (HEAD + FLEET + '[[radio]]\nname = "wired"\n', 8, "choose another"),
        (HEAD + FLEET + '[[radio]]\nname = "r"\nlatency = ["2s", "1s"]\n', 9, "write the least first"),
        (HEAD + FLEET + '[[radio]]\nname = "r"\noutage = "1s"\n', 9, "does nothing without lost_every"),
        (HEAD + FLEET + '[[radio]]\nname = "r"\nduty_percent = 1\n', 9, "does nothing without bits_per_s"),
        (HEAD + FLEET + '[[battery]]\nname = "b"\n', 7, "battery.capacity_mah: is missing"),
        (HEAD + FLEET + '[[battery]]\nname = "b"\ncapacity_mah = -1\n', 9, "is -1; write a number, 0.0001 to 1e+06"),
        (HEAD + FLEET + '[[update]]\nfleet = "g"\nat = "1s"\n', 8, 'update.fleet: "g" is no [[fleet]]; there is f'),
        (HEAD + FLEET + '[[mischief]]\nfleet = "f"\nkind = "clok-jump"\n', 9, 'did you mean "clock-jump"?'),
        (HEAD + FLEET + '[[mischief]]\nfleet = "f"\nkind = "clock-jump"\n', 7, 'write at = "20s" (once) or every'),
        (
            HEAD + FLEET + '[[mischief]]\nfleet = "f"\nkind = "duplicate-id"\nat = "1s"\n',
            10,
            "the identifier is wrong all the time",
        ),
        (HEAD + "seeed = 1\n" + FLEET, 4, "did you mean seed?"),
        (HEAD + "seed = \n" + FLEET, 4, "not TOML"),
    ],
)
def test_what_is_wrong_is_told_at_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(SettingsRefused) as refused:
        parse_scenario(text, "x.toml")
    problem = refused.value.problems[0]
    assert words in str(problem)
    assert problem.line == line


@pytest.mark.parametrize(
    ("cause", "kept"),
    [("not acknowledged in time", False), ("refused: Quota exceeded", False), ("backlog full", True)],
)
def test_what_the_broker_refused_is_a_promise_not_kept(cause: str, kept: bool) -> None:
    assert is_kept({"failures": {cause: 1}, "never_connected": 0, "audit": None}) is kept


def edgedevices(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_check_says_what_is_in_a_file(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text(HEAD + FLEET)
    bad.write_text(HEAD + FLEET + "qos = 1\nbatch = 0\n")
    assert edgedevices("check", str(good)).output == f"{good}: OK\ns: 2 devices (2 f)\n"
    refused = edgedevices("check", str(bad))
    assert refused.exit_code == 2
    assert re.findall(r"bad\.toml:(\d+): (fleet\.\w+)", refused.output) == [("7", "fleet.qos"), ("8", "fleet.batch")]
    told = json.loads(edgedevices("check", str(bad), "--json").output)
    assert [problem["line"] for problem in told["problems"]] == [7, 8]
    assert json.loads(edgedevices("check", str(good), "--json").output)["fleets"] == {"f": 2}


def test_a_simulated_run_ends_with_a_table_or_an_object(tmp_path: Path) -> None:
    file, journal = tmp_path / "s.toml", tmp_path / "journal"
    file.write_text(HEAD + FLEET + 'every = "1s"\n')
    arguments = ["run", str(file), "--simulated", "--power-cut", "2s", "--seconds", "4"]
    table = edgedevices(*arguments)
    assert table.exit_code == 0, table.output
    assert re.search(r"^  missing +0$", table.output, re.M)
    told = json.loads(edgedevices(*arguments, "--json", "--journal", str(journal)).output)
    assert told["published"] == told["acknowledged"] == len(journal.read_text().splitlines())
    assert told["audit"]["missing"] == told["audit"]["doubled"] == 0
    assert told["reconnects"] >= 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "none.toml"], "none.toml: cannot be read"),
        (["run", "s.toml", "--power-cut", "1s"], "--power-cut needs --simulated"),
        (["run", "s.toml", "--simulated", "--to", "127.0.0.1:1883"], "--to means nothing with --simulated"),
        (["run", "s.toml", "--simulated", "--audit-at", "h:1"], "--audit-at means nothing with --simulated"),
        (["run", "s.toml", "--simulated", "--progress"], "--progress means nothing with --simulated"),
        (["run", "s.toml", "--to", "x:y"], "'x:y' is no address"),
        (["run", "s.toml", "--devices", "0"], "--devices"),
        (["check", "none.toml"], "cannot be read"),
    ],
)
def test_mistakes_of_usage_give_exit_code_two_and_say_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text(HEAD + FLEET)
    result = edgedevices(*arguments)
    assert result.exit_code == 2
    assert words in result.output


def test_a_power_cut_that_came_too_late_is_no_run_through_one(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        '[scenario]\nname = "s"\nseconds = "1s"\n[[fleet]]\nname = "f"\ndevices = 1\nevery = "100ms"\n'
    )
    simulated = ("run", str(tmp_path / "s.toml"), "--simulated", "--power-cut")
    assert edgedevices(*simulated, "500ms").exit_code == 0
    late = edgedevices(*simulated, "1h")
    assert (late.exit_code, late.stdout) == (2, "")
    assert "--power-cut 3600s: the run was over after" in late.stderr


def test_a_simulated_run_that_is_interrupted_ends_with_what_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "s.toml").write_text(
        '[scenario]\nname = "s"\nseconds = "1d"\n[[fleet]]\nname = "f"\ndevices = 1\nevery = "1h"\n'
    )
    began = SimulatedWorld._wake_all

    def interrupted(sky: SimulatedWorld) -> None:
        if sky.simulation.now > SECOND:
            signal.raise_signal(signal.SIGINT)
        began(sky)

    monkeypatch.setattr(SimulatedWorld, "_wake_all", interrupted)
    result = edgedevices("run", str(tmp_path / "s.toml"), "--simulated", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["interrupted"] is True
