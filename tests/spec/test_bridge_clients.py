"""No two bridges that run are one client to a remote, wherever they stand and whoever paused or resumed them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgebroker.cli.check import command as check
from edgebroker.world.bridging.bridging import Bridging, NameTaken
from edgebroker.world.gateway import Gateway

from .test_bridge_aside import BRIDGE, SAME, House

CLASH = "client_id is 'c', as that of {} to the same address"
OTHER = BRIDGE.format("z")  # there is always one


def running(bridging: Bridging) -> list[str]:
    return [name for name, bridge in bridging.bridges.items() if not bridge.is_paused]


def aside(bridging: Bridging) -> list[str]:
    return [f"{one.name}: {one.problems[0].reason}" for one in bridging.aside]


def test_the_one_that_runs_goes_on_and_at_a_start_the_listed_one_begins(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.write(OTHER)
    house.added.write_text(SAME.format("b"))

    async def reloads(gateway: Gateway, bridging: Bridging) -> None:
        house.write(OTHER, SAME.format("a"))
        outcome = await house.reload(gateway)
        assert [one.name for one in outcome.rejected] == ["a"]
        assert (running(bridging), aside(bridging)) == (["b"], ["a: is 'c', as that of b to the same address"])
        bridging._tick()
        with pytest.raises(NameTaken, match=CLASH.format("b")):
            bridging.pause("a", False)
        assert running(bridging) == ["b"]

    house.run(reloads)

    async def starts(gateway: Gateway, bridging: Bridging) -> None:
        assert (running(bridging), aside(bridging)) == (["a"], ["b: is 'c', as that of a to the same address"])
        bridging.pause("a", True)
        bridging._tick()
        assert running(bridging) == [], "only an operator says that it takes the place of the other"
        bridging.pause("b", False)
        assert (running(bridging), aside(bridging)) == (["b"], [])
        with pytest.raises(NameTaken, match=CLASH.format("b")):
            bridging.pause("a", False)
        assert bridging.kept.is_paused("a")

    house.run(starts)


def test_one_that_goes_on_as_before_is_in_the_way_too(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.write(SAME.format("b"))

    async def story(gateway: Gateway, bridging: Bridging) -> None:
        house.write(SAME.format("a"), SAME.format("b") + "prot = 1\n")
        await house.reload(gateway)
        assert (running(bridging), sorted(one.name for one in bridging.aside)) == (["b"], ["a", "b"])
        house.write(SAME.format("a"), SAME.format("b").replace('"c"', '"d"'))
        await house.reload(gateway)
        assert (sorted(bridging.bridges), bridging.aside) == (["a", "b"], ())

    house.run(story)


def test_what_an_operator_resumed_runs_and_what_was_paused_does_not(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.write(SAME.format("a") + "paused = true\n")

    async def story(gateway: Gateway, bridging: Bridging) -> None:
        bridging.pause("a", False)
        other = replace(bridging.bridges["a"].settings, name="b", paused=False)
        with pytest.raises(NameTaken, match=CLASH.format("a")):
            await bridging.add(other)
        bridging.pause("a", True)
        await bridging.add(other)
        assert running(bridging) == ["b"]
        bridging.pause("b", True)
        await bridging.add(replace(other, name="d"))
        assert running(bridging) == ["d"]
        for name in "ab":
            with pytest.raises(NameTaken, match=CLASH.format("d")):
                bridging.pause(name, False)
        await house.reload(gateway)
        assert (running(bridging), bridging.aside) == (["d"], ())

    async def again(gateway: Gateway, bridging: Bridging) -> None:
        assert (running(bridging), bridging.aside) == (["d"], ())
        await bridging.remove("d"), await bridging.remove("b")

    house.run(story)
    house.run(again)


@pytest.mark.parametrize("by", ["add", "resume"])
def test_who_came_while_a_reload_was_prepared_goes_on(tmp_path: Path, by: str) -> None:
    house = House(tmp_path)
    house.write(OTHER, SAME.format("p") + "paused = true\n")

    async def story(gateway: Gateway, bridging: Bridging) -> None:
        house.write(OTHER, SAME.format("p") + "paused = true\n", SAME.format("a"))
        prepared = await bridging.prepare(house.read())
        if by == "add":
            await bridging.add(replace(bridging.bridges["p"].settings, name="b", paused=False))
        else:
            bridging.pause("p", False)
        before = running(bridging)
        list(prepared.commit())
        assert len(before) == 1
        assert (running(bridging), [one.name for one in bridging.aside]) == (before, ["a"])

    house.run(story)


@pytest.mark.parametrize(
    ("paused", "code"), [("", 2), ('{"b": {"paused": true}}', 0), ('{"b": {}}', 2), ("[3]", 2), ('{"b": 3}', 2)]
)
def test_check_sees_them_unless_one_is_paused(tmp_path: Path, paused: str, code: int) -> None:
    house = House(tmp_path)
    house.write(SAME.format("a"))
    house.added.write_text(SAME.format("b"))
    if paused:
        kept = house.added.with_name("bridges.json")
        kept.write_text(paused)
        kept.chmod(0o600)
    result = CliRunner().invoke(check, [str(house.file)])
    assert (result.exit_code, "is 'c', as that of a to" in result.output) == (code, code == 2), result.output
