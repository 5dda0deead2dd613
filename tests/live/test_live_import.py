"""Mosquitto with a configuration, and a gateway with what `edgebroker import` makes of it, give the same answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from .conftest import ENVIRONMENT, PATIENCE_S, V5, Guest
from .mosquitto import NEEDS_MOSQUITTO, running

pytestmark = [pytest.mark.live, NEEDS_MOSQUITTO]

V311 = MQTTProtocolVersion.MQTTv311
LIMITS = """
listener {port} 127.0.0.1
allow_anonymous true
max_packet_size 2000
max_queued_messages 5
max_inflight_messages 3
persistent_client_expiration 1d
"""


def imported(config: Path) -> Path:
    """The settings that the command makes of *config*."""
    target = config.with_suffix(".toml")
    command = [sys.executable, "-m", "edgebroker", "import", str(config), "-o", str(target)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, env=ENVIRONMENT, check=False)
    assert ended.returncode == 0, ended
    return target


def compared(
    answers: Callable[[int], Any], text: str, folder: Path, port: int, start_gateway: Callable[..., Any]
) -> Any:
    """What both answer; they must agree."""
    config = folder / "mosquitto.conf"
    config.write_text(text.format(port=port, folder=folder))
    with running(config, port):
        theirs = answers(port)
    gateway = start_gateway("--config", str(imported(config)))
    ours = answers(gateway.port)
    gateway.stop()
    assert ours == theirs
    return ours


def came(port: int, version: MQTTProtocolVersion, name: str, keep: bool = False) -> Guest:
    guest = Guest(port, version, name, keep=keep)
    guest.connect()
    return guest


def sizes_and_queues(port: int) -> dict[str, Any]:
    """How large a packet may be, and how many messages wait for who is away."""
    seen: dict[str, Any] = {}
    for version in (V311, V5):
        reader, writer = came(port, version, "reader"), came(port, version, "writer")
        reader.subscribe("size/#", 1)
        writer.publish("size/small", b"x" * 1_900)
        seen[f"small {version.name}"] = len(reader.next().payload)
        writer.client.publish("size/large", b"x" * 2_100, 1)
        seen[f"large {version.name}"] = writer.is_gone()
        writer.client.loop_stop()
        reader.leave()
        keeper, writer = came(port, version, f"keeper {version.name}", keep=True), came(port, version, "writer")
        keeper.subscribe("queue/#", 1)
        keeper.leave()
        for number in range(20):
            writer.publish("queue/a", b"%d" % number)
        seen[f"present {version.name}"] = keeper.connect()
        seen[f"kept {version.name}"] = [int(message.payload) for message in keeper.all_from(writer)]
        keeper.leave()
        writer.leave()
    guest = came(port, V5, "terms")
    seen["announced"] = guest.terms.MaximumPacketSize
    guest.leave()
    return seen


def test_limits(start_gateway: Callable[..., Any], tmp_path: Path, free_port: int) -> None:
    seen = compared(sizes_and_queues, LIMITS, tmp_path, free_port, start_gateway)
    assert seen["large MQTTv5"] is True
    assert seen["announced"] == 2_000
