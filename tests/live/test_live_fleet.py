"""A fleet in one process survives the restart of its broker, and a subscriber gets everything that was acknowledged.

pytest -n 0 tests/live/test_live_fleet.py                                       300 devices, a few seconds
EDGEBROKER_FLEET_DEVICES=5000 pytest -s -n 0 tests/live/test_live_fleet.py      what one process has to bear
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import edgedevices.run
from edgebroker.instants import MILLISECOND
from edgedevices.__main__ import main

from .conftest import ENVIRONMENT, PATIENCE_S, Gateway
from .mosquitto import NEEDS_MOSQUITTO, running

pytestmark = [pytest.mark.live, pytest.mark.slow]

DEVICES = int(os.environ.get("EDGEBROKER_FLEET_DEVICES", "300"))
PER_SECOND = 500  # devices that boot, and messages that are said; what two slow cores have to do besides decides
STRETCH_S = max(1.0, DEVICES / PER_SECOND)
MEMORY_MIB_MAX = 1_024
LIMIT_S = 300.0 + 20 * STRETCH_S  # when a run that ends by itself has not

SCENARIO = f"""
[scenario]
name = "restart"
seconds = "{round(5_000 + 3_000 * STRETCH_S)}ms"
ramp = "{round(1_000 * STRETCH_S)}ms"
drain = "{round(60 + STRETCH_S)}s"

[[fleet]]
name = "meters"
profile = "weather"
devices = {DEVICES}
every = "{round(1_000 * STRETCH_S)}ms"
qos = [0, 1, 2]
"""
# All devices come from one address here, and the auditor is away as long as they are: the usual bounds are for less.
ROOMY = """
[quota]
connects_per_s = 0
connects_per_address_per_s = 0

[limits]
queue_messages_max = 1000000
queue_bytes_max = 1073741824
"""


class Edgebroker:
    """A gateway that is killed and started again."""

    kind = "edgebroker"
    may_double = False

    def __init__(self, folder: Path, port: int) -> None:
        (folder / "gateway.toml").write_text(ROOMY)
        self._options = ["--config", str(folder / "gateway.toml"), "--port", str(port), "--data", str(folder / "data")]
        self._gateway = Gateway(*self._options)

    def restart(self) -> None:
        self._gateway.kill()
        self._gateway = Gateway(*self._options)

    def end(self) -> None:
        self._gateway.kill()


class Mosquitto:
    """Mosquitto keeps what it holds when it is told to stop; killed, it loses what came since it last saved."""

    kind = "mosquitto"
    may_double = True  # 2.0.11 saves that PUBLISH is due where it had sent PUBREL, and sends it again (MQTT-4.3.3-6)

    def __init__(self, folder: Path, port: int) -> None:
        self._config, self._port = folder / "mosquitto.conf", port
        self._config.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n"
            f"persistence true\npersistence_location {folder}/\nuser root\n"
        )
        self._stack = contextlib.ExitStack()
        self._start()

    def _start(self) -> None:
        self._stack.enter_context(running(self._config, self._port))

    def restart(self) -> None:
        self._stack.close()
        self._start()

    def end(self) -> None:
        self._stack.close()


@pytest.fixture(params=[Edgebroker, pytest.param(Mosquitto, marks=NEEDS_MOSQUITTO)], ids=lambda kind: kind.kind)
def broker(request: pytest.FixtureRequest, free_port: int, tmp_path: Path) -> Iterator[Any]:
    broker = request.param(tmp_path, free_port)
    yield broker
    broker.end()


@pytest.fixture
def fleet(free_port: int, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Call it with more options for a run of the scenario, whose journal is in `journal`."""
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> subprocess.Popen[str]:
        (tmp_path / "restart.toml").write_text(SCENARIO)
        command = [sys.executable, "-m", "edgedevices", "run", str(tmp_path / "restart.toml"), "--json"]
        command += ["--to", f"127.0.0.1:{free_port}", "--journal", str(tmp_path / "journal"), *options]
        started.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        )
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def wait_for_lines(journal: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Until so many messages have their fate."""
    deadline = time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < deadline:
        if journal.exists() and journal.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.1)
    raise AssertionError(f"no {count} messages: {process.communicate(timeout=PATIENCE_S)}")


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, complaints = process.communicate(timeout=LIMIT_S)
    assert process.returncode in (0, 1), complaints + output
    summary: dict[str, Any] = json.loads(output)
    return summary


def test_everything_acknowledged_arrives_though_the_broker_was_restarted(
    broker: Any, fleet: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = fleet()
    wait_for_lines(tmp_path / "journal", 2 * DEVICES, process)
    broker.restart()
    summary = finish(process)
    print(broker.kind, json.dumps({key: summary[key] for key in ("seconds", "reconnects", "losses", "audit", "cost")}))
    assert summary["devices"] == DEVICES
    assert summary["never_connected"] == 0
    assert summary["reconnects"] >= DEVICES // 2  # whoever was there when it ended has come back
    assert summary["published"] == summary["acknowledged"] + summary["sent"] + summary["failed"]
    assert summary["qos"]["1"]["failed"] == summary["qos"]["2"]["failed"] == 0
    assert summary["audit"]["missing"] == 0
    assert summary["audit"]["doubled"] == 0 or broker.may_double
    assert process.returncode == (1 if summary["audit"]["doubled"] else 0)
    assert summary["audit"]["acknowledged"] > DEVICES
    assert summary["cost"]["memory_mib"] <= MEMORY_MIB_MAX
    outcomes = [json.loads(line)["outcome"] for line in (tmp_path / "journal").read_text().splitlines()]
    assert outcomes.count("acknowledged") == summary["acknowledged"]


def test_a_signal_ends_a_run_in_order(
    fleet: Callable[..., subprocess.Popen[str]], free_port: int, tmp_path: Path
) -> None:
    broker = Edgebroker(tmp_path, free_port)
    try:
        process = fleet("--seconds", "10m", "--devices", "20")
        wait_for_lines(tmp_path / "journal", 20, process)
        process.send_signal(signal.SIGTERM)
        summary = finish(process)
    finally:
        broker.end()
    assert process.returncode == 0
    assert summary["interrupted"]
    assert summary["failed"] == summary["audit"]["missing"] == 0


def test_a_broker_that_does_not_let_the_auditor_subscribe_is_quoted(
    monkeypatch: pytest.MonkeyPatch, start_gateway: Callable[..., Gateway], tmp_path: Path
) -> None:
    monkeypatch.setattr(edgedevices.run, "FIRST_CONNECTION", 500 * MILLISECOND)
    (tmp_path / "acl").write_text("topic write #\n")
    (tmp_path / "restart.toml").write_text(SCENARIO)
    (tmp_path / "gateway.toml").write_text(f'[access]\nacl_file = "{tmp_path}/acl"\n')
    gateway = start_gateway("--config", str(tmp_path / "gateway.toml"))
    address = f"127.0.0.1:{gateway.port}"
    result = CliRunner().invoke(main, ["run", str(tmp_path / "restart.toml"), "--to", address])
    assert result.exit_code == 2
    assert result.output == f"edgedevices: no audit at {address}: may not subscribe to meters/+/+/+\n"


def test_too_few_open_files_are_said_with_what_to_do(fleet: Callable[..., subprocess.Popen[str]]) -> None:
    file = Path(__file__).resolve().parents[2] / "firmware-sim/scenarios/crowd.toml"
    command = f"ulimit -n 100; exec {sys.executable} -m edgedevices run {file}"
    ended = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, env=ENVIRONMENT, timeout=PATIENCE_S, check=False
    )
    assert ended.returncode == 2
    assert "5,001 connections need 5,033 open files, and this process may have 100" in ended.stderr
    assert "--devices 67" in ended.stderr


def test_nobody_listening_is_said_with_the_address(fleet: Callable[..., subprocess.Popen[str]], free_port: int) -> None:
    process = fleet()
    said = process.communicate(timeout=PATIENCE_S)[1]
    assert said == f"edgedevices: cannot reach a broker at 127.0.0.1:{free_port}: Connection refused\n"
    assert process.returncode == 2
