"""`edgebroker pub` and `sub` over TLS, mutual TLS, a Unix socket and WebSocket, and the errors they report."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edgebroker.cli.init.authority import Authority

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed; it makes the certificates"),
]

PATIENCE_S = 30.0
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
SETTINGS = """
[[listener]]
[[listener]]
port = 0
tls_certificate = "server.crt"
tls_key = "server.key"
tls_client = "required"
tls_client_ca = "ca.crt"
[[listener]]
port = 0
protocol = "websocket"
[[listener]]
port = 0
protocol = "websocket"
tls_certificate = "server.crt"
tls_key = "server.key"
[[listener]]
path = "door"
"""
NAMES = ("plain", "tls", "ws", "wss")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("doors")
    authority = Authority.make(folder, "Test")
    authority.server(folder, ["localhost"])
    authority.client(folder, "pump-3")
    Authority.make(folder, "Other", "other")
    (folder / "gateway.toml").write_text(SETTINGS)
    (folder / "password").write_text("secret\n")
    return folder


@pytest.fixture
def ports(folder: Path, start_gateway: Callable[..., Any]) -> Iterator[dict[str, str]]:
    gateway = start_gateway("--config", str(folder / "gateway.toml"))
    yield {name: str(one["port"]) for name, one in zip(NAMES, gateway.listening["listeners"], strict=False)}
    gateway.stop()


def edgebroker(folder: Path, *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "edgebroker", *arguments]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, env=ENVIRONMENT, check=False
    )
    return done.returncode, done.stdout, done.stderr


MUTUAL = ["--cafile", "ca.crt", "--cert", "pump-3.crt", "--key", "pump-3.key"]
WAYS = {
    "tls": ["-h", "localhost", *MUTUAL],
    "ws": ["--ws", "--ws-path", "/mqtt"],
    "wss": ["-h", "localhost", "--ws", "--cafile", "ca.crt"],
    "unix": ["--unix", "door"],
    "insecure": ["-h", "127.0.0.1", *MUTUAL, "--insecure"],
}


def test_a_message_goes_in_and_out_over_every_transport(folder: Path, ports: dict[str, str]) -> None:
    for way, options in WAYS.items():
        door = [*options, *([] if way == "unix" else ["-p", ports["tls" if way == "insecure" else way]])]
        who = ["-u", "anna", "--password-file", "password"]
        sent = edgebroker(folder, "pub", *door, *who, "-t", way, "-q", "2", "-r", "-m", way * 10_000)
        assert sent == (0, "", ""), way
        assert edgebroker(folder, "sub", *door, "-t", way, "-C", "1", "-W", "20") == (0, f"{way * 10_000}\n", ""), way


WRONG = {
    "another authority": (
        "tls",
        ["-h", "localhost", "--cafile", "other.crt"],
        "cannot trust localhost:{port}: self-signed certificate in certificate chain; --cafile names who signs for it",
    ),
    "another name": (
        "tls",
        ["-h", "127.0.0.1", *MUTUAL],
        "cannot trust 127.0.0.1:{port}: IP address mismatch, certificate is not valid for '127.0.0.1'. Ask by a",
    ),
    "TLS where there is none": ("plain", ["-h", "localhost", "--cafile", "ca.crt"], "localhost:{port}: "),
    "another path": (
        "ws",
        ["--ws", "--ws-path", "/x"],
        "no WebSocket at http://127.0.0.1:{port}/x: HTTP 404: MQTT is at",
    ),
    "another path, over TLS": (
        "wss",
        ["-h", "localhost", "--cafile", "ca.crt", "--ws", "--ws-path", "/x"],
        "no WebSocket at https://localhost:{port}/x: HTTP 404: MQTT is at",
    ),
    "WebSocket where there is none": ("plain", ["--ws"], "127.0.0.1:{port}"),
    "no certificate": (
        "tls",
        ["-h", "localhost", "--cafile", "ca.crt"],
        "localhost:{port} does not answer as an MQTT broker: the connection ended: tlsv13 alert certificate required",
    ),
}


@pytest.mark.parametrize(("door", "options", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said_in_one_line(
    folder: Path, ports: dict[str, str], door: str, options: list[str], said: str
) -> None:
    code, out, err = edgebroker(folder, "pub", *options, "-p", ports[door], "-t", "a", "-m", "x")
    assert (code in (1, 2), out) == (True, "")
    assert err.startswith("edgebroker: ")
    assert said.format(port=ports[door]) in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--unix", "door", "-p", "7"], "--unix stands in place of -h and -p"),
        (["--ws-path", "/x"], "--ws-path needs --ws"),
        (["--insecure"], "--insecure needs --tls or --cafile"),
        (["--tls", "--cert", "pump-3.crt"], "--cert and --key belong together"),
        (["--cafile", "absent.crt"], "--cafile absent.crt: No such file or directory"),
        (["--tls", "--cert", "pump-3.crt", "--key", "server.key"], "key values mismatch"),
        (["-P", "x", "--password-file", "password"], "give -P or --password-file, not both"),
        (["--password-file", "absent"], "--password-file absent: cannot be read"),
    ],
)
def test_options_that_name_no_transport_are_refused(folder: Path, options: list[str], said: str) -> None:
    code, out, err = edgebroker(folder, "sub", *options, "-t", "a")
    assert (code, out) == (2, "")
    assert said in err
