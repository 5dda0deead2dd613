"""The wills of the clients of a gateway process that is killed: another gateway publishes them, and no other one."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest

from ..support.topologies import ROW_OF_THREE
from .conftest import V5, Gateway, Guest

pytestmark = pytest.mark.live

NAMES = ("gw-a", "gw-b", "gw-c")


@pytest.fixture
def start(tmp_path: Path, start_gateway: Callable[..., Gateway]) -> Callable[[str], Gateway]:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in NAMES]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        topology = tmp_path / "row.toml"
        topology.write_text(ROW_OF_THREE.format(*(one.getsockname()[1] for one in taken)))

    def begin(name: str) -> Gateway:
        settings = tmp_path / f"{name}.toml"
        overlay = f'[overlay]\ntopology = "{topology}"\ndead_gateway_wills_after_s = 1\n'
        ports = "[listener]\nport = 0\n[http]\nport = 0\n"
        settings.write_text(f'[node]\nname = "{name}"\n{ports}[data]\ndir = "{tmp_path / name}"\n{overlay}')
        return start_gateway("--config", str(settings))

    return begin


def wait_for_link(gateway: Gateway) -> None:
    url = f"http://127.0.0.1:{gateway.listening['http']['port']}/links"
    while not any(row["up"] for row in json.load(urlopen(url))["links"]):
        time.sleep(0.05)


def test_a_will_of_a_killed_gateway_is_heard_once(start: Callable[[str], Gateway]) -> None:
    dead, keeper = start("gw-a"), start("gw-b")  # gw-c is away
    wait_for_link(keeper)
    reader = Guest(keeper.port, V5, "reader")
    reader.connect()
    reader.subscribe("status/#", 1)
    device = Guest(dead.port, V5, "device", keep=True)
    device.client.will_set("status/device", b"gone", 1)
    device.connect()
    dead.kill()
    assert reader.next().payload == b"gone"
    start("gw-a")
    wait_for_link(keeper)
    sender = Guest(keeper.port, V5, "sender")
    sender.connect()
    assert reader.all_from(sender) == []
