"""The two brokers as processes, each on a port of its own choice, ended when the block is left."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from edgelab.processes import free_ports

from .player import PATIENCE_S

MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
SETTINGS = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
set_tcp_nodelay true
log_dest none
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@contextlib.contextmanager
def mosquitto(folder: Path) -> Iterator[int]:
    """Debian's Mosquitto, with defaults but for what a test needs; its settings are in *folder*. Yields its port."""
    [port] = free_ports(1)
    settings = folder / "mosquitto.conf"
    settings.write_text(SETTINGS.format(port=port), "utf-8")
    quiet = subprocess.DEVNULL
    with _running(subprocess.Popen([str(MOSQUITTO), "-c", str(settings)], stdout=quiet, stderr=quiet)) as process:
        _wait_for(port, process)
        yield port


@contextlib.contextmanager
def edgebroker(folder: Path) -> Iterator[int]:
    """Our broker, with the settings of a user who states none; what it keeps is in *folder*. Yields its port."""
    listen = ["--host", "127.0.0.1", "--port", "0", "--data", str(folder / "edgebroker"), "--log-level", "error"]
    command = [sys.executable, "-P", "-m", "edgebroker", "run", "--json", *listen]
    with _running(subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT)) as process:
        assert process.stdout is not None
        yield int(json.loads(process.stdout.readline())["port"])


@contextlib.contextmanager
def _running(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Until somebody listens."""
    for _ in range(int(PATIENCE_S / 0.05)):
        with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port)):
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    raise AssertionError("Mosquitto does not listen")
