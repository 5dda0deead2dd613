"""Debian's Mosquitto clients, and Mosquitto itself as a bridge, use content filters with nothing installed."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SUB, PUB, STDBUF = shutil.which("mosquitto_sub"), shutil.which("mosquitto_pub"), shutil.which("stdbuf")
MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not (SUB and PUB and STDBUF), reason="mosquitto_sub, mosquitto_pub or stdbuf is not installed"),
]

PATIENCE_S = 30.0  # how long anything may take before a test gives up; nothing here waits that long when all is well
IN_TOPIC = "$filter/temp%3E30/sensors/#"
WHERE = "temp > 30 OR site IN ('a','b')"
READINGS = ('{"temp":29}', '{"temp":31}', '{"temp":"31"}', "not json", '{"site":"b"}', '{"site":"c"}')
LAST = '{"temp":99}'  # accepted by every filter here


def publish(port: int, topic: str, payload: str, *options: str) -> None:
    command = [str(PUB), "-p", str(port), "-q", "1", "-t", topic, "-m", payload, *options]
    subprocess.run(command, check=True, timeout=PATIENCE_S)


@contextlib.contextmanager
def subscribed(port: int, *options: str, until: str = "Subscribed") -> Iterator[Callable[[], list[str]]]:
    """mosquitto_sub, which has printed a line that begins with *until*. Call what comes for the messages, at its end.

    It needs `-C`, so that it ends by itself.
    """
    command = [str(STDBUF), "-oL", str(SUB), "-p", str(port), "-d", "-W", f"{PATIENCE_S:.0f}", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    printed: list[str] = []
    for line in process.stdout:
        printed.append(line.rstrip("\n"))
        if line.startswith(until):
            break

    def rest() -> list[str]:
        assert process.stdout is not None
        printed.extend(process.stdout.read().splitlines())
        assert process.wait(PATIENCE_S) == 0, printed
        return [line for line in printed if not line.startswith(("Client ", "Subscribed "))]

    try:
        yield rest
    finally:
        process.kill()
        process.communicate()


def readings(port: int) -> None:
    for payload in (*READINGS, LAST):
        publish(port, "sensors/a", payload)


@pytest.mark.parametrize("version", ["311", "5"])
def test_a_filter_in_the_topic(gateway: Any, version: str) -> None:
    with subscribed(gateway.port, "-V", version, "-t", IN_TOPIC, "-v", "-C", "2") as printed:
        readings(gateway.port)
        assert printed() == ['sensors/a {"temp":31}', f"sensors/a {LAST}"]


def test_a_filter_as_user_property(gateway: Any) -> None:
    where = ["-V", "5", "-D", "subscribe", "user-property", "$where", WHERE]
    with subscribed(gateway.port, "-t", "sensors/#", *where, "-C", "3") as printed:
        readings(gateway.port)
        assert printed() == ['{"temp":31}', '{"site":"b"}', LAST]


def test_both_together(gateway: Any) -> None:
    where = ["-V", "5", "-D", "subscribe", "user-property", "$where", "temp < 99 OR $topic = 'sensors/last'"]
    with subscribed(gateway.port, "-t", IN_TOPIC, *where, "-C", "2") as printed:
        readings(gateway.port)
        publish(gateway.port, "sensors/last", LAST)
        assert printed() == ['{"temp":31}', LAST]


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_a_filter_of_retained_messages(gateway: Any, qos: str) -> None:
    for topic, payload in (("kept/cool", READINGS[0]), ("kept/warm", READINGS[1])):
        publish(gateway.port, topic, payload, "-r")
    with subscribed(gateway.port, "-q", qos, "-t", "$filter/temp > 30/kept/#", "-v", "-C", "1") as printed:
        assert printed() == ['kept/warm {"temp":31}']
    for topic in ("kept/cool", "kept/warm"):
        publish(gateway.port, topic, "", "-r")


@pytest.mark.parametrize(
    ("version", "options", "code"),
    [
        ("311", ["-t", "$share/g/$filter/temp%3E30/sensors/#"], 0x80),
        ("5", ["-t", "$share/g/$filter/temp%3E30/sensors/#"], 0x9E),
        ("311", ["-t", "$filter/temp%3E%3E30/sensors/#"], 0x80),
        ("5", ["-t", "$filter/temp%3E%3E30/sensors/#"], 0x8F),
        ("5", ["-t", "sensors/#", "-D", "subscribe", "user-property", "$where", "temp >"], 0x8F),
        ("5", ["-t", "sensors/#", "-D", "subscribe", "user-property", "$where", "NOT " * 17 + "a"], 0x97),
    ],
)
def test_refusals(gateway: Any, version: str, options: list[str], code: int) -> None:
    """The reason strings, which mosquitto_sub does not print, are in test_live_paho_v5.py."""
    command = [str(SUB), "-p", str(gateway.port), "-V", version, "-d", *options]
    ended = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, text=True, check=False)
    assert f"Subscribed (mid: 1): {code}" in ended.stdout
    assert "All subscription requests were denied." in ended.stderr


@pytest.mark.skipif(MOSQUITTO is None, reason="Mosquitto is not installed")
@pytest.mark.parametrize(
    "version",
    [
        pytest.param("mqttv311", marks=pytest.mark.slow),  # Mosquitto first tries a version of its own, then waits 5 s
        "mqttv50",
    ],
)
def test_a_bridge_fetches_what_it_wants(gateway: Any, free_port: int, tmp_path: Path, version: str) -> None:
    config = tmp_path / "mosquitto.conf"
    config.write_text(
        f"listener {free_port} 127.0.0.1\nallow_anonymous true\n"
        f"connection uplink\naddress 127.0.0.1:{gateway.port}\nbridge_protocol_version {version}\nrestart_timeout 1\n"
        f"remote_clientid bridge-{version}\nlocal_clientid local-{version}\nnotifications_local_only true\n"
        f"topic {IN_TOPIC} in 1\n"
    )
    publish(gateway.port, "sensors/first", LAST, "-r")  # comes over as soon as the bridge has subscribed
    with (tmp_path / "log").open("w") as log:
        mosquitto = subprocess.Popen([str(MOSQUITTO), "-c", str(config), "-v"], stdout=log, stderr=log)
    try:
        wait_for_port(mosquitto, free_port)
        with subscribed(free_port, "-t", "sensors/#", "-v", "-C", "3", until="sensors/first") as printed:
            readings(gateway.port)
            assert printed() == [f"sensors/first {LAST}", 'sensors/a {"temp":31}', f"sensors/a {LAST}"]
    finally:
        mosquitto.terminate()
        mosquitto.wait(PATIENCE_S)
        publish(gateway.port, "sensors/first", "", "-r")


def wait_for_port(process: subprocess.Popen[bytes], port: int) -> None:
    """Until mosquitto_pub gets through."""
    command = [str(PUB), "-p", str(port), "-q", "1", "-t", "ready", "-n"]
    for _ in range(int(PATIENCE_S / 0.05)):
        if subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False).returncode == 0:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    raise AssertionError("Mosquitto does not listen")
