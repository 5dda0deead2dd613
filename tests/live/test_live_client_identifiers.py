"""Attacks on the session of a user by its client identifier, with Mosquitto's clients against a real gateway."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from .conftest import Guest
from .test_live_access import passwd

SUB, PUB = shutil.which("mosquitto_sub"), shutil.which("mosquitto_pub")
PATIENCE_S = 30.0
MESSAGES = 500
VERSIONS = ["311", "5"]

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(SUB is None or PUB is None, reason="Mosquitto's clients are not installed"),
]


def write_settings(folder: Path, rule: str = "owned") -> Path:
    """The settings of a gateway that knows anna, takes anonymous clients too, and keeps what it acknowledged."""
    settings = folder / "gateway.toml"
    access = f'[access]\npassword_file = "users"\nclient_ids = "{rule}"\n'
    settings.write_text(f'[data]\ndir = "data"\n[listener]\nport = 0\n{access}')
    return settings


@pytest.fixture
def start(tmp_path: Path, start_gateway: Callable[..., Any]) -> Callable[[], Any]:
    """Starts a gateway, on the same data each time, whose log has warnings."""
    passwd(tmp_path / "users", "anna", "a")
    settings = write_settings(tmp_path)
    return lambda: start_gateway("--config", str(settings), "--log-level", "warning")


def log_of(gateway: Any) -> str:
    """Ends the gateway and returns its operator's log."""
    gateway.process.send_signal(signal.SIGTERM)
    return str(gateway.process.communicate(timeout=PATIENCE_S)[1].decode())


def subscriber(port: int, version: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs mosquitto_sub as the client pump until it ends by itself."""
    lasting = ["-x", "3600"] if version == "5" and "-c" in options else []
    command = [str(SUB), "-p", str(port), "-V", version, "-i", "pump", "-t", "t", "-q", "1", *options, *lasting]
    return subprocess.run(command, capture_output=True, timeout=PATIENCE_S, text=True, check=False)


def publish(port: int, count: int) -> None:
    """Publishes the numbers up to *count* at QoS 1; each is acknowledged."""
    lines = "".join(f"{number}\n" for number in range(count))
    command = [str(PUB), "-p", str(port), "-t", "t", "-q", "1", "-l"]
    subprocess.run(command, input=lines, check=True, timeout=PATIENCE_S, text=True)


ANNA = ("-u", "anna", "-P", "a")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_clean_start_by_a_stranger_ends_no_session(start: Callable[[], Any], version: str) -> None:
    """Nor after a restart. The owner gets every message, in order."""
    gateway = start()
    assert subscriber(gateway.port, version, *ANNA, "-c", "-E").returncode == 0
    publish(gateway.port, MESSAGES)
    for session in ([], ["-c"]):
        refused = subscriber(gateway.port, version, *session, "-E")
        assert refused.returncode != 0
        assert "identifier" in refused.stderr.lower(), refused.stderr
    assert "its session belongs to the user 'anna'" in log_of(gateway)
    gateway = start()
    assert subscriber(gateway.port, version, "-E").returncode != 0
    kept = subscriber(gateway.port, version, *ANNA, "-c", "-C", str(MESSAGES))
    assert kept.stdout.split() == [str(number) for number in range(MESSAGES)]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stranger_who_squats_keeps_no_user_out(start: Callable[[], Any], version: str) -> None:
    gateway = start()
    protocol = MQTTProtocolVersion.MQTTv5 if version == "5" else MQTTProtocolVersion.MQTTv311
    squatter = Guest(gateway.port, protocol, "pump", keep=True)
    squatter.connect()
    assert subscriber(gateway.port, version, *ANNA, "-c", "-E").returncode == 0
    squatter.client.loop_stop()
    assert subscriber(gateway.port, version, "-c", "-E").returncode != 0, "it is the user's now"
    publish(gateway.port, 2)
    assert subscriber(gateway.port, version, *ANNA, "-c", "-C", "2").stdout.split() == ["0", "1"]


@pytest.mark.parametrize("version", VERSIONS)
def test_where_identifiers_become_free_the_operator_learns_who_ended_a_session(
    start: Callable[[], Any], tmp_path: Path, version: str
) -> None:
    gateway = start()
    assert subscriber(gateway.port, version, *ANNA, "-c", "-E").returncode == 0
    publish(gateway.port, MESSAGES)
    assert subscriber(gateway.port, version, "-E").returncode != 0
    write_settings(tmp_path, "free")
    [change] = gateway.reload()["changes"]
    assert (change["key"], change["outcome"]) == ("access.client_ids", "applied")
    assert subscriber(gateway.port, version, "-E").returncode == 0
    [line] = [line for line in log_of(gateway).splitlines() if "session-ended" in line]
    assert "a clean start ended a session client=pump peer=127.0.0.1:" in line
    assert line.endswith(f" dropped={MESSAGES}")
