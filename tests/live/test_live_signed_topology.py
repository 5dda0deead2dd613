"""A signed topology is handed on from gateway to gateway; and where topologies differ it is told in what, and who is
older.
"""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from edgebroker.ed25519 import public_key
from edgebroker.runtime.topology_signature import PUBLIC, sign_topology

from ..support.topologies import ROW_OF_THREE
from .conftest import PATIENCE_S, Gateway, command_line

pytestmark = pytest.mark.live

YARD = """
[[site]]
name = "yard"
[[gateway]]
name = "gw-yard"
site = "yard"
address = "127.0.0.1:{}"
"""
KEY = bytes(range(32))


class Plant:
    """A folder for each gateway, with a topology file of its own."""

    def __init__(self, folder: Path, start: Callable[..., Gateway]) -> None:
        with ExitStack() as stack:
            taken = [stack.enter_context(socket.socket()) for _ in range(4)]
            for one in taken:
                one.bind(("127.0.0.1", 0))
            ports = [one.getsockname()[1] for one in taken]
        self.old = ROW_OF_THREE.format(*ports[:3])
        self.new = self.old + YARD.format(ports[3])
        self._folder, self._start = folder, start
        self._http: dict[str, str] = {}

    def start(self, name: str, text: str, is_signed: bool = True) -> Gateway:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        (folder / "topology.toml").write_text(text)
        (folder / "topology.pub").write_text(f"{PUBLIC}{public_key(KEY).hex()}\n")
        (folder / "gateway.toml").write_text(
            f'[node]\nname = "{name}"\n[listener]\nport = 0\n[http]\nport = 0\n[data]\ndir = "data"\n'
            '[overlay]\ntopology = "topology.toml"\n' + ('topology_key = "topology.pub"\n' if is_signed else "")
        )
        gateway = self._start("--config", str(folder / "gateway.toml"))
        self._http[name] = f"127.0.0.1:{gateway.listening['http']['port']}"
        return gateway

    def links(self, name: str) -> dict[str, dict[str, Any]]:
        rows = json.loads(command_line("links", "--http", self._http[name], "--json")[1])["links"]
        return {row["peer"]: row for row in rows}

    def await_links(self, name: str, *peers: str) -> None:
        """Wait until *name* has links to exactly these peers, the running ones of which are up."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            rows = self.links(name)
            if rows.keys() == set(peers) and all(row["up"] for peer, row in rows.items() if peer != "gw-yard"):
                return
            time.sleep(0.1)
        raise AssertionError(f"{name} has {self.links(name)}")

    def await_link(self, name: str, peer: str) -> None:
        """Wait until *name* has the new topology, and a link to *peer*."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            rows = self.links(name)
            if "gw-yard" in rows and rows[peer]["up"]:
                return
            time.sleep(0.1)
        raise AssertionError(f"{name} has {self.links(name)}")


def test_a_newer_signed_topology_is_handed_on(start_gateway: Callable[..., Gateway], tmp_path: Path) -> None:
    plant = Plant(tmp_path, start_gateway)
    old, new = sign_topology(plant.old, KEY, 1_800_000_000), sign_topology(plant.new, KEY, 1_800_000_060)
    first, middle, last = (plant.start(name, old) for name in ("gw-a", "gw-b", "gw-c"))
    plant.await_links("gw-b", "gw-a", "gw-c")
    last.stop()

    (tmp_path / "gw-a" / "topology.toml").write_text(new)
    first.process.send_signal(signal.SIGHUP)
    plant.await_links("gw-a", "gw-b", "gw-yard")
    middle_file = tmp_path / "gw-b" / "data" / "topology.toml"
    until = time.monotonic() + PATIENCE_S
    while not middle_file.exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert middle_file.read_text() == new

    last = plant.start("gw-c", old)
    plant.await_links("gw-c", "gw-b", "gw-yard")
    plant.await_links("gw-b", "gw-a", "gw-c", "gw-yard")
    for gateway in (first, middle):
        gateway.stop()
    last.stop()
    last = plant.start("gw-c", old)  # nobody is there to hand it on again
    assert plant.links("gw-c").keys() == {"gw-b", "gw-yard"}
    last.stop()


def test_a_gateway_that_dials_hands_its_newer_topology_on(
    start_gateway: Callable[..., Gateway], tmp_path: Path
) -> None:
    """Each of the two begins with the newer file once, so whichever dials."""
    for newer, older in (("gw-a", "gw-b"), ("gw-b", "gw-a")):
        folder = tmp_path / newer
        folder.mkdir()
        plant = Plant(folder, start_gateway)
        one = plant.start(newer, sign_topology(plant.new, KEY, 1_800_000_060))
        other = plant.start(older, sign_topology(plant.old, KEY, 1_800_000_000))
        plant.await_link(older, newer)
        expected = {"gw-a": {"gw-b", "gw-yard"}, "gw-b": {"gw-a", "gw-c", "gw-yard"}}
        assert plant.links(older).keys() == expected[older]
        one.stop()
        other.stop()


def test_a_topology_with_another_signature_is_not_taken(start_gateway: Callable[..., Gateway], tmp_path: Path) -> None:
    plant = Plant(tmp_path, start_gateway)
    signed = sign_topology(plant.old, KEY, 1_800_000_000)
    middle = plant.start("gw-b", signed)
    # A gateway without the key, which believes whatever stands in its file.
    thief = plant.start("gw-a", sign_topology(plant.new, bytes(32), 1_900_000_000), is_signed=False)
    until = time.monotonic() + PATIENCE_S
    while not (row := plant.links("gw-b")["gw-a"])["reason"].startswith("the topologies") and time.monotonic() < until:
        time.sleep(0.1)
    assert row["reason"] == (
        "the topologies of gw-b and gw-a differ in gateway gw-yard (gw-b has none), site yard (gw-b has none); that of"
        " gw-a is not signed"
    ) or row["reason"] == (
        "the topologies of gw-a and gw-b differ in gateway gw-yard (gw-b has none), site yard (gw-b has none); that of"
        " gw-a is not signed"
    )
    assert plant.links("gw-b").keys() == {"gw-a", "gw-c"}
    thief.stop()
    middle.stop()


def test_a_gateway_is_taken_out_and_the_others_hand_that_on(
    start_gateway: Callable[..., Gateway], tmp_path: Path
) -> None:
    plant = Plant(tmp_path, start_gateway)
    old = sign_topology(plant.old, KEY, 1_800_000_000)
    first, middle, last = (plant.start(name, old) for name in ("gw-a", "gw-b", "gw-c"))
    plant.await_links("gw-b", "gw-a", "gw-c")
    above, _, _ = plant.old.rpartition("[[gateway]]")
    rest = sign_topology(above.replace('["b"]', '["b", "c"]'), KEY, 1_800_000_060)
    (tmp_path / "gw-a" / "topology.toml").write_text(rest)
    assert first.reload()["taken"]
    plant.await_links("gw-b", "gw-a")
    until = time.monotonic() + PATIENCE_S
    while plant.links("gw-c")["gw-b"]["up"] and time.monotonic() < until:
        time.sleep(0.1)
    assert not plant.links("gw-c")["gw-b"]["up"], "it is no peer of anybody"
    for gateway in (first, middle, last):
        gateway.stop()
