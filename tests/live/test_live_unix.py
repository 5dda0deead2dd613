"""A Unix socket as a way in: who may use it, who holds it, and what is left of it."""

from __future__ import annotations

import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PATIENCE_S = 30.0
SUB, PUB = shutil.which("mosquitto_sub"), shutil.which("mosquitto_pub")
pytestmark = pytest.mark.live


@pytest.fixture
def serve(start_gateway: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """A gateway with a plain listener and one at the socket `door`."""

    def serve(more: str = "") -> Any:
        settings = tmp_path / "gateway.toml"
        settings.write_text(f'[[listener]]\n[[listener]]\npath = "door"\n{more}\n')
        return start_gateway("--config", str(settings))

    return serve


def refused(tmp_path: Path) -> str:
    settings = tmp_path / "second.toml"
    settings.write_text('[listener]\npath = "door"\n')
    command = [sys.executable, "-m", "edgebroker", "run", "--config", str(settings)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 2
    return ended.stderr


@pytest.mark.skipif(not (SUB and PUB), reason="mosquitto_sub or mosquitto_pub is not installed")
def test_mosquitto_clients_come_in(serve: Callable[..., Any], tmp_path: Path) -> None:
    gateway = serve()
    door = str(tmp_path / "door")
    subprocess.run([str(PUB), "--unix", door, "-t", "a", "-q", "1", "-r", "-m", "x"], check=True, timeout=PATIENCE_S)
    command = [str(SUB), "--unix", door, "-t", "a", "-C", "1", "-W", "30"]
    assert subprocess.check_output(command, timeout=PATIENCE_S) == b"x\n"
    gateway.stop()


@pytest.mark.parametrize("mode", ["0660", "0600"])
def test_the_file_has_its_mode_and_is_gone_at_the_end(serve: Callable[..., Any], tmp_path: Path, mode: str) -> None:
    gateway = serve(f'path_mode = "{mode}"')
    assert stat.S_IMODE((tmp_path / "door").stat().st_mode) == int(mode, 8)
    gateway.stop()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gateway.toml"]


def test_a_socket_in_use_is_not_stolen(serve: Callable[..., Any], tmp_path: Path) -> None:
    gateway = serve()
    door = tmp_path / "door"
    assert refused(tmp_path) == f"Error: cannot listen on {door}: the socket is in use; another broker?\n"
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(door))
    gateway.stop()


def test_what_a_killed_broker_left_is_replaced(serve: Callable[..., Any], tmp_path: Path) -> None:
    killed = serve()
    killed.process.send_signal(signal.SIGKILL)
    killed.process.wait(PATIENCE_S)
    assert (tmp_path / "door").is_socket()
    gateway = serve()
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(tmp_path / "door"))
    gateway.stop()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "door").write_text("precious")
    assert refused(tmp_path).endswith("there is a file that is no socket\n")
    assert (tmp_path / "door").read_text() == "precious"
