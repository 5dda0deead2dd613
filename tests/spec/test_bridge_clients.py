"""No two bridges that run are one client to a remote, wherever they stand and whoever paused or resumed them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgebroker.cli.check import command as check
from edgebroker.runtime.bridges.bridges import BridgeManager, BridgeNameTaken
from edgebroker.runtime.gateway import Gateway

from ..support.restarted_gateway import BRIDGE, SAME, RestartedGateway

CLASH = "client_id is 'c', as that of {} to the same address"
OTHER = BRIDGE.format("z")  # there is always one


def running(bridge_manager: BridgeManager) -> list[str]:
    return [name for name, bridge in bridge_manager.bridges.items() if not bridge.is_paused]


def aside(bridge_manager: BridgeManager) -> list[str]:
    return [f"{one.name}: {one.problems[0].reason}" for one in bridge_manager.aside]


def test_the_one_that_runs_goes_on_and_at_a_start_the_listed_one_begins(tmp_path: Path) -> None:
    house = RestartedGateway(tmp_path)
    house.write(OTHER)
    house.added.write_text(SAME.format("b"))

    async def reloads(gateway: Gateway, bridge_manager: BridgeManager) -> None:
        house.write(OTHER, SAME.format("a"))
        outcome = await house.reload(gateway)
        assert [one.name for one in outcome.rejected] == ["a"]
        assert (running(bridge_manager), aside(bridge_manager)) == (
            ["b"],
            ["a: is 'c', as that of b to the same address"],
        )
        house.tick(bridge_manager)
        with pytest.raises(BridgeNameTaken, match=CLASH.format("b")):
            bridge_manager.set_paused("a", False)
        assert running(bridge_manager) == ["b"]

    house.run(reloads)

    async def starts(gateway: Gateway, bridge_manager: BridgeManager) -> None:
        assert (running(bridge_manager), aside(bridge_manager)) == (
            ["a"],
            ["b: is 'c', as that of a to the same address"],
        )
        bridge_manager.set_paused("a", True)
        house.tick(bridge_manager)
        assert running(bridge_manager) == [], "only an operator says that it takes the place of the other"
        bridge_manager.set_paused("b", False)
        assert (running(bridge_manager), aside(bridge_manager)) == (["b"], [])
        with pytest.raises(BridgeNameTaken, match=CLASH.format("b")):
            bridge_manager.set_paused("a", False)
        assert bridge_manager.state_file.is_paused("a")

    house.run(starts)


def test_one_that_goes_on_as_before_is_in_the_way_too(tmp_path: Path) -> None:
    house = RestartedGateway(tmp_path)
    house.write(SAME.format("b"))

    async def story(gateway: Gateway, bridge_manager: BridgeManager) -> None:
        house.write(SAME.format("a"), SAME.format("b") + "prot = 1\n")
        await house.reload(gateway)
        assert (running(bridge_manager), sorted(one.name for one in bridge_manager.aside)) == (["b"], ["a", "b"])
        house.write(SAME.format("a"), SAME.format("b").replace('"c"', '"d"'))
        await house.reload(gateway)
        assert (sorted(bridge_manager.bridges), bridge_manager.aside) == (["a", "b"], ())

    house.run(story)


def test_what_an_operator_resumed_runs_and_what_was_paused_does_not(tmp_path: Path) -> None:
    house = RestartedGateway(tmp_path)
    house.write(SAME.format("a") + "paused = true\n")

    async def story(gateway: Gateway, bridge_manager: BridgeManager) -> None:
        bridge_manager.set_paused("a", False)
        other = replace(bridge_manager.bridges["a"].settings, name="b", paused=False)
        with pytest.raises(BridgeNameTaken, match=CLASH.format("a")):
            await bridge_manager.add(other)
        bridge_manager.set_paused("a", True)
        await bridge_manager.add(other)
        assert running(bridge_manager) == ["b"]
        bridge_manager.set_paused("b", True)
        await bridge_manager.add(replace(other, name="d"))
        assert running(bridge_manager) == ["d"]
        for name in "ab":
            with pytest.raises(BridgeNameTaken, match=CLASH.format("d")):
                bridge_manager.set_paused(name, False)
        await house.reload(gateway)
        assert (running(bridge_manager), bridge_manager.aside) == (["d"], ())

    async def again(gateway: Gateway, bridge_manager: BridgeManager) -> None:
        assert (running(bridge_manager), bridge_manager.aside) == (["d"], ())
        await bridge_manager.remove("d"), await bridge_manager.remove("b")

    house.run(story)
    house.run(again)


@pytest.mark.parametrize("by", ["add", "resume"])
def test_who_came_while_a_reload_was_prepared_goes_on(tmp_path: Path, by: str) -> None:
    house = RestartedGateway(tmp_path)
    house.write(OTHER, SAME.format("p") + "paused = true\n")

    async def story(gateway: Gateway, bridge_manager: BridgeManager) -> None:
        house.write(OTHER, SAME.format("p") + "paused = true\n", SAME.format("a"))
        prepared = await bridge_manager.prepare(house.read())
        if by == "add":
            await bridge_manager.add(replace(bridge_manager.bridges["p"].settings, name="b", paused=False))
        else:
            bridge_manager.set_paused("p", False)
        before = running(bridge_manager)
        list(prepared.commit())
        assert len(before) == 1
        assert (running(bridge_manager), [one.name for one in bridge_manager.aside]) == (before, ["a"])

    house.run(story)


@pytest.mark.parametrize(
    ("paused", "code"), [("", 2), ('{"b": {"paused": true}}', 0), ('{"b": {}}', 2), ("[3]", 2), ('{"b": 3}', 2)]
)
def test_check_sees_them_unless_one_is_paused(tmp_path: Path, paused: str, code: int) -> None:
    house = RestartedGateway(tmp_path)
    house.write(SAME.format("a"))
    house.added.write_text(SAME.format("b"))
    if paused:
        kept = house.added.with_name("bridges.json")
        kept.write_text(paused)
        kept.chmod(0o600)
    result = CliRunner().invoke(check, [str(house.file)])
    assert (result.exit_code, "is 'c', as that of a to" in result.output) == (code, code == 2), result.output
