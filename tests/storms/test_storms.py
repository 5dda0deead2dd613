"""Storms over simulated federations: promises are kept, a run depends on its seed alone, and the judge is no fool."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgebroker.cli import main
from edgebroker.instants import MILLISECOND, SECOND, Instant
from edgebroker.storage.journal.format import FRAMES_AT
from edgelab import simulate
from edgelab.simulate import repeat
from edgelab.simworld.participant import PublishedMessage, ReceivedMessage
from edgelab.simworld.storms import storm as shrink_module
from edgelab.simworld.storms.device import CREW, StormDevice
from edgelab.simworld.storms.faults import Fault, PowerCut, RoadCut
from edgelab.simworld.storms.promises import PromiseChecker
from edgelab.simworld.storms.scenario import KINDS, StormScenario, draw
from edgelab.simworld.storms.shape import FederationShape
from edgelab.simworld.storms.storm import StormOutcome, blow, live, shrink, storm
from edgelab.simworld.storms.world import StormWorld

PACE = 100 * MILLISECOND
STORMS = int(os.environ.get("EDGEBROKER_STORMS", "1000"))
PARTS = 16
GOOD = StormScenario(
    1,
    "calm",
    FederationShape(("a-b",), (("a", "b"), ("ab",)), ("wan", "wan")),
    (
        StormDevice(
            "steady-0", "steady", "a0", True, True, 20, ("hall/#", "+/climate"), PACE, MILLISECOND, False, True, True
        ),
        StormDevice("steady-1", "steady", "ab1", False, True, 20, ("hall/#",), PACE, MILLISECOND, True, False, False),
        StormDevice("talker-0", "talker", "b0", True, True, 20, (), PACE, MILLISECOND, False, False, False),
        StormDevice("talker-1", "talker", "ab1", False, True, 20, (), PACE, MILLISECOND, False, False, True),
    ),
    (),
    4 * SECOND,
)
"""Nothing goes wrong, and there is much to hear."""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_promise_is_kept(seed: int, part: int) -> None:
    heard = 0
    for number in range(seed + part, seed + STORMS, PARTS):
        outcome = storm(number)
        assert not outcome.broken, "\n".join([repeat(outcome.scenario), *map(str, outcome.broken[:20])])
        heard += outcome.heard
    assert heard > 20 * (STORMS // PARTS), "hardly anything was heard"


# -- what is drawn ----------------------------------------------------------------------------------------------------


def test_every_kind_of_fault_and_federation_is_drawn(seed: int) -> None:
    scenarios = [draw(number) for number in range(seed, seed + 300)]
    assert {type(fault) for scenario in scenarios for fault in scenario.faults} == set(KINDS)
    assert {len(scenario.shape.sites) for scenario in scenarios} == {1, 2, 3, 4}
    assert {len(held) for scenario in scenarios for site in scenario.shape.sites for held in site} == {1, 2, 3, 4}
    devices = [device for scenario in scenarios for device in scenario.devices]
    assert {device.kind for device in devices} == {"steady", "fickle", "talker", "worker", "casual"}
    crews = [[one for one in scenario.devices if one.kind in CREW] for scenario in scenarios]
    assert all(len({one.asks for one in crew}) == 1 for crew in crews if crew)
    assert {len({one.home for one in crew}) for crew in crews} >= {0, 1, 2}
    assert {(device.is_v5, device.is_kept, device.has_will) for device in devices} == {
        (is_v5, is_kept, has_will) for is_v5 in (False, True) for is_kept in (False, True) for has_will in (False, True)
    }


def test_a_scenario_is_a_value(seed: int) -> None:
    assert draw(seed) == draw(seed)
    assert draw(seed) != draw(seed + 1)
    assert "\n" not in str(draw(seed))


# -- the same seed, the same run ------------------------------------------------------------------------------------


def traces(root: Path, **environment: str) -> dict[str, str]:
    folders = os.pathsep.join(str(root / name) for name in (".", "bridge", "firmware-sim", "analytics"))
    command = [sys.executable, "-P", "-m", "edgebroker", "simulate", "--scenarios", "3", "--seed", "7", "--json"]
    done = subprocess.run(
        command, env={"PYTHONPATH": folders, **environment}, capture_output=True, text=True, check=True, timeout=120
    )
    hashes: dict[str, str] = json.loads(done.stdout)["hashes"]
    return hashes


@pytest.mark.slow
def test_a_run_depends_on_nothing_but_its_seed(root: Path, tmp_path: Path) -> None:
    """Not on the process, nor on the hash seed of strings, nor on whether the kernels are compiled."""
    subprocess.run([sys.executable, root / "tools" / "puretree.py", tmp_path / "pure"], check=True, timeout=60)
    here = {str(number): live(draw(number)).trace for number in (7, 8, 9)}
    assert len(set(here.values())) == 3
    assert traces(root, PYTHONHASHSEED="1") == here
    assert traces(tmp_path / "pure", PYTHONHASHSEED="2") == here


# -- the judge sees what is wrong -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished() -> StormWorld:
    world = StormWorld(GOOD.seed, GOOD.shape, GOOD.devices)
    blow(world, GOOD)
    assert not list(PromiseChecker(world).broken())
    return world


@pytest.fixture
def heard(finished: StormWorld) -> Iterator[list[ReceivedMessage]]:
    """What the steady device heard that heard most; it is put right again afterwards."""
    steady = [one for one in finished.devices.values() if one.device.kind == "steady"]
    reader = max(steady, key=lambda one: sum(heard.qos == 2 for heard in one.received))
    before = list(reader.received)
    yield reader.received
    reader.received[:] = before


def promises(world: StormWorld) -> set[str]:
    return {promise for promise, _ in PromiseChecker(world).broken()}


def test_it_sees_what_was_lost(finished: StormWorld, heard: list[ReceivedMessage]) -> None:
    heard.remove(next(one for one in heard if one.qos == 2))
    assert "P2" in promises(finished)


def test_it_sees_what_came_twice(finished: StormWorld, heard: list[ReceivedMessage]) -> None:
    heard.append(next(one for one in heard if one.qos == 2))
    assert "P3" in promises(finished)


def test_it_sees_disorder(finished: StormWorld, heard: list[ReceivedMessage]) -> None:
    heard.reverse()
    assert "P4" in promises(finished)


def test_what_expired_and_was_said_again_may_come_behind_what_was_said_later(
    finished: StormWorld, heard: list[ReceivedMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    flows: dict[tuple[bytes, str, int], list[ReceivedMessage]] = {}
    for one in heard:
        flows.setdefault((one.payload.split(b"<")[1].split(b"/")[0], one.topic, one.qos), []).append(one)
    first, second = next(some for (_, _, qos), some in flows.items() if qos == 1 and len(some) > 1)[:2]
    publisher = finished.devices[first.payload.decode().split("<")[1].split("/")[0]]
    old = next(one for one in publisher.published if one.payload == first.payload)
    place = publisher.published.index(old)
    heard.remove(first)

    def is_in_order(expiry_s: int, at: Instant) -> bool:
        publisher.published[place] = replace(old, expiry_s=expiry_s)
        heard.insert(heard.index(second) + 1, replace(first, at=at))
        broken = promises(finished)
        heard.remove(replace(first, at=at))
        publisher.published[place] = old
        return "P4" not in broken

    late = old.at + 2 * SECOND
    assert not is_in_order(1, late), "it was said once"
    monkeypatch.setattr(publisher, "republished", {first.payload})
    assert not is_in_order(0, late), "it does not expire"
    assert not is_in_order(3, late), "it had not expired yet"
    assert is_in_order(1, late)


def test_it_sees_what_nobody_asked_for(finished: StormWorld, heard: list[ReceivedMessage]) -> None:
    publisher = next(iter(finished.devices.values()))
    publisher.published.append(PublishedMessage(publisher.name, "elsewhere", b"<talker-9/1>", 0))
    heard.append(replace(heard[0], topic="elsewhere", payload=b"<talker-9/1>", qos=0))
    broken = promises(finished)
    publisher.published.pop()
    assert "P5" in broken


def test_it_sees_what_was_acknowledged_too_early(finished: StormWorld, heard: list[ReceivedMessage]) -> None:
    payload = next(one.payload for one in heard if one.qos == 2)
    finished.observer.early_acks.append(("gateway", payload, finished.simulation.now))
    broken = promises(finished)
    finished.observer.early_acks.clear()
    assert "P1" in broken


def test_it_sees_what_came_late(
    finished: StormWorld, heard: list[ReceivedMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard[:] = [replace(one, at=one.at + 30 * SECOND) for one in heard]
    for one in finished.devices.values():  # it was not away when all that was said
        monkeypatch.setattr(one, "holidays", [])
    assert promises(finished) & {"P6", "P9"}


def test_it_sees_what_came_after_it_had_expired(finished: StormWorld, heard: list[ReceivedMessage]) -> None:
    publisher = finished.devices["talker-0"]
    said = next(one for one in publisher.published if one.expiry_s)
    heard.append(ReceivedMessage("steady-1", said.topic, said.payload, 0, said.at + (said.expiry_s + 3) * SECOND))
    broken = {text for promise, text in PromiseChecker(finished).broken() if promise == "P5"}
    assert any("after it had expired" in text for text in broken)


def test_it_sees_books_that_do_not_balance(finished: StormWorld) -> None:
    gateway = next(iter(finished.gateways))
    gateway.ledger.matched += 1
    broken = promises(finished)
    gateway.ledger.matched -= 1
    assert "P7" in broken


def test_the_witness_sees_the_disk(finished: StormWorld) -> None:
    """All that a gateway with a steady device has acknowledged at QoS 2 and that device wants was on its platter."""
    stored = set().union(*finished.observer.stored.values())
    assert len(stored) > 20
    assert not finished.observer.early_acks or "P1" not in promises(finished)


def test_a_flipped_bit_is_told() -> None:
    """Wherever it is: World.damage compares what recovery gives before and after."""
    world = StormWorld(GOOD.seed, GOOD.shape, GOOD.devices)
    blow(world, GOOD)
    for gateway in world.gateways:
        gateway.power_off()
        for number in range(40):
            world.corrupt_journal(gateway.name, number / 40)
    assert not world.broken, world.broken
    assert world.damaged, "no flipped bit ever hit anything"
    assert world.excused


def test_a_journal_of_which_no_header_is_intact_begins_anew() -> None:
    world = StormWorld(GOOD.seed, GOOD.shape, GOOD.devices[:1])
    blow(world, replace(GOOD, devices=GOOD.devices[:1], length=SECOND))
    gateway = world.gateways["a0"]
    gateway.power_off()
    disk = world.store("a0").disk
    for name in disk.names():
        for octet in range(FRAMES_AT):
            disk.flip(name, 8 * octet)
    gateway.power_on()
    assert not gateway.is_off


# -- smaller ----------------------------------------------------------------------------------------------------------


def test_a_storm_is_made_as_small_as_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something breaks as long as a certain cut and a certain device are there."""
    scenario = GOOD
    device = scenario.devices[-1]
    culprit = RoadCut(SECOND // 2, "a0~a1", 5 * MILLISECOND)
    faults: tuple[Fault, ...] = (*(PowerCut(number, "a0", 1, 1) for number in range(7)), culprit)

    def lived(smaller: StormScenario) -> StormOutcome:
        is_broken = culprit in smaller.faults and device in smaller.devices
        return replace(good, scenario=smaller, broken=(("P2", "lost"),) if is_broken else ())

    good = StormOutcome(scenario, (), "trace", 0, 0, live(replace(scenario, faults=())).faults)
    monkeypatch.setattr(shrink_module, "live", lived)
    smallest = shrink(lived(replace(scenario, faults=faults))).scenario
    assert smallest.faults == (culprit,)
    assert smallest.devices == (device,)


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command_says_what_happened() -> None:
    done = CliRunner().invoke(main, ["simulate", "--scenarios", "2", "--seed", "3", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["scenarios"] == 2
    assert set(found["hashes"]) == {"3", "4"}
    assert found["broken"] == []


def test_the_command_says_what_was_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    good = live(draw(3))
    monkeypatch.setattr(simulate, "storm", lambda seed, page_messages: replace(good, broken=(("P2", "lost"),)))
    done = CliRunner().invoke(main, ["simulate", "--scenarios", "5", "--seed", "3", "--until-broken"])
    assert done.exit_code == 1
    assert "P2: lost" in done.output
    assert "edgebroker simulate --scenarios 1 --seed 3 --shrink" in done.output
    assert "storms                         1" in done.output


@pytest.mark.parametrize("wrong", [["--scenarios", "0"], ["--jobs", "0"], ["--seed", "-1"]])
def test_the_command_refuses_nonsense(wrong: list[str]) -> None:
    assert CliRunner().invoke(main, ["simulate", *wrong]).exit_code == 2
