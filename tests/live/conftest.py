"""Gateways as processes of their own, on ports the system chooses, ended by a signal and asked for their accounts.

And guests for them: clients of paho-mqtt that wait for what happens, and never for time to pass.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

PATIENCE_S = 30.0  # how long anything may take before a test gives up; nothing here waits that long when all is well
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


V5 = MQTTProtocolVersion.MQTTv5


class Gateway:
    """`edgebroker run --json` with more options; ready when it is made."""

    def __init__(self, *options: str) -> None:
        self.process = subprocess.Popen(
            # What guests do wrong on purpose is a warning; here, errors alone are complaints.
            [sys.executable, "-m", "edgebroker", "run", "--json", "--log-level", "error", *options],
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

    def reload(self) -> dict[str, Any]:
        """What it says to SIGHUP."""
        self.process.send_signal(signal.SIGHUP)
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], PATIENCE_S)[0], "nothing is said"
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        assert said["event"] == "reloaded"
        return said

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate(timeout=PATIENCE_S)


class Guest:
    """One client on paho's own thread. Each method returns when the gateway has answered."""

    _markers = itertools.count()

    def __init__(self, port: int, version: MQTTProtocolVersion, name: str, *, keep: bool = False) -> None:
        self._port = port
        self._keep = keep
        self._is_v5 = version == V5
        clean = None if self._is_v5 else not keep
        self.client = Client(
            CallbackAPIVersion.VERSION2, name, clean_session=clean, protocol=version, reconnect_on_failure=False
        )
        self.messages: queue.SimpleQueue[MQTTMessage] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._gone = threading.Event()
        self.client.on_message = lambda client, userdata, message: self.messages.put(message)
        self.client.on_connect = lambda client, userdata, *answer: self._answers.put(answer)
        self.client.on_subscribe = lambda client, userdata, mid, *answer: self._answers.put(answer)
        self.client.on_unsubscribe = lambda client, userdata, mid, *answer: self._answers.put(answer)
        self.client.on_disconnect = lambda *_: self._gone.set()

    def connect(self) -> bool:
        """Whether there was a session."""
        self._gone.clear()
        if self._is_v5:
            lasting = Properties(PacketTypes.CONNECT)
            lasting.SessionExpiryInterval = 300 if self._keep else 0
            self.client.connect("127.0.0.1", self._port, clean_start=not self._keep, properties=lasting)
        else:
            self.client.connect("127.0.0.1", self._port)
        self.client.loop_start()
        flags, reason, self.terms = self._answers.get(timeout=PATIENCE_S)
        assert not reason.is_failure, reason
        return bool(flags.session_present)

    def subscribe(self, topic: Any, qos: int = 0, **more: Any) -> tuple[list[int], Properties | None]:
        self.client.subscribe(topic, qos, **more)
        reasons, answered = self._answers.get(timeout=PATIENCE_S)
        return [reason.value for reason in reasons], answered

    def unsubscribe(self, topic: str) -> None:
        self.client.unsubscribe(topic)
        self._answers.get(timeout=PATIENCE_S)

    def publish(self, topic: str, payload: bytes, qos: int = 1, **more: Any) -> None:
        self.client.publish(topic, payload, qos, **more).wait_for_publish(PATIENCE_S)

    def next(self) -> MQTTMessage:
        return self.messages.get(timeout=PATIENCE_S)

    def all_from(self, writer: Guest) -> list[MQTTMessage]:
        """Everything that *writer* has published so far: what comes before a last message, published by it now.

        That is of QoS 2: one of less would overtake QoS 2 messages whose PUBREL is still on its way.
        """
        marker = f"end/{next(self._markers)}"
        self.subscribe(marker, 2)
        writer.publish(marker, b"", 2)
        found = []
        while (message := self.next()).topic != marker:
            found.append(message)
        return found

    def is_gone(self) -> bool:
        """Whether the gateway ends the connection, now or soon."""
        return self._gone.wait(PATIENCE_S)

    def leave(self) -> None:
        self.client.disconnect()
        self._end()

    def vanish(self) -> None:
        """Lose the connection without DISCONNECT."""
        line = self.client.socket()
        assert line is not None
        line.shutdown(socket.SHUT_RDWR)
        self._end()

    def _end(self) -> None:
        assert self._gone.wait(PATIENCE_S)
        self.client.loop_stop()


def leave_for_a_sleeper(port: int, *messages: bytes) -> None:
    """A reader whose session lasts asks for "t" and goes; then a writer leaves *messages* for it."""
    reader, writer = Guest(port, V5, "reader", keep=True), Guest(port, V5, "writer")
    reader.connect()
    reader.subscribe("t", 1)
    reader.leave()
    writer.connect()
    for message in messages:
        writer.publish("t", message)
    writer.leave()


def command_line(*arguments: str) -> tuple[int, str]:
    """(exit code, all it said) of `edgebroker`."""
    command = [sys.executable, "-m", "edgebroker", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=ENVIRONMENT)
    return done.returncode, done.stdout + done.stderr


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
def options() -> tuple[str, ...]:
    """More options for the gateway of a file; the file gives its own fixture of this name."""
    return ()


@pytest.fixture(scope="module")
def gateway(options: tuple[str, ...]) -> Iterator[Gateway]:
    """One gateway for the tests of a file. When they are over it must end well."""
    gateway = Gateway("--port", "0", *options)
    try:
        yield gateway
        gateway.stop()
    finally:
        gateway.kill()


@pytest.fixture
def guest(gateway: Gateway, request: pytest.FixtureRequest) -> Iterator[Callable[..., Guest]]:
    """Call it for a client in the version of the test (5 if it names none), connected unless told otherwise."""
    guests: list[Guest] = []
    callspec = getattr(request.node, "callspec", None)
    version = callspec.params.get("version", V5) if callspec else V5

    def come(
        name: str = "", version: MQTTProtocolVersion = version, *, keep: bool = False, connected: bool = True
    ) -> Guest:
        name = name or f"{request.node.name}-{len(guests)}"
        guests.append(Guest(gateway.port, version, name, keep=keep))
        if connected:
            guests[-1].connect()
        return guests[-1]

    yield come
    for one in guests:
        if one.client.is_connected():
            one.leave()
