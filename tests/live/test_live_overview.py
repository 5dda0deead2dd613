"""`edgebroker status`, `top` and `check --http` beside a running gateway, with and without a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgebroker.cli.parameters import HttpAddress

pytestmark = pytest.mark.live

PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def options() -> tuple[str, ...]:
    return ("--http", "0")


@pytest.fixture
def http(gateway: Any, guest: Callable[..., Any]) -> str:
    """A gateway where `away` has one message waiting."""
    away = guest("away", keep=True)
    away.subscribe("a/#", 1)
    away.vanish()
    guest("writer").publish("a/b", b"x", 1)
    return str(HttpAddress(**gateway.listening["http"]))


def run(*arguments: str, **more: Any) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "edgebroker", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, **more)
    return ended.returncode, ended.stdout, ended.stderr


def test_status_is_a_picture_or_json(http: str) -> None:
    code, out, err = run("status", "--http", http)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].endswith("  ok")
    assert any(line.startswith("away ") and line.endswith("  away") for line in lines)
    code, out, _ = run("status", "--http", http, "--json")
    assert (code, json.loads(out)["clients"][0]["client"]) == (0, "away")


def test_status_finds_the_gateway_by_its_settings(http: str, tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(f"[http]\nhost = '0.0.0.0'\nport = {http.rpartition(':')[2]}\n")
    assert run("status", "--config", str(file))[0] == 0
    file.write_text("[node]\nname = 'x'\n")
    code, _, err = run("status", "--config", str(file))
    assert (code, "set port in [http]" in err) == (2, True)


def test_top_works_without_a_terminal(http: str) -> None:
    code, out, err = run("top", "--http", http, "--once", "--interval", "0.1")
    assert (code, err, out.count("edgebroker 0.")) == (0, "", 1)
    assert "/s" in out, "with two looks there are rates"
    assert "\x1b" not in out
    code, out, _ = run("top", "--http", http, "--count", "2", "--interval", "0.1", "--json")
    first, second = map(json.loads, out.splitlines())
    assert (code, first["uptime_s"] < second["uptime_s"]) == (0, True)


def test_top_draws_on_a_terminal_and_leaves_it_as_it_was(http: str) -> None:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-m", "edgebroker", "top", "--http", http, "--interval", "0.1"]
    top = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    seen = b""
    while seen.count(b"\x1b[H") < 3:
        seen += os.read(master, 65_536)
    top.send_signal(signal.SIGINT)
    while True:
        try:
            data = os.read(master, 65_536)
        except OSError:  # Linux says EIO when nobody holds the other end any more
            break
        if not data:
            break
        seen += data
    os.close(master)
    assert top.wait(PATIENCE_S) == 0
    drawn = seen.decode()
    assert drawn.startswith("\x1b[?1049h")
    assert drawn.endswith("\x1b[?25h\x1b[?1049l")
    frame = drawn.split("\x1b[H")[2].partition("\x1b[J")[0].replace("\x1b[K", "").split("\r\n")
    assert len(frame) <= 24
    assert max(map(len, frame)) <= 80
    assert "\x1b" not in "".join(frame)


@pytest.mark.parametrize(
    ("bounds", "code", "state"),
    [
        (("--crit-lag-ms", "60000", "--warn-lag-ms", "60000"), 0, "OK"),
        (("--crit-lag-ms", "60000", "--warn-lag-ms", "60000", "--warn-queue", "0"), 1, "WARNING"),
        (("--crit-lag-ms", "60000", "--crit-queue", "0"), 2, "CRITICAL"),
    ],
)
def test_check_is_a_plug_in(http: str, bounds: tuple[str, ...], code: int, state: str) -> None:
    found, out, err = run("check", "--http", http, *bounds)
    assert (found, err, out.count("\n")) == (code, "", 1)
    assert out.startswith(f"EDGEBROKER {state} - gateway: ")
    assert " queue=1;" in out


def test_check_says_critical_if_nobody_answers(free_port: int) -> None:
    code, out, _ = run("check", "--http", str(free_port))
    assert code == 2
    assert out.startswith(f"EDGEBROKER CRITICAL - cannot reach 127.0.0.1:{free_port}: Connection refused")


def test_check_says_unknown_if_somebody_else_answers() -> None:
    def answer(server: socket.socket, said: bytes) -> None:
        line, _ = server.accept()
        with line:
            line.recv(4_096)
            line.sendall(said)

    for said in (
        b"\x20\x02\0\0",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nhmm\x1b",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
    ):
        with socket.create_server(("127.0.0.1", 0)) as server:
            thread = threading.Thread(target=answer, args=(server, said))
            thread.start()
            code, out, err = run("check", "--http", str(server.getsockname()[1]))
            thread.join(PATIENCE_S)
        assert (code, err) == (3, ""), out
        assert out.startswith("EDGEBROKER UNKNOWN - 127.0.0.1:")
        assert out.strip().isprintable()


def test_check_wants_something_to_check() -> None:
    for arguments in ((), ("--wrong",)):
        code, _, err = run("check", *arguments)
        assert (code, "Usage: " in err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("x.toml --http 1", "either FILE or --http"),
        ("--http not:an:address", "Invalid value for '--http'"),
        ("--http 1 --wrong", "No such option '--wrong'"),
        ("--crit-queue 100", "name the running gateway with --http"),
        ("--warn-queue many", "Invalid value for '--warn-queue'"),
        ("--http 1 --token-file /nowhere/token", "/nowhere/token: http.token_file: cannot be read"),
    ],
)
def test_a_probe_that_is_called_wrongly_says_nothing_about_the_gateway(arguments: str, told: str) -> None:
    code, out, err = run("check", *arguments.split())
    assert (code, err, out.count("\n")) == (3, "", 1)
    assert out.startswith(f"EDGEBROKER UNKNOWN - {told}")
    code, out, err = run("check", "--json", *arguments.split())
    assert (code, err, json.loads(out)["state"]) == (3, "", "UNKNOWN")


def test_nobody_there_is_one_line(free_port: int) -> None:
    for command in ("status", "top"):
        code, out, err = run(command, "--http", str(free_port))
        assert (code, out) == (2, "")
        assert err == (
            f"Error: cannot reach 127.0.0.1:{free_port}: Connection refused; is a gateway running with --http?\n"
        )
