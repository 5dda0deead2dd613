"""`edgebroker bridge`: bridges that come, rest and go while the gateway runs, and what it says of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import PATIENCE_S, V5, Gateway, Guest, command_line
from .mosquitto import NEEDS_MOSQUITTO
from .test_live_own_bridge import await_bridge, guest_of, mosquitto, settings

pytestmark = [pytest.mark.live, NEEDS_MOSQUITTO]


def bridge(gateway: Gateway, act: str, *arguments: str) -> tuple[int, str]:
    host, port = gateway.listening["http"]["host"], gateway.listening["http"]["port"]
    return command_line("bridge", act, *arguments, "--http", f"{host}:{port}")


def rows(gateway: Gateway) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(bridge(gateway, "list", "--json")[1])["bridges"]
    return found


def await_state(gateway: Gateway, state: str) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_S
    while (row := rows(gateway)[0])["state"] != state:
        assert time.monotonic() < deadline, row
    return row


def test_a_bridge_comes_rests_and_goes(start_gateway: Callable[..., Any], tmp_path: Path, free_port: int) -> None:
    options = ("--data", str(tmp_path / "data"), "--http", "0")
    gateway = start_gateway(*options)
    assert bridge(gateway, "list") == (0, "there are no bridges\n")
    with mosquitto(tmp_path, free_port):
        remote = f"127.0.0.1:{free_port}"
        more = ("--set", "keep_alive_s=30", "--set", "notification_topic=here/up", "--set", "live_first=true")
        added = bridge(gateway, "add", "up", remote, "--topic", "a/# out 1 where x > 1", *more)
        assert added == (0, "up is added\n")
        there = guest_of(free_port, "there")
        await_bridge(there)
        assert await_state(gateway, "open")["rules"] == [
            {"rule": "a/# out 1 where x > 1", "out": 0, "in": None, "refused": None}
        ]
        here = guest_of(gateway.port, "here")
        there.subscribe("a/#", 1)
        here.publish("a/b", b'{"x": 2}')
        assert there.next().payload == b'{"x": 2}'
        assert bridge(gateway, "pause", "up") == (0, "up is paused\n")
        await_bridge(there, b"0")
        for x in range(5):
            here.publish("a/b", b'{"x": %d}' % x)
        [row] = rows(gateway)
        assert (row["state"], row["waiting"], row["added"]) == ("paused", 3, True)
        gateway.stop()
        gateway = start_gateway(*options)  # it is there after a restart too, still paused, and so is what waits
        [row] = rows(gateway)
        assert (row["state"], row["waiting"]) == ("paused", 3)
        assert row["spool"]["oldest_s"] > 0
        assert " s; dropped: none\n" in bridge(gateway, "status", "up")[1]
        assert bridge(gateway, "resume", "up")[0] == 0
        assert [there.next().payload for _ in range(3)] == [b'{"x": %d}' % x for x in (2, 3, 4)]
        code, said = bridge(gateway, "status", "up")
        assert code == 0
        assert "a/# out 1 where x > 1: out 3" in said
        assert bridge(gateway, "remove", "up") == (0, "up is no more\n")
        assert rows(gateway) == []
        assert bridge(gateway, "pause", "up")[0] == 2
    gateway.stop()


def test_what_is_wrong_is_said(start_gateway: Callable[..., Any], tmp_path: Path, free_port: int) -> None:
    gateway = start_gateway("--config", settings(tmp_path, free_port, "5", "a out 1"), "--http", "0")
    row = await_state(gateway, "waiting")
    assert "Connect call failed" in row["reason"] or "refused" in row["reason"].lower()
    code, said = bridge(gateway, "list")
    assert code == 1
    assert f"up: 127.0.0.1:{free_port}: " in said
    for arguments, why in (
        (("add", "up", "h:1", "--topic", "a"), "there is a bridge up already"),
        (("add", "x", "h", "--topic", "a"), "is 'h'; write"),
        (("add", "x", "h:1", "--topic", "a#"), "'#' must be the whole last level"),
        (("remove", "up"), "stands in the settings file"),
        (("resume", "x"), "there is no bridge 'x'; there are up"),
        (("status", "x"), "there is no bridge 'x'; there are up"),
    ):
        code, said = bridge(gateway, *arguments)
        assert (code > 0, why in said) == (True, True), said
    gateway.stop()


def test_reload_changes_bridges(start_gateway: Callable[..., Any], tmp_path: Path, free_port: int) -> None:
    config = settings(tmp_path, free_port, "5", "a out 1")
    with mosquitto(tmp_path, free_port):
        gateway = start_gateway("--config", config, "--http", "0")
        there, here = guest_of(free_port, "there"), guest_of(gateway.port, "here")
        await_bridge(there)
        settings(tmp_path, free_port, "5", "b out 1")
        said = gateway.reload()
        assert [(one["key"], one["old"], one["new"]) for one in said["changes"]] == [
            ("bridge up.topic", ["a out 1"], ["b out 1"])
        ]
        there.subscribe("#", 1)
        await_state(gateway, "open")
        here.publish("a", b"1")
        here.publish("b", b"2")
        while (message := there.next()).topic == "here/up":
            pass
        assert (message.topic, message.payload) == ("b", b"2")
        Path(config).write_text(f'[data]\ndir = "{tmp_path}/data"\n')
        assert gateway.reload()["notes"] == ["bridge up: its session ended, 0 messages that waited are dropped"]
        assert rows(gateway) == []
        gateway.stop()


@pytest.mark.parametrize("spoken", ["5", "3.1.1"])
def test_what_is_gone_is_gone_there_too(
    start_gateway: Callable[..., Any], tmp_path: Path, free_port: int, spoken: str
) -> None:
    """A subscription that no rule wants any more, after a restart too; and the session, when the bridge is no more."""
    more = 'client_id = "uplink"\n'
    config, log = settings(tmp_path, free_port, spoken, "a in 1", "b in 1", more=more), tmp_path / "mosquitto.log"
    with mosquitto(tmp_path, free_port):
        gateway = start_gateway("--config", config, "--http", "0")
        there = guest_of(free_port, "there")
        await_bridge(there)
        gateway.stop()
        settings(tmp_path, free_port, spoken, "b in 1", more=more)
        gateway = start_gateway("--config", config, "--http", "0")
        await_text(tmp_path / "data" / "bridges.json", '"asked": [\n   "b"\n  ]')
        here = guest_of(gateway.port, "here")
        here.subscribe("#", 1)
        there.publish("a", b"1")
        there.publish("b", b"2")
        assert here.next().payload == b"2"
        assert rows(gateway)[0]["in"]["dropped"] == {}
        bridge(gateway, "pause", "up")
        settings(tmp_path, free_port, spoken, "b in 0", more=more)
        gateway.reload()
        assert rows(gateway)[0]["state"] == "paused"
        assert bridge(gateway, "resume", "up")[0] == 0
        await_state(gateway, "open")
        Path(config).write_text(f'[data]\ndir = "{tmp_path}/data"\n')
        gateway.reload()
        if spoken == "3.1.1":
            await_text(log, "as uplink (p2, c1,")
        await_text(log, "Client uplink disconnected", times=4 if spoken == "3.1.1" else 3)
        gateway.stop()
        assert not Guest(free_port, V5, "uplink", keep=True).connect(), "there is no session any more"


def await_text(file: Path, text: str, times: int = 1) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not file.exists() or file.read_text().count(text) < times:
        assert time.monotonic() < deadline, file.read_text() if file.exists() else file
        time.sleep(0.02)


def test_nobody_else_is_a_bridge(start_gateway: Callable[..., Any]) -> None:
    gateway = start_gateway()
    stranger = Guest(gateway.port, V5, "$bridge/up")
    with pytest.raises(AssertionError, match="Client identifier not valid"):
        stranger.connect()
    stranger.client.loop_stop()
