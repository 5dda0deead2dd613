"""Two gateways with a bridge to the same remote: one carries messages, the other takes over when that one is dead."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from edgelab.processes import free_ports

from ..support.topologies import TWO_GATEWAYS
from .conftest import PATIENCE_S, Gateway, Guest
from .test_live_bridge_control import bridge
from .test_live_own_bridge import guest_of

pytestmark = pytest.mark.live
SETTINGS = """
[node]
name = "{name}"
[overlay]
topology = "topology.toml"
[http]
port = 0
[[bridge]]
name = "far"
pair = "far"
takeover_s = 2
addresses = ["127.0.0.1:{far}"]
topic = ["t/# out 2"]
"""


@pytest.fixture
def start(start_gateway: Callable[..., Gateway], tmp_path: Path) -> Callable[[str, int], Gateway]:
    (tmp_path / "topology.toml").write_text(TWO_GATEWAYS.format(*free_ports(2)))

    def come(name: str, far: int) -> Gateway:
        settings = tmp_path / f"{name}.toml"
        settings.write_text(SETTINGS.format(name=name, far=far))
        return start_gateway("--config", str(settings), "--data", str(tmp_path / name))

    return come


def rows(gateway: Gateway) -> list[dict[str, Any]]:
    http = gateway.listening["http"]
    with urllib.request.urlopen(f"http://{http['host']}:{http['port']}/bridges", timeout=PATIENCE_S) as answer:
        found: list[dict[str, Any]] = json.load(answer)["bridges"]
    return found


def await_roles(gateways: Sequence[Gateway], *roles: str) -> list[Gateway]:
    """Returns the gateways in the order of *roles*, when these are their roles and their bridges are connected."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = [rows(gateway)[0] for gateway in gateways]
        if sorted(row["role"] for row in found) == sorted(roles) and all(row["state"] == "open" for row in found):
            by_role = {row["role"]: gateway for row, gateway in zip(found, gateways, strict=True)}
            return [by_role[role] for role in roles]
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def publish(guest: Guest, *payloads: bytes) -> None:
    for payload in payloads:
        guest.publish("t/x", payload, qos=2)


def test_one_of_two_bridges_carries_messages_and_the_other_takes_over(
    start_gateway: Callable[..., Gateway], start: Callable[[str, int], Gateway]
) -> None:
    far = start_gateway("--memory")
    gateways = {name: start(name, far.port) for name in ("gw-here", "gw-there")}
    active, standby = await_roles([*gateways.values()], "active", "standby")
    reader, writer = guest_of(far.port, "reader"), guest_of(standby.port, "writer")
    reader.subscribe("t/#", 2)
    publish(writer, b"1", b"2", b"3")
    assert [reader.next().payload for _ in range(3)] == [b"1", b"2", b"3"]
    assert "open, standby" in bridge(standby, "list")[1]
    active.kill()
    await_roles([standby], "active")
    publish(writer, b"4", b"5")
    assert [reader.next().payload for _ in range(2)] == [b"4", b"5"]
    again = start(next(name for name, gateway in gateways.items() if gateway is active), far.port)
    await_roles([again, standby], "active", "standby")
    publish(guest_of(again.port, "other"), b"6", b"7")  # behind what waited for it meanwhile, and comes again
    received = [reader.next().payload]
    while received[-1] != b"7":
        received.append(reader.next().payload)
    assert received in ([b"6", b"7"], [b"4", b"6", b"5", b"7"], [b"4", b"5", b"6", b"7"])
