"""Devices against real brokers: every message accounted for, through cut lines, dead brokers and signals.

Each test runs against every broker that is there: Debian's Mosquitto, and `edgebroker run`.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cbor2
import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from edgebroker.instants import MILLISECOND

pytestmark = pytest.mark.live

PATIENCE_S = 30.0  # how long anything may take before a test gives up; nothing here waits that long when all is well
MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


class Broker:
    """A broker process on a port of its own; may be killed and started again."""

    def __init__(self, kind: str, port: int, folder: Path) -> None:
        self.kind = kind
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self.kind == "mosquitto":
            config = self.folder / "mosquitto.conf"
            config.write_text(f"listener {self.port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n")
            command = [str(MOSQUITTO), "-c", str(config)]
        else:
            command = [sys.executable, "-m", "edgebroker", "run", "--host", "127.0.0.1", "--port", str(self.port)]
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, env=environment())
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
                return
            except OSError:
                self._not_yet()
        raise AssertionError(f"{self.kind} does not listen on port {self.port}")

    def _not_yet(self) -> None:
        """Give the process 50 ms, and complain if it uses them to end."""
        assert self._process is not None
        try:
            self._process.wait(0.05)
        except subprocess.TimeoutExpired:
            return
        raise AssertionError(f"{self.kind} ended: {(self.folder / 'broker.log').read_text()[-2_000:]}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE_S)
            self._process = None


@pytest.fixture(params=["mosquitto", "edgebroker"])
def broker(request: pytest.FixtureRequest, free_port: int, tmp_path: Path) -> Iterator[Broker]:
    if request.param == "mosquitto" and MOSQUITTO is None:
        pytest.skip("mosquitto is not installed")
    broker = Broker(request.param, free_port, tmp_path)
    broker.start()
    yield broker
    broker.kill()


class Listener:
    """A subscriber to everything, QoS 2, on paho's own thread."""

    def __init__(self, broker: Broker, topics: str = "#") -> None:
        self.received: queue.SimpleQueue[MQTTMessage] = queue.SimpleQueue()
        self._ready = threading.Event()
        self._client = Client(CallbackAPIVersion.VERSION2, client_id="listener", protocol=MQTTProtocolVersion.MQTTv5)
        self._client.on_connect = lambda client, *_: client.subscribe(topics, 2)
        self._client.on_subscribe = lambda *_: self._ready.set()
        self._client.on_message = lambda client, userdata, message: self.received.put(message)
        self._client.connect("127.0.0.1", broker.port)
        self._client.loop_start()
        assert self._ready.wait(PATIENCE_S)

    def take(self, count: int) -> list[MQTTMessage]:
        return [self.received.get(timeout=PATIENCE_S) for _ in range(count)]

    def all_until(self, marker: str) -> list[MQTTMessage]:
        """Everything up to the second message on topic *marker*, which the listener itself publishes now.

        QoS 0 that its publisher has written may still lie in the broker's other sockets when the first marker is read;
        a broker reads all sockets that are ready before it comes back to this one for the second.
        """
        found = []
        for _ in range(2):
            self._client.publish(marker, b"", qos=2)
            while (message := self.received.get(timeout=PATIENCE_S)).topic != marker:
                found.append(message)
        return found

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture
def listener(broker: Broker) -> Iterator[Listener]:
    listener = Listener(broker)
    yield listener
    listener.close()


@pytest.fixture
def edgedevices(broker: Broker) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "edgedevices", *arguments, "--broker", broker.address, "--json"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), cwd=broker.folder
        )
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
            process.communicate()


def finish(process: subprocess.Popen[str], code: int = 0) -> dict[str, Any]:
    """The summary of a run that ends with *code*."""
    output, errors = process.communicate(timeout=2 * PATIENCE_S)
    assert process.returncode == code, f"exit code {process.returncode}: {errors}{output}"
    summary: dict[str, Any] = json.loads(output)
    assert summary["published"] == summary["acknowledged"] + summary["sent"] + summary["failed"]
    return summary


def journal(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def body_of(payload: bytes) -> Any:
    return json.loads(payload) if payload[:1] == b"{" else cbor2.loads(payload)


def check_delivered(sent: list[dict[str, Any]], received: list[MQTTMessage]) -> None:
    """Every journalled message arrived: QoS 0 and 2 once, QoS 1 at least once, in order, unchanged."""
    found = [(message.topic, body_of(message.payload)) for message in received]
    counts = Counter((body["device"], body["seq"]) for _, body in found)
    assert counts.keys() == {(record["device"], record["seq"]) for record in sent}
    truth = {(record["device"], record["seq"]): record for record in sent}
    assert len(truth) == len(sent)
    latest: dict[str, int] = {}
    for topic, body in found:
        record = truth[body["device"], body["seq"]]
        assert (topic, body) == (record["topic"], record["payload"])
        assert counts[body["device"], body["seq"]] == 1 or record["qos"] == 1
        assert body["seq"] > latest.get(body["device"], 0) or record["qos"] == 1
        latest[body["device"]] = max(body["seq"], latest.get(body["device"], 0))


def test_a_fleet_is_delivered_exactly(
    edgedevices: Callable[..., subprocess.Popen[str]], listener: Listener, tmp_path: Path
) -> None:
    options = ["--devices", "20", "--rate", "20", "--messages", "20", "--payload", "mixed", "--seed", "5"]
    summary = finish(edgedevices("fleet", *options, "--journal", str(tmp_path / "journal")))
    assert summary["published"] == 400
    assert {qos: account["published"] for qos, account in summary["qos"].items()} == {"0": 240, "1": 120, "2": 40}
    assert (summary["failed"], summary["reconnects"], summary["losses"]) == (0, 0, {})
    sent = journal(tmp_path / "journal")
    assert {record["form"] for record in sent} == {"json", "cbor"}
    received = listener.take(400)
    assert all(
        message.qos == {r["device"]: r["qos"] for r in sent}[body_of(message.payload)["device"]] for message in received
    )
    check_delivered(sent, received + listener.all_until("end"))
    assert summary["payload_bytes"] == sum(len(message.payload) for message in received)


@pytest.mark.parametrize("mqtt", ["3.1.1", "5"])
def test_lines_that_are_cut_lose_nothing_and_double_no_qos_2(
    edgedevices: Callable[..., subprocess.Popen[str]], listener: Listener, tmp_path: Path, mqtt: str
) -> None:
    options = ["--devices", "6", "--rate", "50", "--messages", "100", "--mqtt", mqtt, "--reconnect-every", "300ms"]
    summary = finish(edgedevices("fleet", *options, "--journal", str(tmp_path / "journal")))
    assert summary["published"] == 600
    assert summary["failed"] == 0
    assert summary["reconnects"] >= 6
    sent = journal(tmp_path / "journal")
    received = listener.all_until("end")
    check_delivered(sent, received)


def test_a_broker_that_dies_and_comes_back_gets_the_rest(
    edgedevices: Callable[..., subprocess.Popen[str]], broker: Broker, listener: Listener
) -> None:
    process = edgedevices("fleet", "--devices", "4", "--rate", "20", "--messages", "40", "--qos", "1")
    listener.take(10)
    broker.kill()
    broker.start()
    summary = finish(process)
    assert (summary["published"], summary["acknowledged"], summary["failed"]) == (160, 160, 0)
    assert summary["reconnects"] == 4
    assert sum(summary["losses"].values()) >= 4


def test_a_broker_that_stays_away_costs_what_it_had_not_acknowledged(
    edgedevices: Callable[..., subprocess.Popen[str]], broker: Broker, listener: Listener, tmp_path: Path
) -> None:
    options = ["--devices", "4", "--rate", "20", "--messages", "20", "--qos", "2", "--drain", "100ms"]
    process = edgedevices("fleet", *options, "--journal", str(tmp_path / "journal"))
    listener.take(10)
    broker.kill()
    summary = finish(process, code=1)
    assert summary["published"] == 80
    assert summary["failed"] == summary["failures"]["not acknowledged in time"] > 0
    outcomes = Counter(record["outcome"] for record in journal(tmp_path / "journal"))
    assert outcomes == {"acknowledged": summary["acknowledged"], "failed": summary["failed"]}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_cleanly_with_the_summary(
    edgedevices: Callable[..., subprocess.Popen[str]], listener: Listener, number: signal.Signals
) -> None:
    process = edgedevices("fleet", "--devices", "10", "--rate", "20", "--profile", "vibration")
    listener.take(20)
    process.send_signal(number)
    summary = finish(process)
    assert summary["interrupted"]
    assert summary["failed"] == 0
    assert len(listener.all_until("end")) + 20 == summary["published"]


def test_status_says_online_by_birth_offline_by_will_and_offline_at_the_end(
    edgedevices: Callable[..., subprocess.Popen[str]], broker: Broker, listener: Listener
) -> None:
    options = ["--devices", "2", "--rate", "20", "--messages", "20", "--will", "--reconnect-every", "400ms"]
    summary = finish(edgedevices("fleet", *options))
    words = [body_of(m.payload)["status"] for m in listener.all_until("end") if m.topic.endswith("/status")]
    assert summary["reconnects"] >= 2
    assert words.count("online") >= 2
    assert words.count("offline") >= 2 + summary["reconnects"]
    late = Listener(broker, "cold-chain/+/+/status")
    assert [body_of(m.payload)["status"] for m in late.take(2)] == ["offline", "offline"]
    late.close()


def test_the_host_reports_itself(edgedevices: Callable[..., subprocess.Popen[str]], listener: Listener) -> None:
    summary = finish(edgedevices("host", "--every", "50ms", "--seconds", "250ms", "--topic-prefix", "rack/7"))
    assert summary["published"] == summary["acknowledged"] == 5
    received = listener.take(5)
    assert {message.topic for message in received} == {"rack/7/telemetry"}
    assert [body_of(message.payload)["seq"] for message in received] == [1, 2, 3, 4, 5]
    assert all(0 <= body_of(message.payload)["cpu_percent"] <= 100 for message in received)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_file_is_replayed_whole_and_in_order(
    edgedevices: Callable[..., subprocess.Popen[str]], listener: Listener, tmp_path: Path, qos: int
) -> None:
    rows = [f"2024-05-01T00:{number // 60:02d}:{number % 60:02d}Z,{'ab'[number % 2]},{number}" for number in range(900)]
    file = tmp_path / "meter.csv"
    file.write_text("\n".join(["time,site,value", *rows[:500], "broken", *rows[500:]]) + "\n")
    options = ["--time-column", "time", "--topic", "site/{site}/meter", "--columns", "value", "--speed", "max"]
    summary = finish(edgedevices("replay", str(file), *options, "--qos", str(qos)))
    assert (summary["rows"], summary["bad_rows"], summary["published"], summary["failed"]) == (901, 1, 900, 0)
    assert summary["first_bad"] == [{"line": 502, "reason": "1 fields where the header has 3"}]
    received = listener.take(900)
    assert [body_of(message.payload)["value"] for message in received] == list(range(900))
    assert [message.topic for message in received[:2]] == ["site/a/meter", "site/b/meter"]


def refuse(server: socket.socket) -> None:
    """Answer every CONNECT with CONNACK 0x05, not authorised, until the socket is closed."""
    while True:
        try:
            line, _ = server.accept()
        except OSError:
            return
        with line:
            if line.recv(1_024):
                line.sendall(b"\x20\x02\x00\x05")


def test_a_broker_that_refuses_is_quoted_and_gives_exit_code_two(monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    import edgedevices.run
    from edgedevices.__main__ import main

    monkeypatch.setattr(edgedevices.run, "FIRST_CONNECTION", 200 * MILLISECOND)
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=refuse, args=(server,), daemon=True)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        arguments = ["fleet", "--devices", "2", "--mqtt", "3.1.1", "--messages", "1", "--broker", address]
        result = CliRunner().invoke(main, arguments)
        server.shutdown(socket.SHUT_RDWR)
    assert result.exit_code == 2
    assert result.output == f"edgedevices: no connection to {address}: refused: Not authorized\n"
