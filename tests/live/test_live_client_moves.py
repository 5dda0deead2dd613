"""`edgebroker client move` between two gateways: the followers for paho and aiomqtt of docs/recipes.md, a device of
`edgedevices`, and a client of 3.1.1 with a list of servers all arrive where they are sent.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest

from edgebroker.cli.parameters import HttpAddress

from ..support.recipes import recipe
from ..support.topologies import TWO_GATEWAYS
from .conftest import PATIENCE_S, V5, Gateway, command_line
from .test_live_http import Browser

pytestmark = pytest.mark.live

CLIENTS = """dials = "always"
clients = "mqtt://127.0.0.1:{}"
[[site]]
name = "away"
[[gateway]]
name = "gw-away"
site = "away"
address = "127.0.0.1:{}"
clients = "mqtts://127.0.0.1:{}"
[[site]]
name = "mute"
[[gateway]]
name = "gw-mute"
site = "mute"
"""


class MovingClients:
    """Four clients of the first gateway, each on a thread or in a process of its own."""

    def __init__(self, here: int, there: int, stack: ExitStack) -> None:
        self._stack = stack
        self._paho(here)
        self._aiomqtt(here)
        self._server_list(here, there)
        device = [sys.executable, "-m", "edgedevices", "host", "--broker", f"127.0.0.1:{here}", "--interval", "0.1"]
        self.device = subprocess.Popen([*device, "--follow", "--json"], stdout=subprocess.PIPE)
        stack.callback(self.device.kill)

    def _thread(self, work: Callable[[], object], end: Callable[[], object]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        self._stack.callback(thread.join, PATIENCE_S)
        self._stack.callback(end)

    def _paho(self, port: int) -> None:
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "by-paho", protocol=V5)
        self.follower = recipe("follow_paho.py")["Follower"](client, "127.0.0.1", port)
        client.loop_start()
        self._stack.callback(client.loop_stop)
        self._stack.callback(client.disconnect)

    def _aiomqtt(self, port: int) -> None:
        async def conversation(client: Any) -> None:
            async for _ in client.messages:
                pass

        async def main() -> None:
            with suppress(asyncio.CancelledError):
                await task

        loop = asyncio.new_event_loop()
        follow = recipe("follow_aiomqtt.py")["follow"]
        task = loop.create_task(follow("127.0.0.1", port, conversation, identifier="by-aiomqtt"))
        self._thread(lambda: loop.run_until_complete(main()), lambda: loop.call_soon_threadsafe(task.cancel))

    def _server_list(self, here: int, there: int) -> None:
        client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, "by-list", False, protocol=mqtt.MQTTv311, reconnect_on_failure=False
        )
        self.refusals: list[str] = []
        client.on_connect = lambda client, userdata, flags, reason, properties: self.refusals.append(str(reason))
        stopped, run = threading.Event(), recipe("server_list.py")["run"]
        servers = [("127.0.0.1", here), ("127.0.0.1", there)]

        def end() -> None:
            stopped.set()
            client.disconnect()

        self._thread(lambda: run(client, servers, stopped), end)


def test_clients_go_to_the_gateway_to_which_they_are_sent(
    start_gateway: Callable[..., Gateway], tmp_path: Path
) -> None:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(5)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        ports = [one.getsockname()[1] for one in taken]
    (tmp_path / "topology.toml").write_text(TWO_GATEWAYS.format(*ports[:2]) + CLIENTS.format(*ports[2:]))
    pages: dict[str, Browser] = {}

    def start(name: str, port: int) -> Gateway:
        file = tmp_path / f"{name}.toml"
        file.write_text(f'[node]\nname = "{name}"\n[http]\nport = 0\n[overlay]\ntopology = "topology.toml"\n')
        gateway = start_gateway("--config", str(file), "--port", str(port))
        pages[name] = Browser(HttpAddress(**gateway.listening["http"]))
        return gateway

    def connected(name: str) -> set[str]:
        return {row["client"] for row in json.loads(pages[name].get("/clients?state=connected")[2])["clients"]}

    def order(client: str, target: str) -> tuple[int, str]:
        how = {"method": "POST", "Edgebroker-Control": "1"}
        code, _, told = pages["gw-here"].get(f"/clients?do=move&name={client}&to={target}", **how)
        return code, told

    def wait_for(is_so: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < until, {name: connected(name) for name in pages}
            time.sleep(0.05)

    here = start("gw-here", 0)
    with ExitStack() as stack:
        clients = MovingClients(here.port, ports[2], stack)
        wait_for(lambda: len(connected("gw-here")) == 4)
        names = sorted(connected("gw-here"))
        for target, why in (
            ("gw-there", "no path is open to gw-there"),
            ("gw-her", "none is called 'gw-her'; did you mean gw-here?"),
            ("gw-here", "are at gw-here already"),
            ("gw-away", "by-paho is connected without TLS, and `clients` of gw-away has no mqtt://"),
            ("gw-mute", "give it `clients` in the topology file"),
        ):
            code, told = order("by-paho", target)
            assert (code, why in told) == (409, True), told
        there = start("gw-there", ports[2])
        wait_for(lambda: order("by-paho", "gw-there")[0] == 200)
        wait_for(lambda: "by-paho" in connected("gw-there"))
        rest = [name for name in names if name != "by-paho"]
        http = f"127.0.0.1:{here.listening['http']['port']}"
        words = ("client", "move", *rest, "--to", "gw-there", "--for-good", "--json", "--http", http)
        code, told = command_line(*words)
        assert code == 0, told
        moved = {row["client"]: row for row in map(json.loads, told.splitlines())}
        assert {name: row["way"] for name, row in moved.items()} == {
            name: "closed" if name == "by-list" else "server_moved" for name in rest
        }
        assert moved["by-aiomqtt"]["reference"] == f"127.0.0.1:{ports[2]}"
        wait_for(lambda: connected("gw-there") == set(names))
        assert connected("gw-here") == set()
        assert clients.refusals == ["Success", "Server unavailable", "Success"]
        assert clients.follower.home == ("127.0.0.1", here.port), "it was sent there for now"
        [moved_client] = [json.loads(pages["gw-here"].get("/client?name=by-list")[2])]
        assert moved_client["moved"]["outcome"] == "on its way"
        clients.device.terminate()
        summary = json.loads(clients.device.communicate(timeout=PATIENCE_S)[0])
        assert (summary["followed"], summary["failed"]) == (1, 0)
    there.stop()
    here.stop()
