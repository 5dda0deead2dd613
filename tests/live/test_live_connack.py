"""The properties of CONNACK, and the redirect of clients to another server, as paho receives them."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from .conftest import PATIENCE_S, V5, Gateway

pytestmark = pytest.mark.live


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Any]:
    """Starts a gateway with these settings; its port."""
    gateways = []

    def start(text: str) -> int:
        file = tmp_path / "gateway.toml"
        file.write_text(f"[listener]\nport = 0\n{text}")
        gateways.append(Gateway("--config", str(file)))
        return int(gateways[-1].port)

    yield start
    for gateway in gateways:
        gateway.kill()


def connack(port: int, keepalive: int) -> tuple[Any, Any]:
    """(reason, properties) that a client hears that asks for response information."""
    answers: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    client = Client(CallbackAPIVersion.VERSION2, "pump-3", protocol=V5, reconnect_on_failure=False)
    client.on_connect = lambda client, userdata, flags, reason, properties: answers.put((reason, properties))
    asked = Properties(PacketTypes.CONNECT)
    asked.RequestResponseInformation = 1
    client.connect("127.0.0.1", port, keepalive, properties=asked)
    client.loop_start()
    try:
        return answers.get(timeout=PATIENCE_S)
    finally:
        client.disconnect()
        client.loop_stop()


def test_connack_announces_the_limits_of_the_server(settings: Any) -> None:
    port = settings('[mqtt]\nkeep_alive_s_max = 30\nresponse_prefix = "responses/%c"')
    reason, properties = connack(port, 600)
    assert reason == 0
    assert (properties.ServerKeepAlive, properties.ResponseInformation) == (30, "responses/pump-3")


def test_clients_are_sent_to_another_server(settings: Any) -> None:
    reason, properties = connack(settings('[redirect]\nserver_moved = "b.example:1884"'), 60)
    assert reason.value == 0x9D
    assert properties.ServerReference == "b.example:1884"
