"""Bridges to remotes as people run them, unchanged: a default Mosquitto, and RabbitMQ, which knows 3.1.1 and QoS 1.

Each test counts what arrives at readers of the remote, not what the bridge says it has carried.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from edgebroker.cli.http_client import GatewayEndpoint, post_json
from edgebroker.cli.parameters import HttpAddress

from .conftest import V5, Guest
from .mosquitto import NEEDS_MOSQUITTO, running
from .rabbitmq import NEEDS_RABBITMQ, rabbitmq
from .test_live_bridge_faults import asked, await_row
from .test_live_own_bridge import await_bridge, guest_of, mosquitto, settings

pytestmark = pytest.mark.live

V311 = MQTTProtocolVersion.MQTTv311
MESSAGES = 200


def eager(port: int) -> Guest:
    """A guest that publishes without waiting for answers."""
    guest = Guest(port, V5, "here")
    guest.client.max_inflight_messages_set(0)
    guest.connect()
    return guest


def publish_all(here: Guest, qos: int) -> None:
    """Publish MESSAGES under out/a."""
    for number in range(MESSAGES):
        here.client.publish("out/a", b"%d" % number, qos)


def arrived(there: Guest) -> list[int]:
    """The numbers of MESSAGES messages, in the order in which they came."""
    return [int(there.next().payload) for _ in range(MESSAGES)]


@NEEDS_MOSQUITTO
@pytest.mark.parametrize("spoken", ["5", "3.1.1"])
def test_all_messages_of_qos_2_arrive_at_a_mosquitto_that_nobody_configured(
    start_gateway: Callable[..., Any], tmp_path: Path, free_port: int, spoken: str
) -> None:
    """Of what is on its way beyond its max_inflight_messages of 20 Mosquitto 2.0.11 acknowledges and forgets all."""
    config = tmp_path / "default.conf"
    config.write_text(f"listener {free_port} 127.0.0.1\nallow_anonymous true\n")
    gateway = start_gateway("--config", settings(tmp_path, free_port, spoken, "out/# out 2"), "--http", "0")
    here = eager(gateway.port)
    here.subscribe("marker", 2)
    publish_all(here, 2)
    here.publish("marker", b"", 2)
    here.next()
    with running(config, free_port):  # all that waits goes at once
        there = guest_of(free_port, "there")
        there.subscribe("out/#", 0)  # Mosquitto bounds what waits for its readers too, at QoS 1 and 2
        await_bridge(there)
        assert arrived(there) == list(range(MESSAGES))
        gateway.stop()


@NEEDS_RABBITMQ
@pytest.mark.slow
def test_rabbitmq_gets_all_in_the_version_and_with_the_qos_that_it_knows(
    start_gateway: Callable[..., Any], tmp_path: Path
) -> None:
    """It refuses version 5, and answers a PUBLISH of QoS 2 with PUBACK."""
    (tmp_path / "far").mkdir()
    with rabbitmq(tmp_path / "far") as port:
        gateway = start_gateway("--config", settings(tmp_path, port, "5", "out/# out 2", "in/# in 2"), "--http", "0")
        here, there = eager(gateway.port), guest_of(port, "there", V311)
        there.subscribe("out/#", 1)
        here.subscribe("in/#", 2)
        found = await_row(gateway, lambda row: row["state"] == "open")
        assert found["version"].startswith("3.1.1")
        publish_all(here, 2)
        assert sorted(arrived(there)) == list(range(MESSAGES))
        there.publish("in/a", b"1", 1)
        assert here.next().payload == b"1"
        found = await_row(gateway, lambda row: not row["waiting"])
        counted = found["out"]["wrong_acknowledgements"]
        assert list(counted) == ["PUBACK to QoS 2"]
        assert 1 <= counted["PUBACK to QoS 2"] <= 20, "what was on its way when the first one was answered"
        assert found["connects"] == 1, "it never stopped"
        assert "PUBACK to QoS 2" in "".join(asked(gateway, "/health")["warnings"])
        gateway.stop()


class Fake:
    """A remote that answers each packet of the bridge, by its type, with *answers*, and hangs up on unknown ones."""

    def __init__(self, answers: Callable[[bytes], bytes | None]) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.connects: list[bytes] = []
        """The CONNECT of each connection."""
        self._answers = answers
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            line, _ = self._server.accept()
            with line, line.makefile("rb") as reader:
                while (packet := self._packet(reader)) is not None:
                    if packet[0] == 0x10:
                        self.connects.append(packet)
                    if (answer := self._answers(packet)) is None:
                        break
                    line.sendall(answer)

    @staticmethod
    def _packet(reader: Any) -> bytes | None:
        head = reader.read(2)
        if len(head) < 2:
            return None
        return bytes(head + reader.read(head[1]))  # none of these is longer than 127 bytes


def test_a_remote_that_hangs_up_on_version_5_is_served_in_3_1_1(
    start_gateway: Callable[..., Any], tmp_path: Path
) -> None:
    def answers(packet: bytes) -> bytes | None:
        if packet[0] == 0x10:
            return b"\x20\x02\x00\x00" if packet[8] == 4 else None
        is_message = packet[0] & ~0x08 == 0x32  # DUP: it was on its way to the connection before
        return b"\x40\x02" + packet[9:11] if is_message else b""

    remote = Fake(answers)
    config = settings(tmp_path, remote.port, "5", "out/# out 1")
    Path(config).write_text(Path(config).read_text().replace('notification_topic = "here/up"\n', ""))
    gateway = start_gateway("--config", config, "--http", "0")
    guest_of(gateway.port, "here").publish("out/a", b"1")
    found = await_row(gateway, lambda row: row["state"] == "open" and row["out"]["messages"] and not row["waiting"])
    assert found["version"] == "3.1.1"
    assert [packet[8] for packet in remote.connects] == [5, 5, 0x84, 4]
    gateway.stop()


def test_a_remote_that_acknowledges_nothing_is_not_open_for_long(
    start_gateway: Callable[..., Any], tmp_path: Path
) -> None:
    def answers(packet: bytes) -> bytes:
        """CONNACK, and PINGRESP as often as it is wanted."""
        return {0x10: b"\x20\x03\x00\x00\x00", 0xC0: b"\xd0\x00"}.get(packet[0], b"")

    remote = Fake(answers)
    config = settings(tmp_path, remote.port, "5", "out/# out 1", more="answer_s_max = 2\n")
    Path(config).write_text(Path(config).read_text().replace('notification_topic = "here/up"\n', ""))
    gateway = start_gateway("--config", config, "--http", "0")
    guest_of(gateway.port, "here").publish("out/a", b"1")
    found = await_row(gateway, lambda row: bool(row["reason"]) and row["state"] != "open")
    assert "has not acknowledged a message within 2 s (answer_s_max)" in found["reason"], json.dumps(found)
    assert found["waiting"] == 1, "it is kept"
    gateway.stop()


@NEEDS_MOSQUITTO
@pytest.mark.parametrize("spoken", ["5", "3.1.1"])
def test_after_a_pause_mosquitto_retains_what_is_retained_here(
    start_gateway: Callable[..., Any], tmp_path: Path, free_port: int, spoken: str
) -> None:
    """A queue of three, QoS 0, and one that is cleared: of all that the session of the bridge keeps hardly anything."""
    config = settings(tmp_path, free_port, spoken, "out/# both 1", more="queue_messages_max = 3\n")
    with mosquitto(tmp_path, free_port):
        gateway = start_gateway("--config", config, "--http", "0")
        http = gateway.listening["http"]
        endpoint = GatewayEndpoint(HttpAddress(http["host"], http["port"]))
        here, there = guest_of(gateway.port, "here"), guest_of(free_port, "there")
        await_bridge(there)
        there.subscribe("out/#", 1)
        for number in range(5):
            here.publish(f"out/{number}", b"before", retain=True)
        assert [there.next().payload for _ in range(5)] == [b"before"] * 5
        post_json(endpoint, "/bridges", do="pause", name="up")
        expected = {f"out/{number}": b"later" for number in range(1, 20)}
        for number in range(20):
            here.publish(f"out/{number}", b"later" if number else b"", number % 2, retain=True)
        there.publish("out/theirs", b"new", 0, retain=True)
        post_json(endpoint, "/bridges", do="resume", name="up")
        await_row(gateway, lambda row: row["state"] == "open" and row["out"]["messages"] >= 25 and not row["waiting"])
        for name, port in (("late here", gateway.port), ("late there", free_port)):
            late = guest_of(port, name)
            late.subscribe("out/#", 1)
            found = {message.topic: message.payload for message in (late.next() for _ in range(20))}
            assert found == {**expected, "out/theirs": b"new"}, name
        gateway.stop()


@NEEDS_MOSQUITTO
@pytest.mark.parametrize("spoken", ["5", "3.1.1"])
def test_the_tree_of_a_cloud_is_reached_both_ways(
    start_gateway: Callable[..., Any], tmp_path: Path, free_port: int, spoken: str
) -> None:
    with mosquitto(tmp_path, free_port):
        rule = 'shadow/# both 1 "" $aws/things/gw/'
        gateway = start_gateway("--config", settings(tmp_path, free_port, spoken, rule), "--http", "0")
        here, there = guest_of(gateway.port, "here"), guest_of(free_port, "there")
        here.subscribe("shadow/#", 1)
        there.subscribe("$aws/things/+/shadow/#", 1)
        await_bridge(there)
        here.publish("shadow/update", b"1")
        assert there.next().topic == "$aws/things/gw/shadow/update"
        assert here.next().topic == "shadow/update"
        there.publish("$aws/things/gw/shadow/update/accepted", b"2")
        assert here.next().topic == "shadow/update/accepted"
        gateway.stop()
