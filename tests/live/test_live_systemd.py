"""A gateway that systemd started: here, a socket stands in its place."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from .conftest import ENVIRONMENT, PATIENCE_S

pytestmark = pytest.mark.live


@pytest.fixture
def hearing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """What systemd hears of gateways that are started from now on. It wants a sign of life every 0.4 s."""
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        listener.settimeout(PATIENCE_S)
        monkeypatch.setitem(ENVIRONMENT, "NOTIFY_SOCKET", str(path))
        monkeypatch.setitem(ENVIRONMENT, "WATCHDOG_USEC", "400000")
        yield listener


def until(hearing: socket.socket, word: str) -> str:
    """What is said next that has *word* in it."""
    while word not in (said := hearing.recv(4_096).decode()):
        pass
    return said


def test_systemd_hears_when_clients_are_served_and_that_the_loop_turns(
    hearing: socket.socket, start_gateway: Callable[..., Any]
) -> None:
    gateway = start_gateway()
    assert f"STATUS=listens on 127.0.0.1:{gateway.port}" in until(hearing, "READY=1")
    for _ in range(3):
        assert until(hearing, "WATCHDOG") == "WATCHDOG=1"
    gateway.process.send_signal(signal.SIGTERM)
    until(hearing, "STOPPING=1")
    assert gateway.process.wait(PATIENCE_S) == 0


def test_a_reload_is_announced_and_its_end_too(
    hearing: socket.socket, start_gateway: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text("[node]\nname = 'one'\n")
    gateway = start_gateway("--config", str(file))
    until(hearing, "READY=1")
    for text in ("[node]\nname = 'two'\n", "[nonsense]\n"):  # taken or not, the reload ends
        file.write_text(text)
        gateway.process.send_signal(signal.SIGHUP)
        said = until(hearing, "RELOADING=1")
        assert "MONOTONIC_USEC=" in said
        assert ("the last reload was rejected" in until(hearing, "READY=1")) == ("nonsense" in text)


def test_the_status_tells_where_it_listens_after_a_reload(
    hearing: socket.socket, start_gateway: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text("[[listener]]\nport = 0\n")
    gateway = start_gateway("--config", str(file))
    until(hearing, "READY=1")
    path = tmp_path / "second.sock"
    file.write_text(f"[[listener]]\nport = 0\n[[listener]]\npath = '{path}'\n")
    gateway.process.send_signal(signal.SIGHUP)
    assert str(path) in until(hearing, "READY=1")
    file.write_text("[nonsense]\n")
    gateway.process.send_signal(signal.SIGHUP)
    said = until(hearing, "READY=1")
    assert "the last reload was rejected; listens on" in said
    assert str(path) in said
    file.write_text("[[listener]]\nport = 0\n")
    gateway.process.send_signal(signal.SIGHUP)
    assert str(path) not in until(hearing, "READY=1"), "that one is closed"


def test_a_loop_that_hangs_gives_no_sign_of_life(hearing: socket.socket, start_gateway: Callable[..., Any]) -> None:
    gateway = start_gateway()
    until(hearing, "WATCHDOG=1")
    os.kill(gateway.process.pid, signal.SIGSTOP)
    try:
        hearing.settimeout(0.0)
        with suppress(BlockingIOError):
            while hearing.recv(4_096):  # what was said before
                pass
        hearing.settimeout(1.0)
        with pytest.raises(TimeoutError):
            hearing.recv(4_096)
    finally:
        os.kill(gateway.process.pid, signal.SIGCONT)
    hearing.settimeout(PATIENCE_S)
    until(hearing, "WATCHDOG=1")
    os.kill(gateway.process.pid, signal.SIGABRT)  # as systemd does then
    said = gateway.process.communicate(timeout=PATIENCE_S)[1]
    assert b"Fatal Python error: Aborted" in said
    assert b"serving.py" in said, "it tells where it hung"


def test_the_journal_hears_why_it_did_not_start_as_an_error(tmp_path: Path) -> None:
    with (tmp_path / "journal").open("w+") as journal:
        found = os.fstat(journal.fileno())
        done = subprocess.run(
            [sys.executable, "-m", "edgebroker", "run", "--config", str(tmp_path / "none.toml")],
            stderr=journal,
            env={**ENVIRONMENT, "JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"},
            check=False,
        )
        journal.seek(0)
        assert (done.returncode, journal.read()[:9]) == (2, "<3>Error:")
