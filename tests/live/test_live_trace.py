"""`edgebroker trace` beside a running gateway; and the traceparent of MQTT 5, from publisher to reader and log."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.enums import MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Connect, Publish
from edgebridge.wire.properties import Property
from edgebroker.cli.parameters import HttpAddress
from edgebroker.log_schema import Fate

from .conftest import Guest, command_line

pytestmark = pytest.mark.live

PATIENCE_S = 30.0
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(scope="module")
def options() -> tuple[str, ...]:
    return ("--http", "0")


class Watch:
    """A trace that is open when this is made."""

    def __init__(self, address: HttpAddress, query: str = "") -> None:
        self.line = socket.create_connection(address, PATIENCE_S)
        self.line.sendall(f"GET /trace?seconds=600{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        self.heard = b""
        while b"\r\n\r\n1\r\n\n\r\n" not in self.heard:
            data = self.line.recv(65_536)
            assert data, self.heard
            self.heard += data

    def until(self, is_last: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """Every line up to the one that *is_last*."""
        while True:
            found = [json.loads(text) for text in self.heard.splitlines() if text.startswith(b"{")]
            if any(map(is_last, found)):
                return found
            data = self.line.recv(65_536)
            assert data, found
            self.heard += data


@pytest.fixture
def watch(gateway: Any) -> Iterator[Callable[..., Watch]]:
    opened: list[Watch] = []

    def open_one(query: str = "") -> Watch:
        opened.append(Watch(HttpAddress(**gateway.listening["http"]), query))
        return opened[-1]

    yield open_one
    for one in opened:
        one.line.close()


def test_a_client_is_watched_from_its_first_packet_to_its_last(watch: Callable[..., Watch], guest: Any) -> None:
    by_client, by_topic = watch("&client=re*"), watch("&topic=a/%23")
    reader, writer = guest("reader"), guest("writer")
    reader.subscribe("#", 1)
    said = Properties(PacketTypes.PUBLISH)
    said.UserProperty = ("traceparent", TRACEPARENT)
    writer.publish("a/b", b"secret payload", 1, properties=said)
    writer.publish("c", b"x", 1)
    for expected in ("a/b", "c"):
        message = reader.next()
        assert message.topic == expected
        if expected == "a/b":
            assert message.properties.UserProperty == [("traceparent", TRACEPARENT)], "as it came"
    reader.leave()
    lines = by_client.until(lambda line: line.get("packet") == "DISCONNECT")
    packets = [(line["way"], line["packet"], line.get("topic")) for line in lines if line["way"] != "fate"]
    assert packets[:3] == [("in", "CONNECT", None), ("out", "CONNACK", None), ("in", "SUBSCRIBE", None)]
    assert [packet for packet in packets if packet[1] == "PUBLISH"][-2:] == [
        ("out", "PUBLISH", "a/b"),
        ("out", "PUBLISH", "c"),
    ]
    assert [line["fate"] for line in lines if line["way"] == "fate"].count("delivered") >= 2
    lines = by_topic.until(lambda line: line.get("fate") == "delivered")
    assert {line.get("topic", "a/b") for line in lines} == {"a/b"}, "c is not a/#"
    assert {(line["way"], line.get("packet", line.get("fate"))) for line in lines} == {
        ("in", "PUBLISH"),
        ("fate", "published"),
        ("out", "PUBLISH"),
        ("out", "PUBACK"),
        ("in", "PUBACK"),
        ("fate", "delivered"),
    }
    assert {line["traceparent"] for line in lines if line.get("packet") == "PUBLISH"} == {TRACEPARENT}
    assert b"secret" not in by_topic.heard + by_client.heard


def test_a_connection_is_watched_from_the_middle_of_a_packet(watch: Callable[..., Watch], gateway: Any) -> None:
    connect = bytes.fromhex("1010 00044d515454 04 02 0000 0004") + b"half"
    publish = b"\x30\x0f\x00\x03mid" + b"x" * 10
    with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE_S) as line:
        line.sendall(connect)
        assert line.recv(4) == bytes.fromhex("20020000")
        line.sendall(b"\xc0\x00" + publish[:5])
        assert line.recv(2) == b"\xd0\x00"
        one = watch("&client=half")
        line.sendall(publish[5:] + b"\xc0\x00")
        assert line.recv(2) == b"\xd0\x00"
        lines = one.until(lambda line: line.get("packet") == "PINGRESP")
    assert [line.get("packet") for line in lines if line["way"] == "in"] == ["PUBLISH", "PINGREQ"]


def test_one_too_many_is_refused_and_a_place_becomes_free(watch: Callable[..., Watch], gateway: Any) -> None:
    address = HttpAddress(**gateway.listening["http"])

    def code() -> bytes:
        with socket.create_connection(address, PATIENCE_S) as line:
            line.sendall(b"GET /trace?seconds=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return line.recv(12)

    watches: list[Watch] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(watches) < 4:  # places of other tests become free when the gateway hears that they went
        try:
            watches.append(watch())
        except (OSError, AssertionError):
            assert time.monotonic() < deadline
    assert code() == b"HTTP/1.1 503"
    watches[0].line.close()
    while code() == b"HTTP/1.1 503":
        assert time.monotonic() < deadline


def test_the_command_shows_lines_and_ends(gateway: Any, guest: Any) -> None:
    http = str(HttpAddress(**gateway.listening["http"]))
    command = [sys.executable, "-m", "edgebroker", "trace", "--http", http, "--client", "shown", "--seconds", "600"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    writer = guest("shown")
    assert process.stdout is not None
    writer.publish("until/it/is/seen", b"x", 1)
    # It may not be watching yet, so go on until it does.
    seen = threading.Event()

    def publish() -> None:
        while not seen.wait(0.1):
            writer.publish("until/it/is/seen", b"x", 1)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        line = process.stdout.readline()
    finally:
        seen.set()
        thread.join(PATIENCE_S)
    assert " shown " in line
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, complaints) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--topic", "a/#/b"), "topic: '#' must be the whole last level"), (("--seconds", "0"), "0 is not in the range")],
)
def test_what_cannot_be_watched_is_refused(gateway: Any, arguments: tuple[str, ...], words: str) -> None:
    http = str(HttpAddress(**gateway.listening["http"]))
    command = [sys.executable, "-m", "edgebroker", "trace", "--http", http, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 2
    assert words in ended.stderr


def test_a_sampled_message_is_told_with_its_number(start_gateway: Callable[..., Any]) -> None:
    gateway = start_gateway("--log-level", "info", "--log-format", "json")
    with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE_S) as line:
        line.sendall(encode_packet(Connect("writer"), V5))
        assert line.recv(1_000)
        for number, flags in enumerate(("01", "00"), 1):
            user = [("traceparent", TRACEPARENT[:-2] + flags)]
            publish = Publish("a/b", b"secret", 1, packet_id=number, properties={Property.USER_PROPERTY: user})
            line.sendall(encode_packet(publish, V5))
            assert line.recv(1_000)[0] == 0x40
    gateway.process.send_signal(signal.SIGTERM)
    _, told = gateway.process.communicate(timeout=PATIENCE_S)
    traced = [one for one in map(json.loads, told.splitlines()) if one["code"] == "traced"]
    assert [(one["trace_id"], one["message"], one["topic"], one["publisher"]) for one in traced] == [
        ("4bf92f3577b34da6a3ce929d0e0e4736", 1, "a/b", "writer")
    ]
    assert b"secret" not in told


def test_a_sampled_message_has_rows_in_the_delivery_log(start_gateway: Callable[..., Any], tmp_path: Path) -> None:
    settings = tmp_path / "gateway.toml"
    settings.write_text(f'[log]\ndir = "{tmp_path / "log"}"\nsample_qos0 = 1_000_000\n')
    gateway = start_gateway("--config", str(settings))
    reader, writer = (
        Guest(gateway.port, MQTTProtocolVersion.MQTTv5, "reader"),
        Guest(gateway.port, MQTTProtocolVersion.MQTTv5, "writer"),
    )
    for guest in (reader, writer):
        guest.connect()
    reader.subscribe("a/#", 1)
    said = Properties(PacketTypes.PUBLISH)
    said.UserProperty = ("traceparent", TRACEPARENT)
    for qos in (0, 1):
        writer.publish(f"a/{qos}", b"x", qos, properties=said)
        writer.publish(f"a/{qos}", b"x", qos)
    for _ in range(4):
        reader.next()
    reader.leave()
    writer.leave()
    gateway.stop()
    code, shown = command_line("log", "cat", str(tmp_path / "log"), "--json", "--trace-id", TRACEPARENT)
    assert code == 0, shown
    rows = [json.loads(line) for line in shown.splitlines()]
    assert {row["trace_id"] for row in rows} == {"4bf92f3577b34da6a3ce929d0e0e4736"}
    assert sorted((row["topic"], row["subscriber"], Fate(row["fate"])) for row in rows) == [
        ("a/0", "", Fate.PUBLISHED),
        ("a/0", "reader", Fate.DELIVERED),
        ("a/1", "", Fate.PUBLISHED),
        ("a/1", "reader", Fate.DELIVERED),
    ]
