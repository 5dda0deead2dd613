"""Mosquitto itself, as Debian packages it, as a process of a test: as a bridge to a gateway, or to compare with."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
NEEDS_MOSQUITTO = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed (Debian: mosquitto)")

PATIENCE_S = 30.0  # how long anything may take before a test gives up; nothing here waits that long when all is well


@contextlib.contextmanager
def running(config: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Mosquitto with a configuration that makes it listen on *port*; it writes its log beside the file."""
    with config.with_suffix(".log").open("w") as log:
        process = subprocess.Popen([str(MOSQUITTO), "-c", str(config), "-v"], stdout=log, stderr=log)
    try:
        wait_until_listening(process, port, config)
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def wait_until_listening(process: subprocess.Popen[bytes], port: int, config: Path) -> None:
    """Until somebody accepts connections on *port*."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.02)
    raise AssertionError(f"Mosquitto does not listen: {config.with_suffix('.log').read_text()}")
