"""A bridge with invalid settings is left out: the others run, and its queue waits until it is mended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner

from edgebridge.session.queue.outbox import OverflowPolicy
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Connect, Publish
from edgebroker.cli.check import command as check
from edgebroker.errors import SettingsInvalid
from edgebroker.names import ClientId
from edgebroker.runtime.bridges.bridges import BridgeManager, BridgeNameTaken
from edgebroker.runtime.gateway import Gateway
from edgebroker.runtime.http import health
from edgebroker.runtime.http.bridges import bridge_rows
from edgebroker.runtime.loop.reactor import clock
from edgebroker.runtime.settings import SECTIONS, Settings, SettingsRefused
from edgebroker.runtime.settings.schema import Section

from ..support.gateway_in_process import Paper
from ..support.restarted_gateway import BRIDGE, SAME, RestartedGateway

MANY = 30  # more than waits for clients without bounds of their own
DEEP = 'queue_messages_max = 2000\nqueue_full = "{}"\n'


@pytest.mark.parametrize(
    ("text", "usable", "aside"),
    [
        (BRIDGE.format("a") + "prot = 1\n", [], ["a: f.toml:6: bridge.prot: unknown key; did you mean protocol?"]),
        (BRIDGE.format("a/") + BRIDGE.format("b"), ["b"], [": f.toml:2: bridge.name: is 'a/'"]),
        (BRIDGE.format("a") * 2, ["a"], ["a: f.toml:7: bridge.name: is 'a' a second time"]),
        (
            SAME.format("a") + SAME.format("b"),
            ["a"],
            ["b: f.toml:10: bridge.client_id: is 'c', as that of a to the same"],
        ),
        (SAME.format("a") + SAME.format("b") + "paused = true\n", ["a", "b"], []),
        (SAME.format("a") + SAME.format("b").replace("h:1", "h:2"), ["a", "b"], []),
        ("bridge = 3\n", [], [": f.toml:1: bridge: is a section; write [[bridge]]"]),
        ('[bridge]\nname = "a"\n', [], ["a: f.toml:1: bridge.addresses: is not set"]),
    ],
)
def test_one_that_is_wrong_stands_apart(text: str, usable: list[str], aside: list[str]) -> None:
    settings = Settings.parse(text, "f.toml", Path(), apart=True)
    assert [one.name for one in settings.bridges] == usable
    for one, said in zip(settings.aside, aside, strict=True):
        assert f"{one.name}: {one.problems[0]}".startswith(said)
    with pytest.raises(SettingsRefused) if aside else nullcontext():
        Settings.parse(text, "f.toml", Path())
    with pytest.raises(SettingsRefused):  # all else is refused as ever
        Settings.parse("[limits]\nx = 1\n" + text, "f.toml", Path(), apart=True)


def test_no_more_are_added_than_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house = RestartedGateway(tmp_path)
    house.write(BRIDGE.format("z"))
    one, two, three = (Settings.parse(BRIDGE.format(name), "f", tmp_path).bridges[0] for name in "abc")

    async def adds(gateway: Gateway, bridge_manager: BridgeManager) -> None:
        await bridge_manager.add(one), await bridge_manager.add(two)
        two_at_most = replace(SECTIONS["bridge"], tables_max=2)
        monkeypatch.setitem(cast(dict[str, Section], SECTIONS), "bridge", two_at_most)
        with pytest.raises(SettingsRefused, match=r"bridges\.toml: bridge: has 3 entries; add at most 2"):
            await bridge_manager.add(three)
        assert [*bridge_manager.bridges] == ["z", "a", "b"]

    async def has_both(gateway: Gateway, bridge_manager: BridgeManager) -> None:
        assert [*bridge_manager.bridges] == ["z", "a", "b"]
        await bridge_manager.remove("a")

    house.run(adds)
    house.run(has_both)


async def publish(gateway: Gateway, topic: str, count: int, payload: bytes = b"old") -> None:
    """Returns when all is on disk and where it belongs."""
    await until(lambda: len(gateway.frontend.connect_handler.sessions) > 0)  # the bridge has come
    frontend, before = gateway.frontend, gateway.ledger.published
    here = frontend.opened("test:1", clock())
    here.transport = Paper(gateway, here)
    frontend.feed(here, encode_packet(Connect("here", dialect=V5), V5), clock())
    for number in range(1, count + 1):
        frontend.feed(here, encode_packet(Publish(topic, payload, qos=1, packet_id=number), V5), clock())
    await until(lambda: gateway.ledger.published == before + count)


async def until(is_so: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if is_so():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came")


@pytest.mark.parametrize("policy", [OverflowPolicy.DOWN_SAMPLE, OverflowPolicy.DROP_OLDEST])
@pytest.mark.parametrize("slip", ["queue_mesages_max = 2000\n", "[[bridge.topic]]\npattern = 3\n", "x = \n"])
def test_what_waits_for_it_is_kept(tmp_path: Path, policy: OverflowPolicy, slip: str) -> None:
    """Whatever is wrong: a bound, something else, or the whole file of those that were added."""
    house, good = RestartedGateway(tmp_path), BRIDGE.format("b") + DEEP.format(policy)
    house.head += f'[mqtt]\nqueue_full = "{policy}"\n'
    house.write(BRIDGE.format("a"))
    house.added.write_text(good)

    async def fill(gateway: Gateway, bridge_manager: BridgeManager) -> None:
        await publish(gateway, "b/1", MANY)
        assert bridge_manager.waiting("b") == MANY

    house.run(fill)
    house.added.write_text(BRIDGE.format("b") + slip)

    async def set_aside(gateway: Gateway, bridge_manager: BridgeManager) -> None:
        assert list(bridge_manager.bridges) == ["a"]
        assert any("bridge-set-aside: " in line and "bridges.toml:" in line for line in house.lines)
        await publish(gateway, "b/1", 12, b"new")
        session = gateway.frontend.connect_handler.sessions[ClientId("$bridge/b")]
        waits = [entry.publication.payload for entry in (*session.inflight, *session.outbox)]
        assert waits.count(b"old") == MANY
        [row, *_] = bridge_rows(bridge_manager)["set_aside"]
        assert (row["bridge"], row["runs_as_before"]) == ("b" if bridge_manager.aside[0].name else None, False)
        said = health.report(gateway.view)
        assert said["status"] == "ok"
        assert [warning.split(":")[0] for warning in said["warnings"]] == ["queues", "queues", "set aside"]
        with pytest.raises(SettingsInvalid, match="is not written over"):
            await bridge_manager.add(Settings.parse(BRIDGE.format("c"), "c", Path()).bridges[0])
        outcome = await house.reload(gateway)
        assert (outcome.changes, len(outcome.rejected)) == ([], 1)
        house.added.write_text(good)
        outcome = await house.reload(gateway)
        assert (outcome.rejected, bridge_manager.aside, bridge_manager.waiting("b") >= MANY) == ((), (), True)
        assert bridge_manager.bridges["b"].is_paused
        house.added.unlink()
        await house.reload(gateway)
        assert bridge_manager.waiting("b") == 0

    house.run(set_aside)


def test_at_a_reload_it_goes_on_as_before(tmp_path: Path) -> None:
    house = RestartedGateway(tmp_path)
    house.write(BRIDGE.format("a"), BRIDGE.format("b"))

    async def story(gateway: Gateway, bridge_manager: BridgeManager) -> None:
        await publish(gateway, "b/1", 3)
        for wrong in ("prot = 1\n", f'username = "u"\npassword_file = "{tmp_path}/lost"\n'):
            house.write(BRIDGE.format("a") + "retry_s_max = 7\n", BRIDGE.format("b") + wrong, BRIDGE.format("c"))
            outcome = await house.reload(gateway)
            assert [one.name for one in outcome.rejected] == ["b"]
            assert outcome.as_json()["rejected"][0]["bridge"] == "b"
            assert list(bridge_manager.bridges) == ["a", "b", "c"]
            assert (bridge_manager.bridges["a"].settings.retry_s_max, bridge_manager.waiting("b")) == (7, 3)
            assert not bridge_manager.bridges["b"].settings.username
            with pytest.raises(BridgeNameTaken):
                await bridge_manager.add(bridge_manager.bridges["b"].settings)
        assert not any("bridge b" in str(change) for change in outcome.changes)
        first, second, *_ = (await house.reload(gateway)).lines()
        assert (first, second.split(": ")[:3]) == ("reload: 1 rejected", ["  rejected", "bridge b", f"{tmp_path}/lost"])
        (tmp_path / "lost").write_text("secret\n")
        changed = [str(change) for change in (await house.reload(gateway)).changes]
        assert [line.split(": ")[0] for line in changed] == ["bridge b.username", "bridge b.password_file"]
        house.write(BRIDGE.format("a"), BRIDGE.format("b/"))  # it may be b, and may be not
        assert (await house.reload(gateway)).changes
        assert (list(bridge_manager.bridges), bridge_manager.waiting("b")) == (["a", "b", "c"], 3)
        house.write(BRIDGE.format("a"))
        assert len((await house.reload(gateway)).notes) == 2
        assert (list(bridge_manager.bridges), bridge_manager.waiting("b")) == (["a"], 0)

    house.run(story)


def test_one_whose_password_is_lost_begins_when_it_is_found(tmp_path: Path) -> None:
    house, secret = RestartedGateway(tmp_path), tmp_path / "secret"
    house.write(BRIDGE.format("b"), 'username = "u"\npassword_file = "secret"\n')

    async def story(gateway: Gateway, bridge_manager: BridgeManager) -> None:
        for _ in range(2):
            with pytest.raises(SettingsRefused, match="cannot be read: No such file"):
                bridge_manager.set_paused("b", False)
            house.tick(bridge_manager)
        assert not bridge_manager.bridges
        secret.write_text("x\n")
        house.tick(bridge_manager)
        assert (list(bridge_manager.bridges), bridge_manager.aside) == (["b"], ())
        assert bridge_manager.bridges["b"].options.password == b"x"

    house.run(story)
    secret.unlink()

    async def removed(gateway: Gateway, bridge_manager: BridgeManager) -> None:
        assert bridge_manager.waiting("b") == 0
        house.write()
        notes = list((await house.reload(gateway)).notes)
        assert [note.split(" ")[0] for note in notes] == ["$bridge/b"], "its session ends though it never began here"
        assert bridge_manager.aside == ()

    house.run(removed)


@pytest.mark.parametrize(
    ("listed", "data", "added", "code", "said"),
    [
        ("", "data", "x = \n", 2, "bridges.toml:1: not TOML"),
        ("", "data", BRIDGE.format("a"), 0, "OK"),
        (
            BRIDGE.format("a") + 'tls_ca = "lost"\n',
            "data",
            "",
            2,
            "gateway.toml:8: bridge.tls_ca: {}/lost: cannot be read",
        ),
        ("", "x" * 300, "", 0, "are not checked: "),
    ],
)
def test_check_looks_at_all_of_them(tmp_path: Path, listed: str, data: str, added: str, code: int, said: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/bridges.toml").write_text(added)
    file = tmp_path / "gateway.toml"
    file.write_text(f'[data]\ndir = "{data}"\n{listed}')
    result = CliRunner().invoke(check, [str(file)])
    assert (result.exit_code, said.format(tmp_path) in result.output) == (code, True), result.output


def test_no_bridge_is_added_as_a_client_that_the_remote_has_already(tmp_path: Path) -> None:
    house = RestartedGateway(tmp_path)
    house.write(SAME.format("a"))

    async def story(gateway: Gateway, bridge_manager: BridgeManager) -> None:
        present = bridge_manager.bridges["a"].settings
        with pytest.raises(BridgeNameTaken, match="client_id is 'c', as that of a to the same address"):
            await bridge_manager.add(replace(present, name="b"))
        assert [*bridge_manager.bridges] == ["a"]
        await bridge_manager.add(replace(present, name="b", addresses=("h:2",), paused=True))
        assert [*bridge_manager.bridges] == ["a", "b"]

    house.run(story)
