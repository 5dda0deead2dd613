"""`place apply` moves publishers to their readers, with the followers for paho and aiomqtt of docs/recipes.md, and
`place undo` sends them back: nothing is lost or doubled, and what was predicted comes.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import aiomqtt
import paho.mqtt.client as mqtt
import pytest
from click.testing import CliRunner
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edgebroker.cli import main
from edgebroker.cli.http_client import GatewayEndpoint, get_json
from edgebroker.cli.parameters import HttpAddress
from edgebroker.names import Address
from edgelab.demo.federation.relays import UplinkRelay

from ..support.recipes import recipe
from .conftest import PATIENCE_S, V5, Gateway

pytestmark = pytest.mark.live

TOPOLOGY = """
[federation]
name = "plant"
[factor]
tree = "a"
[[site]]
name = "here"
[[site]]
name = "there"
[[gateway]]
name = "gw-here"
site = "here"
clients = "mqtt://127.0.0.1:{}"
[[gateway]]
name = "gw-there"
site = "there"
address = "127.0.0.1:{}"
clients = "mqtt://127.0.0.1:{}"
"""
UPLINK_S = 0.15
"""More than a busy machine adds to it."""
EVERY_S = 0.03
SIZE = 100
"""Bytes of a payload."""


class Readers:
    """All messages are read at gw-there, and every second one at gw-here."""

    def __init__(self, here: int, there: int, stack: ExitStack) -> None:
        self.received: dict[str, list[bytes]] = {}
        for name, port, topic in (("some", here, "lines/+/even"), ("all", there, "lines/#")):
            got, subscribed = self.received.setdefault(name, []), threading.Event()
            client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, name, protocol=V5)
            client.on_subscribe = lambda *_, subscribed=subscribed: subscribed.set()
            client.on_message = lambda client, userdata, message, got=got: got.append(message.payload)
            client.connect("127.0.0.1", port)
            client.loop_start()
            stack.callback(client.loop_stop)
            stack.callback(client.disconnect)
            client.subscribe(topic, 2)
            assert subscribed.wait(PATIENCE_S)


class Publishers:
    """By paho with QoS 2, and by aiomqtt with QoS 1, where a program publishes again what was not acknowledged."""

    def __init__(self, port: int, stack: ExitStack) -> None:
        self.published: dict[str, list[bytes]] = {"paho": [], "aiomqtt": []}
        self.again: set[bytes] = set()
        self._is_over = threading.Event()
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 600
        self._options: dict[str, Any] = {"properties": properties}
        self.threads = [threading.Thread(target=target, args=(port,)) for target in (self._paho, self._aiomqtt)]
        for thread in self.threads:
            thread.start()
        stack.callback(self.end)

    def end(self) -> None:
        self._is_over.set()
        for thread in self.threads:
            thread.join()

    def _next(self, name: str) -> tuple[str, bytes]:
        number = len(self.published[name])
        payload = f"{name} {number}".encode().ljust(SIZE)
        self.published[name].append(payload)
        return f"lines/{name}/{('even', 'odd')[number % 2]}", payload

    def _paho(self, port: int) -> None:
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "paho", protocol=V5)
        recipe("follow_paho.py")["Follower"](client, "127.0.0.1", port, clean_start=False, **self._options)
        client.loop_start()
        last = None
        while not self._is_over.wait(EVERY_S):
            last = client.publish(*self._next("paho"), 2)
        assert last is not None
        last.wait_for_publish(PATIENCE_S)
        client.disconnect()
        client.loop_stop()

    def _aiomqtt(self, port: int) -> None:
        pending: list[tuple[str, bytes]] = []

        async def conversation(client: aiomqtt.Client) -> None:
            self.again.update(payload for _, payload in pending)
            while pending or not self._is_over.is_set():
                pending[:] = pending or [self._next("aiomqtt")]
                await client.publish(*pending[0], 1, timeout=2)  # aiomqtt does not end it with the connection
                pending.clear()
                await asyncio.sleep(EVERY_S)

        follow = recipe("follow_aiomqtt.py")["follow"]
        asyncio.run(follow("127.0.0.1", port, conversation, identifier="aiomqtt", clean_start=False, **self._options))


def open_relay(there: int, stack: ExitStack) -> int:
    """Open a way of UPLINK_S to port *there*, in a thread. Returns its port."""
    relay, is_open = UplinkRelay(("gw-here", "gw-there"), Address("127.0.0.1", there), UPLINK_S), threading.Event()

    async def run() -> None:
        async with relay.open():
            is_open.set()
            await asyncio.Event().wait()

    async def main() -> None:
        with suppress(asyncio.CancelledError):
            await task

    loop = asyncio.new_event_loop()
    task = loop.create_task(run())
    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    stack.callback(thread.join)
    stack.callback(lambda: loop.call_soon_threadsafe(task.cancel))
    assert is_open.wait(PATIENCE_S)
    return relay.port


def test_publishers_are_moved_to_their_readers_and_back(start_gateway: Callable[..., Gateway], tmp_path: Path) -> None:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(3)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        here, there, overlay = [one.getsockname()[1] for one in taken]
    http: dict[str, GatewayEndpoint] = {}

    def start(name: str, port: int) -> None:
        overlay_lines = f'topology = "topology.toml"\nhost = "127.0.0.1"\nport = {overlay}\n'
        lines = f'[overlay]\n{overlay_lines}[data]\ndir = "{name}"\n[relocation]\npriority = "load"\n'
        (tmp_path / f"{name}.toml").write_text(f'[node]\nname = "{name}"\n[http]\nport = 0\n{lines}')
        gateway = start_gateway("--config", str(tmp_path / f"{name}.toml"), "--port", str(port))
        http[name] = GatewayEndpoint(HttpAddress(**gateway.listening["http"]))

    def place(*words: str) -> None:
        done = CliRunner().invoke(main, ["place", *words, "--yes", "--rate", "600", "--http", str(http["gw-here"])])
        assert done.exit_code == 0, done.output

    def moves() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = get_json(http["gw-here"], "/place/history", all="yes")["moves"]
        return rows

    def wait_for(is_so: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < until, moves()
            time.sleep(0.5)

    def has_plan() -> bool:
        answer = get_json(http["gw-here"], "/place")
        (tmp_path / "plan.json").write_text(json.dumps(answer))
        return len(answer["gateways"][0]["proposals"]) == 2

    with ExitStack() as stack:
        (tmp_path / "topology.toml").write_text(TOPOLOGY.format(here, open_relay(overlay, stack), there))
        start("gw-there", there)
        start("gw-here", here)
        wait_for(lambda: all(row["up"] for row in get_json(http["gw-here"], "/links")["links"]))
        readers = Readers(here, there, stack)
        publishers = Publishers(here, stack)
        wait_for(has_plan)
        place("apply", str(tmp_path / "plan.json"))
        wait_for(lambda: all(row["realised"] for row in moves()))
        done = moves()
        assert {(row["client"], row["to"], row["outcome"]) for row in done} == {
            (name, "gw-there", "arrived") for name in publishers.published
        }
        for row in done:
            predicted = {name: row[name]["there"] for name in ("delay_ms", "load", "uplink_bytes")}
            realised = {name: row["realised"][name] for name in predicted}
            assert realised == pytest.approx(predicted, rel=0.25), row
            # Of two messages three copies are delivered: two where both are read, and one at the other site.
            expected = {"load": 1.5, "uplink_bytes": SIZE / 2}
            assert {name: predicted[name] for name in expected} == pytest.approx(expected, rel=0.05), row
            assert 1_000 * UPLINK_S / 3 <= predicted["delay_ms"] < row["delay_ms"]["here"], row
        place("undo", "--at", f"gw-there={http['gw-there']}")
        wait_for(lambda: {row["outcome"] for row in moves()} == {"returned"})
        publishers.end()
        all_payloads = {payload for each in publishers.published.values() for payload in each}
        wait_for(lambda: {*readers.received["all"]} >= all_payloads)
        some = {payload for each in publishers.published.values() for payload in each[::2]}
        wait_for(lambda: {*readers.received["some"]} >= some)
        for name, wanted in (("all", all_payloads), ("some", some)):
            times = Counter(readers.received[name])
            assert {*times} == wanted, "nothing else comes"
            assert {payload for payload, count in times.items() if count > 1} <= publishers.again, name
    print(*({**row, "again": len(publishers.again), "messages": len(all_payloads)} for row in done), sep="\n")
