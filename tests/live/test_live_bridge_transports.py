"""Bridges over TLS, with certificates and passwords, and over WebSocket, to an unmodified Mosquitto."""

from __future__ import annotations

import getpass
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgebroker.cli.init.authority import Authority

from .conftest import Gateway
from .mosquitto import NEEDS_MOSQUITTO, running
from .test_live_bridge_control import await_state
from .test_live_own_bridge import await_bridge, guest_of, settings
from .wire import Wire

pytestmark = [
    pytest.mark.live,
    NEEDS_MOSQUITTO,
    pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed; it makes the certificates"),
]


def carries(gateway: Gateway, plain_port: int, octets: int = 256_000) -> None:
    there, here = guest_of(plain_port, "there"), guest_of(gateway.port, "here")
    await_bridge(there)
    there.subscribe("a/#", 2)
    here.subscribe("b/#", 2)
    large = bytes(range(256)) * (octets // 256)
    for number in range(10):
        here.publish(f"a/{number}", large, 2)
        there.publish(f"b/{number}", large, 2)
    assert [(m.topic, m.payload) for m in (there.next() for _ in range(10))] == [(f"a/{n}", large) for n in range(10)]
    assert [(m.topic, m.payload) for m in (here.next() for _ in range(10))] == [(f"b/{n}", large) for n in range(10)]


def test_tls(start_gateway: Callable[..., Any], tmp_path: Path, free_port: int, another_free_port: int) -> None:
    """Who is there proves it, and so do we: by a certificate, by a name and a password."""
    authority = Authority.make(tmp_path, "Test")
    server, client = authority.server(tmp_path, ["localhost"]), authority.client(tmp_path, "bridge")
    passwords = tmp_path / "passwords"
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(passwords), "bridge", "secret"], check=True)
    config = tmp_path / "mosquitto.conf"
    config.write_text(
        f"per_listener_settings true\nuser {getpass.getuser()}\n"
        f"listener {free_port} 127.0.0.1\nallow_anonymous true\n"
        f"listener {another_free_port} 127.0.0.1\ncafile {authority.pair.certificate}\ncertfile {server.certificate}\n"
        f"keyfile {server.key}\nrequire_certificate true\npassword_file {passwords}\nallow_anonymous false\n"
    )
    (tmp_path / "password").write_text("secret\n")
    right = (
        f'tls_ca = "{authority.pair.certificate}"\ntls_certificate = "{client.certificate}"\n'
        f'tls_key = "{client.key}"\nusername = "bridge"\npassword_file = "{tmp_path}/password"\n'
    )
    with running(config, free_port):
        file = settings(tmp_path, another_free_port, "5", "a/# out 2", "b/# in 2", more=right)
        gateway = start_gateway("--config", file, "--http", "0")
        row = await_state(gateway, "waiting")
        assert "certificate is not accepted" in row["reason"], "it is made for localhost, and dialled as 127.0.0.1"
        settings(
            tmp_path, another_free_port, "5", "a/# out 2", "b/# in 2", more=f'{right}tls_server_name = "localhost"'
        )
        gateway.reload()
        carries(gateway, free_port)
        (tmp_path / "password").write_text("wrong\n")
        gateway.reload()
        row = await_state(gateway, "waiting")
        assert row["reason"].startswith("the remote refuses us: not authorized (0x87)"), row
        gateway.stop()


def test_websocket(start_gateway: Callable[..., Any], tmp_path: Path, free_port: int, another_free_port: int) -> None:
    config = tmp_path / "mosquitto.conf"
    config.write_text(
        f"listener {free_port} 127.0.0.1\nallow_anonymous true\n"
        f"listener {another_free_port} 127.0.0.1\nprotocol websockets\n"
    )
    with running(config, free_port):
        more = 'protocol = "websocket"\n'
        file = settings(tmp_path, another_free_port, "3.1.1", "a/# out 2", "b/# in 2", more=more)
        gateway = start_gateway("--config", file)
        carries(gateway, free_port, 5_000)  # with more its WebSockets stand still, until it is pinged
        gateway.stop()


def test_websocket_between_gateways(
    start_gateway: Callable[..., Any], tmp_path: Path, free_port: int, another_free_port: int
) -> None:
    listeners = tmp_path / "there.toml"
    listeners.write_text(
        f"[[listener]]\nport = {free_port}\n[[listener]]\nport = {another_free_port}\n"
        'protocol = "websocket"\nwebsocket_path = "/bridges"\n'
    )
    there = Gateway("--config", str(listeners), "--memory")
    try:
        more = 'protocol = "websocket"\nwebsocket_path = "/bridges"\n'
        gateway = start_gateway(
            "--config", settings(tmp_path, another_free_port, "5", "a/# out 2", "b/# in 2", more=more)
        )
        carries(gateway, free_port)
        gateway.stop()
    finally:
        there.stop()


def test_a_websocket_where_there_is_none(start_gateway: Callable[..., Any], tmp_path: Path) -> None:
    there = start_gateway()
    file = settings(tmp_path, there.port, "5", "a/# out 2", more='protocol = "websocket"\n')
    gateway = start_gateway("--config", file, "--http", "0")
    row = await_state(gateway, "waiting")
    assert row["connects"] == 0
    assert row["reason"]
    gateway.stop()
    there.stop()


def test_a_broker_that_does_not_greet_us_is_not_the_only_one(start_gateway: Callable[..., Any], tmp_path: Path) -> None:
    there, wire = start_gateway(), Wire(0)
    wire.is_up = False  # connections are accepted, and closed
    try:
        file = settings(tmp_path, there.port, "5", "a/# out 2")
        text = Path(file).read_text().replace('addresses = ["', f'addresses = ["127.0.0.1:{wire.port}", "')
        Path(file).write_text(text)
        gateway = start_gateway("--config", file, "--http", "0")
        row = await_state(gateway, "open")
        assert (row["connects"], row["address"]) == (1, f"127.0.0.1:{there.port}")
        gateway.stop()
    finally:
        wire.close()
        there.stop()
