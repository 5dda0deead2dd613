"""MQTT over WebSocket and secure WebSocket: paho comes in; what browsers and mistakes send is answered as it should."""

from __future__ import annotations

import json
import os
import queue
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)

from edgebroker.cli.init.authority import Authority

pytestmark = pytest.mark.live

PATIENCE_S = 30.0
CONNECT = bytes.fromhex("1010 00044d515454 04 02 0000 0004") + b"name"
CONNACK = bytes.fromhex("20020000")
VERSIONS = pytest.mark.parametrize("version", [MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5])


@pytest.fixture
def serve(start_gateway: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """A gateway with a plain listener and one of WebSocket; `web_port` is its port."""

    def serve(more: str = "") -> Any:
        settings = tmp_path / "gateway.toml"
        settings.write_text(f'[[listener]]\n[[listener]]\nname = "web"\nport = 0\nprotocol = "websocket"\n{more}\n')
        gateway = start_gateway("--config", str(settings), "--log-level", "warning", "--log-format", "json")
        gateway.web_port = gateway.listening["listeners"][-1]["port"]
        return gateway

    return serve


class Browser:
    """A WebSocket on a blocking socket; every answer is an event of wsproto."""

    def __init__(self, port: int, **request: Any) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._protocol = WSConnection(ConnectionType.CLIENT)
        self._events: list[Event] = []
        asked = {"host": f"127.0.0.1:{port}", "target": "/mqtt", "subprotocols": ["mqtt"], **request}
        self.say(Request(**asked))
        self.answer = self.hear()

    def say(self, event: Event) -> None:
        self.socket.sendall(self._protocol.send(event))

    def hear(self) -> Event:
        while not self._events:
            self._protocol.receive_data(self.socket.recv(65_536) or None)
            self._events = list(self._protocol.events())
        return self._events.pop(0)

    def hear_bytes(self, count: int) -> bytes:
        heard = bytearray()
        while len(heard) < count:
            event = self.hear()
            assert isinstance(event, BytesMessage), event
            heard += event.data
        return bytes(heard)


def said_at_end(gateway: Any) -> list[tuple[str, str]]:
    """(code, text) of all that a gateway had to say to the operator."""
    gateway.process.terminate()
    _, complaints = gateway.process.communicate(timeout=PATIENCE_S)
    assert gateway.process.returncode == 0
    notices = [json.loads(line) for line in complaints.splitlines()]
    return [(notice["code"], notice["text"]) for notice in notices if "peer" in notice and "listener" in notice]


def converse(port: int, version: MQTTProtocolVersion, ca: Path | None = None) -> None:
    """A client of paho subscribes, publishes 100 KB, and gets it back."""
    heard: queue.Queue[MQTTMessage] = queue.Queue()
    ready: queue.Queue[bool] = queue.Queue()
    client = Client(CallbackAPIVersion.VERSION2, "web", protocol=version, transport="websockets")
    if ca is not None:
        client.tls_set(str(ca))
    client.on_message = lambda client, data, message: heard.put(message)
    client.on_connect = lambda client, data, flags, reason, properties: client.subscribe("a/#", 1)
    client.on_subscribe = lambda client, data, mid, reasons, properties: ready.put(True)
    client.connect("localhost" if ca else "127.0.0.1", port)
    client.loop_start()
    try:
        assert ready.get(timeout=PATIENCE_S)
        for qos, payload in enumerate((b"small", b"x" * 100_000, b"")):
            client.publish("a/b", payload, qos).wait_for_publish(PATIENCE_S)
            assert heard.get(timeout=PATIENCE_S).payload == payload
    finally:
        client.disconnect()
        client.loop_stop()


@VERSIONS
def test_paho_comes_in(serve: Callable[..., Any], version: MQTTProtocolVersion) -> None:
    gateway = serve()
    converse(gateway.web_port, version)
    assert gateway.stop()["delivered"] == 3


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed; it makes the certificates")
@VERSIONS
def test_paho_comes_in_by_secure_websocket(
    serve: Callable[..., Any], version: MQTTProtocolVersion, tmp_path: Path
) -> None:
    authority = Authority.make(tmp_path, "Test")
    authority.server(tmp_path, ["localhost"])
    gateway = serve('tls_certificate = "server.crt"\ntls_key = "server.key"')
    converse(gateway.web_port, version, authority.pair.certificate)
    assert gateway.stop()["delivered"] == 3


@pytest.mark.mqtt("MQTT-6.0.0-2", "MQTT-6.0.0-4")
def test_packets_and_frames_need_not_agree(serve: Callable[..., Any]) -> None:
    gateway = serve()
    browser = Browser(gateway.web_port, extensions=[], subprotocols=["other", "mqttv3.1", "mqtt"])
    assert isinstance(browser.answer, AcceptConnection)
    assert browser.answer.subprotocol == "mqtt"
    for octet in CONNECT[:-1]:
        browser.say(BytesMessage(bytes([octet]), message_finished=False))
    browser.say(Ping(b"still there?"))
    answer = browser.hear()
    assert isinstance(answer, Pong)
    assert answer.payload == b"still there?"
    browser.say(BytesMessage(CONNECT[-1:] + bytes.fromhex("8206 0001 0001 61 00") + b"\x30\x04\x00\x01ax" * 3))
    assert browser.hear_bytes(4 + 5 + 18) == CONNACK + bytes.fromhex("9003 0001 00") + b"\x30\x04\x00\x01ax" * 3
    browser.say(CloseConnection(1000))
    assert isinstance(browser.hear(), CloseConnection)
    assert browser.socket.recv(10) == b""
    gateway.stop()


def test_the_gateway_says_good_bye_with_a_close(serve: Callable[..., Any]) -> None:
    gateway = serve()
    browser = Browser(gateway.web_port)
    browser.say(BytesMessage(CONNECT + b"\xe0\x00"))
    assert browser.hear_bytes(4) == CONNACK
    closed = browser.hear()
    assert isinstance(closed, CloseConnection)
    assert closed.code == 1000
    gateway.stop()


@pytest.mark.mqtt("MQTT-6.0.0-1")
@pytest.mark.parametrize(("said", "code"), [(TextMessage("hi"), 1003), (b"\x82\x01x", 1002)])
def test_frames_that_are_not_allowed_end_it_with_their_code(serve: Callable[..., Any], said: Any, code: int) -> None:
    gateway = serve()
    browser = Browser(gateway.web_port)
    browser.say(BytesMessage(CONNECT))
    assert browser.hear_bytes(4) == CONNACK
    if isinstance(said, bytes):
        browser.socket.sendall(said)
    else:
        browser.say(said)
    closed = browser.hear()
    assert isinstance(closed, CloseConnection)
    assert closed.code == code
    assert [code for code, _ in said_at_end(gateway)] == ["websocket-frame"]


REQUESTS = {
    "no sub-protocol": ({"subprotocols": []}, 400, 'ask for the sub-protocol "mqtt" [MQTT-6.0.0-3]'),
    "another sub-protocol": ({"subprotocols": ["chat"]}, 400, 'ask for the sub-protocol "mqtt" [MQTT-6.0.0-3]'),
    "another path": ({"target": "/ws?x=/mqtt"}, 404, "MQTT is at /mqtt"),
    "a page from elsewhere": (
        {"extra_headers": [(b"origin", b"https://evil.example")]},
        403,
        "pages of https://evil.example may not connect; see websocket_origins",
    ),
}


@pytest.mark.mqtt("MQTT-6.0.0-3")
@pytest.mark.parametrize(("request_", "status", "why"), REQUESTS.values(), ids=REQUESTS)
def test_requests_that_are_refused(serve: Callable[..., Any], request_: dict[str, Any], status: int, why: str) -> None:
    gateway = serve()
    browser = Browser(gateway.web_port, **request_)
    assert isinstance(browser.answer, RejectConnection)
    assert browser.answer.status_code == status
    body = browser.hear()
    assert isinstance(body, RejectData)
    assert body.data == f"{why}\n".encode()
    assert [text for _, text in said_at_end(gateway)] == [f"turned away: {why}"]


@pytest.mark.parametrize(
    ("more", "origin"),
    [
        ("", b"http://127.0.0.1:3000"),
        ('websocket_origins = ["https://page.example"]', b"https://page.example"),
        ('websocket_origins = ["*"]\nwebsocket_path = "/mqtt"', b"https://anywhere.example"),
    ],
)
def test_pages_that_may_connect(serve: Callable[..., Any], more: str, origin: bytes) -> None:
    gateway = serve(more)
    assert isinstance(Browser(gateway.web_port, extra_headers=[(b"origin", origin)]).answer, AcceptConnection)
    gateway.stop()


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (CONNECT, b""),
        (b"GET /mqtt HTTP/1.1\r\nhost: a\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET /mqtt HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 9_000, b"HTTP/1.1 431 "),
        (b"hello\r\n\r\n", b"HTTP/1.1 400 "),
    ],
)
def test_what_is_no_websocket_request(serve: Callable[..., Any], said: bytes, answer: bytes) -> None:
    gateway = serve()
    with socket.create_connection(("127.0.0.1", gateway.web_port), PATIENCE_S) as line:
        line.sendall(said)
        heard = line.recv(4_096)
    assert heard[: len(answer) or None] == answer
    assert [code for code, _ in said_at_end(gateway)] == ["websocket-upgrade"]


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"])
def test_who_comes_through_a_proxy_is_not_this_machine(serve: Callable[..., Any], header: str) -> None:
    """The proxy is on this machine, its clients are not: who names no user comes in no more."""
    gateway = serve()
    direct, through = (
        Browser(gateway.web_port, extra_headers=headers) for headers in ([], [(header.encode(), b"203.0.113.7")])
    )
    for browser, answer in ((direct, CONNACK), (through, bytes.fromhex("20020005"))):
        browser.say(BytesMessage(CONNECT))
        assert browser.hear_bytes(4) == answer
    gateway.process.terminate()
    _, complaints = gateway.process.communicate(timeout=PATIENCE_S)
    assert b"this listener wants a user name" in complaints


def test_where_everybody_may_come_in_a_proxy_changes_nothing(serve: Callable[..., Any]) -> None:
    gateway = serve("anonymous = true")
    browser = Browser(gateway.web_port, extra_headers=[(b"X-Forwarded-For", b"203.0.113.7")])
    browser.say(BytesMessage(CONNECT))
    assert browser.hear_bytes(4) == CONNACK
    gateway.stop()


NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
NGINX_CONF = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    {temporary}
    server {{
        listen 127.0.0.1:{port};
        location /mqtt {{
            proxy_pass http://127.0.0.1:{web_port};
            proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection upgrade;
            proxy_set_header Host 127.0.0.1;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        }}
    }}
}}
"""
"""As nginx's own documentation of WebSocket proxying has it."""


@pytest.mark.skipif(not NGINX, reason="nginx is not installed")
def test_clients_of_nginx_are_not_this_machine(serve: Callable[..., Any], tmp_path: Path, free_port: int) -> None:
    gateway = serve()
    folders = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = " ".join(f"{name}_temp_path {tmp_path}/{name};" for name in folders)
    configuration = tmp_path / "nginx.conf"
    configuration.write_text(
        NGINX_CONF.format(folder=tmp_path, temporary=temporary, port=free_port, web_port=gateway.web_port)
    )
    assert NGINX is not None
    proxy = subprocess.Popen([NGINX, "-c", configuration], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                browser = Browser(free_port)
                break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
                time.sleep(0.02)
        browser.say(BytesMessage(CONNECT))
        assert browser.hear_bytes(4) == bytes.fromhex("20020005")
    finally:
        proxy.terminate()
        proxy.wait(PATIENCE_S)
    gateway.process.terminate()
    gateway.process.communicate(timeout=PATIENCE_S)
