"""Traffic recorded and replayed, against Debian's Mosquitto and against `edgebroker run`."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from edgebroker.cli.init.authority import Authority
from edgedevices.traffic.recording import RecordFile

from .mosquitto import MOSQUITTO, running, wait_until_listening

pytestmark = pytest.mark.live

PATIENCE_S = 30.0  # how long anything may take before a test gives up; nothing here waits that long when all is well


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@contextmanager
def gateway(port: int, folder: Path) -> Iterator[None]:
    log = folder / "gateway.log"
    command = [sys.executable, "-m", "edgebroker", "run", "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, cwd=folder, env=environment())
    try:
        wait_until_listening(process, port, log)
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


@pytest.fixture(params=["mosquitto", "edgebroker"])
def port(request: pytest.FixtureRequest, free_port: int, tmp_path: Path) -> Iterator[int]:
    """The port of a broker."""
    if request.param == "edgebroker":
        with gateway(free_port, tmp_path):
            yield free_port
        return
    if MOSQUITTO is None:
        pytest.skip("mosquitto is not installed")
    config = tmp_path / "mosquitto.conf"
    config.write_text(f"listener {free_port} 127.0.0.1\nallow_anonymous true\n")
    with running(config, free_port):
        yield free_port


@pytest.fixture
def edgedevices(port: int, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "edgedevices", *arguments, "--broker", f"127.0.0.1:{port}", "--json"]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment(), cwd=tmp_path)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def listening(recorder: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """*recorder*, once its subscription was granted."""
    assert recorder.stderr is not None
    line = recorder.stderr.readline()
    assert line.startswith("edgedevices: recording "), line
    return recorder


def summary_of(process: subprocess.Popen[str], code: int = 0) -> dict[str, Any]:
    output, errors = process.communicate(timeout=2 * PATIENCE_S)
    assert process.returncode == code, f"exit code {process.returncode}: {errors}{output}"
    found: dict[str, Any] = json.loads(output)
    return found


class Party:
    """A version 5 client on paho's own thread."""

    def __init__(self, port: int, name: str, topics: str = "") -> None:
        self.received: queue.SimpleQueue[MQTTMessage] = queue.SimpleQueue()
        self._ready = threading.Event()
        self.client = Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=MQTTProtocolVersion.MQTTv5)
        self.client.on_message = lambda client, userdata, message: self.received.put(message)
        self.client.on_subscribe = lambda *_: self._ready.set()
        options = SubscribeOptions(2, retainAsPublished=True)
        self.client.on_connect = lambda client, *_: (
            client.subscribe(topics, options=options) if topics else self._ready.set()
        )
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        assert self._ready.wait(PATIENCE_S)

    def take(self, count: int) -> list[MQTTMessage]:
        return [self.received.get(timeout=PATIENCE_S) for _ in range(count)]

    def say(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False, **properties: Any) -> None:
        said: Properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        for name, value in properties.items():
            setattr(said, name, value)
        self.client.publish(topic, payload, qos, retain, said).wait_for_publish(PATIENCE_S)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def party(port: int) -> Iterator[Callable[..., Party]]:
    parties: list[Party] = []

    def join(name: str, topics: str = "") -> Party:
        parties.append(Party(port, name, topics))
        return parties[-1]

    yield join
    for one in parties:
        one.close()


def essence(message: MQTTMessage) -> tuple[Any, ...]:
    """What a replay must keep."""
    properties = message.properties
    kept = [getattr(properties, name, None) for name in ("UserProperty", "ContentType", "CorrelationData")]
    return message.payload, message.qos, message.retain, kept


def test_what_was_recorded_is_replayed_with_everything_it_had(
    edgedevices: Callable[..., subprocess.Popen[str]], party: Callable[..., Party], tmp_path: Path
) -> None:
    first = party("witness", "site/#")
    recorder = listening(
        edgedevices("record", "day.edl", "--topic", "site/#", "--messages", "90", "--client-level", "2")
    )
    meter = party("meter")
    for number in range(90):
        extra = {"UserProperty": [("n", str(number))], "ContentType": "x/y", "CorrelationData": b"\0\xff"}
        payload = bytes([number, 0, 255]) * number
        meter.say(f"site/{'ab'[number % 2]}/meter", payload, number % 3, number >= 88, **(extra if number % 5 else {}))
    recorded = summary_of(recorder)
    assert (recorded["messages"], recorded["qos"]) == (90, {"0": 30, "1": 30, "2": 30})
    assert (recorded["retained"], recorded["clients"], recorded["losses"]) == (2, 2, {})
    said = first.take(90)

    second = party("second", "again/#")
    replayed = summary_of(edgedevices("replay", "day.edl", "--prefix", "again/", "--speed", "max"))
    assert (replayed["recorded"], replayed["published"], replayed["failed"]) == (90, 90, 0)
    assert (replayed["clients"], replayed["damage"], replayed["never_connected"]) == (2, 0, 0)
    heard = second.take(90)
    # Two clients, and each keeps its order among messages of one QoS: QoS 2 is taken one handshake later than QoS 1.
    for topic, qos in product(("site/a/meter", "site/b/meter"), range(3)):
        before = [essence(message) for message in said if (message.topic, message.qos) == (topic, qos)]
        after = [essence(message) for message in heard if (message.topic, message.qos) == (f"again/{topic}", qos)]
        assert after == before
        assert len(after) == 15


def test_a_signal_ends_a_recording_whole(
    edgedevices: Callable[..., subprocess.Popen[str]], party: Callable[..., Party], tmp_path: Path
) -> None:
    recorder = listening(edgedevices("record", "day.edl"))
    witness = party("witness", "#")
    party("meter").say("a/b", b"1")
    witness.take(1)
    recorder.send_signal(signal.SIGINT)
    summary = summary_of(recorder)
    assert (summary["interrupted"], summary["messages"]) == (True, 1)
    recording = RecordFile(tmp_path / "day.edl")
    assert recording.damage == []
    assert [(message.topic, message.payload) for message in recording.messages_in_order()] == [("a/b", b"1")]


def test_a_loop_goes_on_until_it_is_told_to_stop_and_a_count_ends_it(
    edgedevices: Callable[..., subprocess.Popen[str]], party: Callable[..., Party]
) -> None:
    recorder = listening(edgedevices("record", "day.edl", "--messages", "3"))
    meter = party("meter")
    for number in range(3):
        meter.say("a/b", bytes([number]))
    summary_of(recorder)
    listener = party("listener", "again/#")
    options = ("--loop", "--speed", "max", "--prefix", "again/")
    summary = summary_of(edgedevices("replay", "day.edl", *options, "--count", "7"))
    assert (summary["rounds"], summary["published"], summary["failed"]) == (3, 7, 0)
    assert [message.payload[0] for message in listener.take(7)] == [0, 1, 2, 0, 1, 2, 0]
    player = edgedevices("replay", "day.edl", *options)
    listener.take(20)
    player.send_signal(signal.SIGINT)
    summary = summary_of(player)
    assert summary["interrupted"]
    assert (summary["published"], summary["failed"]) == (summary["acknowledged"], 0)


def test_what_is_stored_can_be_left_out_and_names_come_from_a_property(
    edgedevices: Callable[..., subprocess.Popen[str]], party: Callable[..., Party], tmp_path: Path
) -> None:
    meter = party("meter")
    meter.say("a/old", b"old", retain=True)
    options = ("--messages", "2", "--no-retained", "--client-property", "from")
    recorder = listening(edgedevices("record", "day.edl", *options))
    meter.say("a/new", b"1", UserProperty=[("from", "probe-7")])
    meter.say("a/new", b"2", retain=True)
    assert summary_of(recorder)["retained"] == 1
    found = [
        (message.client, message.topic, message.retain)
        for message in RecordFile(tmp_path / "day.edl").messages_in_order()
    ]
    assert found == [("probe-7", "a/new", False), ("", "a/new", True)]


@pytest.mark.parametrize("port", ["edgebroker"], indirect=True)
def test_each_recorded_client_speaks_for_itself_again(
    edgedevices: Callable[..., subprocess.Popen[str]], party: Callable[..., Party]
) -> None:
    recorder = listening(edgedevices("record", "day.edl", "--messages", "4", "--client-level", "2", "--mqtt", "3.1.1"))
    meter = party("meter")
    for number in range(4):
        meter.say(f"site/{'ab'[number % 2]}/meter", bytes([number]))
    summary_of(recorder)
    listener = party("listener", "$filter/%24client = 'b'/again/#")
    options = ("--speed", "max", "--prefix", "again/", "--mqtt", "3.1.1")
    assert summary_of(edgedevices("replay", "day.edl", *options))["published"] == 4
    assert [message.payload[0] for message in listener.take(2)] == [1, 3]


@pytest.mark.parametrize(
    ("port", "topic"),
    [("mosquitto", "a/#/b"), ("edgebroker", "$filter/temp >/a/#")],
    indirect=["port"],
)
def test_a_refused_topic_ends_the_recording_before_it_began(
    edgedevices: Callable[..., subprocess.Popen[str]], tmp_path: Path, topic: str
) -> None:
    recorder = edgedevices("record", "day.edl", "--topic", topic)
    _, errors = recorder.communicate(timeout=PATIENCE_S)
    assert recorder.returncode == 2, errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "day.edl").exists()


def test_a_broker_with_tls_and_passwords_is_recorded_and_replayed_to(
    start_gateway: Callable[..., Any], tmp_path: Path
) -> None:
    """TLS decrypts many messages at once, of which no selector knows: all of a burst are heard without another."""
    authority = Authority.make(tmp_path, "Test")
    pair = authority.server(tmp_path, ["localhost", "127.0.0.1"])
    secret, users, settings = tmp_path / "secret", tmp_path / "users", tmp_path / "gateway.toml"
    secret.write_text("open sesame\n")
    command = [sys.executable, "-m", "edgebroker", "passwd", str(users), "anna", "--password-file", str(secret)]
    subprocess.run(command, env=environment(), check=True, capture_output=True, timeout=PATIENCE_S)
    settings.write_text(
        f'[[listener]]\nanonymous = true\n[[listener]]\nname = "safe"\nport = 0\nanonymous = false\n'
        f'tls_certificate = "{pair.certificate}"\ntls_key = "{pair.key}"\n[access]\npassword_file = "{users}"\n'
    )
    gateway = start_gateway("--config", str(settings))
    safe = str(gateway.listening["listeners"][-1]["port"])
    common = ["--broker", f"127.0.0.1:{safe}", "--json", "--ca", str(authority.pair.certificate), "--username", "anna"]
    command = [sys.executable, "-m", "edgedevices", "record", "day.edl", "--messages", "400", *common]
    pipe, how = subprocess.PIPE, {"text": True, "env": environment(), "cwd": tmp_path}
    refused = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False, **how)  # type: ignore[call-overload]
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused.stderr
    assert "refused" in refused.stderr
    recorder = subprocess.Popen([*command, "--password-file", "secret"], stdout=pipe, stderr=pipe, **how)  # type: ignore[call-overload]
    listening(recorder)
    meter = Party(gateway.port, "meter")
    for number in range(400):
        meter.client.publish("a/b", b"%d" % number, 0)
    assert summary_of(recorder)["messages"] == 400
    witness = Party(gateway.port, "witness", "again/#")
    options = ["--speed", "max", "--prefix", "again/", "--password-file", "secret"]
    player = [sys.executable, "-m", "edgedevices", "replay", "day.edl", *options, *common]
    played = subprocess.run(player, capture_output=True, timeout=PATIENCE_S, check=False, **how)  # type: ignore[call-overload]
    assert played.returncode == 0, played.stderr
    assert [int(message.payload) for message in witness.take(400)] == list(range(400))
    meter.close()
    witness.close()
