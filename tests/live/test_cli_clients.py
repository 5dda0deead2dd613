"""`edgebroker pub`, `edgebroker sub` and the client they use, against every broker that is there.

What real brokers do not do on demand is in test_cli_clients_refused.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import pty
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgebridge.wire.dialect import V5, V311, Dialect
from edgebridge.wire.packets import (
    Connect,
    SubscriptionOption,
)
from edgebroker.cli.mqtt_client import connect
from edgebroker.cli.transport import BrokerTransport
from edgelab.processes import free_ports

pytestmark = pytest.mark.live

PATIENCE_S = 30.0  # how long anything may take before a test gives up; nothing here waits that long when all is well
MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
MOSQUITTO_PUB, MOSQUITTO_SUB = shutil.which("mosquitto_pub"), shutil.which("mosquitto_sub")
VERSIONS = pytest.mark.parametrize("version", ["5", "3.1.1"])
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@dataclass(frozen=True)
class Address:
    """Where a broker listens."""

    port: int
    host: str = "127.0.0.1"

    def options(self) -> list[str]:
        return ["-h", self.host, "-p", str(self.port)]


@pytest.fixture(scope="module", params=["mosquitto", "edgebroker"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """A broker without any state at first, for the tests of this file."""
    if request.param == "edgebroker":
        yield Address(request.getfixturevalue("gateway").port)
        return
    if MOSQUITTO is None:
        pytest.skip("Mosquitto is not installed")
    folder = tmp_path_factory.mktemp(request.param)
    address = Address(free_ports(1)[0])
    (folder / "mosquitto.conf").write_text(f"listener {address.port} 127.0.0.1\nallow_anonymous true\n")
    with (folder / "broker.log").open("wb") as log:
        process = subprocess.Popen([MOSQUITTO, "-c", "mosquitto.conf"], stdout=log, stderr=log, cwd=folder)
    try:
        wait_until_it_listens(address, process, folder / "broker.log")
        yield address
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def wait_until_it_listens(address: Address, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        try:
            socket.create_connection((address.host, address.port), 1.0).close()
            return
        except OSError:
            pass
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
        break
    raise AssertionError(f"no broker on port {address.port}: {log.read_text()[-2_000:]}")


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: bytes
    err: str


def edgebroker(*arguments: str, given: bytes = b"") -> Outcome:
    done = subprocess.run(
        [sys.executable, "-m", "edgebroker", *arguments],
        input=given,
        capture_output=True,
        timeout=PATIENCE_S,
        env=ENVIRONMENT,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr.decode())


def published(address: Address, *arguments: str, given: bytes = b"") -> dict[str, int]:
    outcome = edgebroker("pub", *address.options(), "--json", *arguments, given=given)
    assert (outcome.code, outcome.err) == (0, "")
    summary: dict[str, int] = json.loads(outcome.out)
    return summary


def subscribed(address: Address, *arguments: str) -> bytes:
    outcome = edgebroker("sub", *address.options(), "-W", str(PATIENCE_S / 2), *arguments)
    assert (outcome.code, outcome.err) == (0, "")
    return outcome.out


# -- pub and sub -----------------------------------------------------------------------------------------------


@VERSIONS
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_what_pub_retains_sub_prints(broker: Address, version: str, qos: str) -> None:
    topic = f"retained/{version}/{qos}"
    summary = published(broker, "-V", version, "-q", qos, "-r", "-t", topic, "-s", given="käse".encode())
    assert (summary["published"], summary["acknowledged"], summary["failed"]) == (1, int(qos != "0"), 0)
    assert subscribed(broker, "-V", version, "-q", qos, "-t", f"{topic}/#", "-C", "1") == "käse\n".encode()
    assert subscribed(broker, "-V", version, "-v", "-t", topic, "-C", "1") == f"{topic} käse\n".encode()
    published(broker, "-V", version, "-t", topic, "-n", "-r")


@pytest.mark.parametrize("raw", [[], ["--raw"]], ids=["escaped", "raw"])
def test_a_payload_commands_no_terminal_unless_it_is_asked_for(broker: Address, raw: list[str]) -> None:
    payload = b"\x1b]0;mine\x07\r\xe2\x80\xae\xff\ttab"
    escaped = b"\\x1b]0;mine\\x07\\r\\u202e\\xff\ttab"
    published(broker, "-r", "-t", "terminal", "-s", given=payload)
    assert subscribed(broker, "-t", "terminal", "-C", "1") == payload + b"\n", "a pipe gets every byte"
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "edgebroker", "sub", *broker.options(), "-t", "terminal", "-C", "1", *raw]
    subprocess.run(command, stdout=theirs, timeout=PATIENCE_S, env=ENVIRONMENT, check=True)
    assert os.read(ours, 1_000).replace(b"\r\n", b"\n") == (payload if raw else escaped) + b"\n"
    os.close(ours)
    os.close(theirs)
    published(broker, "-t", "terminal", "-n", "-r")


def test_json_shows_the_whole_message(broker: Address, tmp_path: Path) -> None:
    payload = tmp_path / "payload"
    payload.write_bytes(b"\xff\x00")
    published(broker, "-q", "1", "-r", "-t", "json/a", "-m", "é", "-D", "site", "north", "-D", "site", "b")
    published(broker, "-q", "1", "-r", "-t", "json/b", "-f", str(payload))
    lines = subscribed(broker, "--json", "-q", "1", "-t", "json/a", "-t", "json/b", "-C", "2").splitlines()
    assert sorted((json.loads(line) for line in lines), key=lambda seen: str(seen["topic"])) == [
        {
            "topic": "json/a",
            "payload": "é",
            "qos": 1,
            "retain": True,
            "user_properties": [["site", "north"], ["site", "b"]],
        },
        {"topic": "json/b", "payload_base64": "/wA=", "qos": 1, "retain": True, "user_properties": []},
    ]
    published(broker, "-t", "json/a", "-n", "-r")
    published(broker, "-t", "json/b", "-n", "-r")


@VERSIONS
def test_a_kept_session_gets_what_came_meanwhile_in_order(broker: Address, version: str) -> None:
    options = ["-V", version, "-i", f"keeper-{version}", "-c", "-q", "2", "-t", f"kept/{version}/+"]
    assert edgebroker("sub", *broker.options(), *options, "-W", "0").code == 0
    given = b"one\ntwo\r\n\nfour"
    assert published(broker, "-t", f"kept/{version}/1", "-q", "1", "-l", given=given)["acknowledged"] == 4
    published(broker, "-t", f"kept/{version}/2", "-q", "2", "-m", "five", "--count", "2")
    assert subscribed(broker, *options, "-C", "6") == b"one\ntwo\n\nfour\nfive\nfive\n"


def test_too_few_messages_in_time_are_a_failure(broker: Address) -> None:
    outcome = edgebroker("sub", *broker.options(), "-t", "nobody/publishes", "-C", "3", "-W", "0")
    assert (outcome.code, outcome.err) == (1, "edgebroker: 0 of 3 messages came in 0 s\n")


def test_mosquitto_sub_prints_what_we_publish(broker: Address) -> None:
    if MOSQUITTO_SUB is None:
        pytest.skip("mosquitto_sub is not installed")
    published(broker, "-r", "-q", "1", "-t", "theirs/sub", "-m", "from us")
    command = [MOSQUITTO_SUB, *broker.options(), "-t", "theirs/sub", "-C", "1", "-W", "15", "-v"]
    assert (
        subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=True).stdout == b"theirs/sub from us\n"
    )
    published(broker, "-r", "-t", "theirs/sub", "-n")


def test_we_print_what_mosquitto_pub_publishes(broker: Address) -> None:
    if MOSQUITTO_PUB is None:
        pytest.skip("mosquitto_pub is not installed")
    command = [MOSQUITTO_PUB, *broker.options(), "-t", "theirs/pub", "-q", "2", "-r", "-m", "from them"]
    subprocess.run(command, timeout=PATIENCE_S, check=True)
    assert subscribed(broker, "-t", "theirs/pub", "-C", "1") == b"from them\n"
    published(broker, "-r", "-t", "theirs/pub", "-n")


# -- the client ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", [V5, V311], ids=lambda dialect: dialect.version)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_every_message_once_and_in_order(broker: Address, dialect: Dialect, qos: int) -> None:
    topic = f"order/{dialect.version}/{qos}"
    expected = [str(number).encode() for number in range(300)]

    async def conversation() -> list[bytes]:
        received: list[bytes] = []
        async with (
            asyncio.timeout(PATIENCE_S),
            connect(BrokerTransport(broker.host, broker.port), Connect("", dialect=dialect)) as reader,
            connect(BrokerTransport(broker.host, broker.port), Connect("", dialect=dialect)) as writer,
        ):
            assert (await reader.subscribe([SubscriptionOption(topic, qos)])).reasons == [qos]
            for payload in expected:
                await writer.publish(topic, payload, qos)
            async for message in reader.messages():
                assert (message.topic, message.qos, message.retain, message.dup) == (topic, qos, False, False)
                received.append(message.payload)
                if len(received) == len(expected):
                    break
        return received

    assert asyncio.run(conversation()) == expected
