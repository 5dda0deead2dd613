"""`edgebroker bench overlay` runs, and says what it should. Nothing here looks at a speed."""

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgelab.bench import command, subjects
from edgelab.bench.client import DurableClient
from edgelab.bench.job import LoadFailed, LoadJob
from edgelab.bench.overlay import NAMES, WORKLOADS, trial
from edgelab.bench.overlay.outage import Outage
from edgelab.bench.overlay.pairs import PairPorts, StoragePolicy, edgebroker
from edgelab.bench.packets import publish
from edgelab.bench.rounds import pairwise
from edgelab.bench.trial import Cores

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmark needs /proc and pinned processes")


def run(*options: str) -> dict:
    done = CliRunner().invoke(command, ["overlay", "--quick", "--outage", "0.3", "--json", *options])
    assert done.exit_code == 0, done.output
    return {row["name"]: row for row in json.loads(done.stdout)["workloads"]}


@pytest.mark.live
@pytest.mark.slow
def test_what_ours_acknowledged_survives_the_kill_of_the_receiver():
    rows = run("--against", "none", "--only", "killed", "--only", "forward_synced")
    assert rows["killed_acknowledged"]["ours"] >= 100
    assert (rows["killed_lost"]["ours"], rows["killed_lost"]["met"]) == (0, True)
    assert rows["killed_out_of_order"]["ours"] == 0
    assert rows["forward_synced"]["ours"] > 0


@pytest.mark.live
@pytest.mark.slow
def test_mosquitto_and_its_bridge_are_measured_beside_it():
    try:
        subjects.mosquitto()
    except subjects.SubjectNotFound as missing:
        pytest.skip(str(missing))
    row = run("--only", "forward_batched")["forward_batched"]
    assert row["ratio"] == row["ours"] / row["peer"] > 0


def test_a_receiver_that_gets_nothing_is_no_receiver(monkeypatch):
    """Both ends listen, and nothing joins them: that must not pass for a pair."""
    monkeypatch.setattr(trial, "MEET_S", 0.3)
    pair = edgebroker()

    def apart(ports, folder, session_journal):
        (folder / "a").mkdir()
        (folder / "b").mkdir()
        return pair.subject.command(ports.sending, folder / "a"), pair.subject.command(ports.receiving, folder / "b")

    failed = trial.measure(trial.BrokerPair(pair.subject, apart), LoadJob("stream"), Cores(0, 0))
    assert failed.failure == "nothing passed between the brokers within 0.3 s"


class Heard(DurableClient):
    """A subscriber that gets what a test says."""

    class Line:
        def __init__(self, *parts: bytes) -> None:
            self.parts = list(parts)
            self.sent = b""

        def recv(self, size: int) -> bytes:
            return self.parts.pop(0)

        def sendall(self, data: bytes) -> None:
            self.sent += data

    def __init__(self, *parts: bytes) -> None:
        self.socket = self.Line(*parts)


class Nobody:
    """A client whose connection leads nowhere."""

    was_present = True

    def __init__(self, port: int, name: str) -> None:
        self.socket, self.far = socket.socketpair()


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Outage]:
    """Makes a load that has sent so many messages, with nobody at either end."""
    for client in ("BenchClient", "DurableClient"):
        monkeypatch.setattr(f"edgelab.bench.overlay.outage.{client}", Nobody)

    def make(sent: int) -> Outage:
        load = Outage(1, 2, LoadJob("killed", rate=1, seconds=1))
        load.sent = sent
        return load

    return make


def message(number: int, identifier: int, text: str | None = None) -> bytes:
    payload = (text or f"{number:08d}").encode().ljust(64, b".")
    return publish("bench/outage", payload, identifier)


def test_losses_doubles_and_overtaking_are_counted(outage):
    load = outage(6)
    heard = Heard(message(0, 7) + message(1, 8)[:20], message(1, 8)[20:] + message(4, 9), message(3, 1), message(3, 2))
    for _ in range(4):
        load.deliver(heard)
    assert heard.socket.sent == b"".join(b"\x40\x02\0" + bytes([each]) for each in (7, 8, 9, 1, 2))
    load.acknowledged_bytes = 4 * 6
    found = load.sample().values
    assert found == {"acknowledged": 6, "lost": 2, "twice": 1, "went_back": 1}


@pytest.mark.parametrize("wrong", [message(6, 1), message(1, 1, "00000001x"), b"\x30" + message(1, 1)[1:]])
def test_what_nobody_sent_fails_the_run(outage, wrong):
    with pytest.raises(LoadFailed):
        outage(6).deliver(Heard(wrong))


def test_a_ratio_to_nothing_is_none():
    assert pairwise([1.0, 2.0], [0.0, 4.0]) == [0.5]


def test_settings_of_both_sides_keep_what_they_are_told_to_keep(tmp_path):
    ports = PairPorts(1, 2, (3, 4))
    sending, receiving = edgebroker().commands(ports, tmp_path, StoragePolicy(on_disk=True, is_bounded=True))
    assert "--memory" not in sending + receiving
    assert "--memory" in edgebroker().commands(ports, tmp_path, StoragePolicy(on_disk=False, is_bounded=True))[1]


def test_every_workload_and_target_is_documented():
    documented = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert len(set(NAMES)) == len(NAMES)
    for workload in WORKLOADS:
        assert f"| `{workload.name}` |" in documented
        for measure in workload.measures:
            assert measure.target is None or str(measure.target) in documented, measure
