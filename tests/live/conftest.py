"""Gateways as processes of their own, on ports the system chooses, ended by a signal and asked for their accounts."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

PATIENCE_S = 30.0  # how long anything may take before a test gives up; nothing here waits that long when all is well
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


class Gateway:
    """`edgebroker run --json` with more options; ready when it is made."""

    def __init__(self, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "edgebroker", "run", "--json", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
        )
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
        line = self.process.stdout.readline() if ready else b""
        if not line:
            self.process.kill()
            raise AssertionError(f"no gateway: {self.process.communicate()[1].decode()}")
        self.listening: dict[str, Any] = json.loads(line)
        self.host: str = self.listening["host"]
        self.port: int = self.listening["port"]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> dict[str, Any]:
        """End it with a signal. It leaves cleanly and without complaint; its accounts, which add up."""
        self.process.send_signal(number)
        output, complaints = self.process.communicate(timeout=PATIENCE_S)
        assert (self.process.returncode, complaints.decode()) == (0, "")
        accounts: dict[str, Any] = json.loads(output.splitlines()[-1])
        assert accounts.pop("event") == "stopped"
        fates = accounts["delivered"] + accounts["expired"] + accounts["queued"] + sum(accounts["dropped"].values())
        assert accounts["copies"] == fates, accounts
        return accounts

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def start_gateway() -> Iterator[Callable[..., Gateway]]:
    """Call it with options of `edgebroker run`; whatever is still running at the end is killed."""
    started: list[Gateway] = []

    def start(*options: str) -> Gateway:
        started.append(Gateway("--port", "0", *options))
        return started[-1]

    yield start
    for gateway in started:
        gateway.kill()


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    """One gateway for the tests of a file. When they are over it must end well."""
    gateway = Gateway("--port", "0")
    try:
        yield gateway
        gateway.stop()
    finally:
        gateway.kill()
