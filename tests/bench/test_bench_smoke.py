"""The MQTT benchmark runs, says what it should, and leaves nothing behind. Nothing here looks at a speed."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgelab.bench import command, subjects, trial
from edgelab.bench.job import LoadJob
from edgelab.bench.workloads import NAMES, WORKLOADS

BENCH = [sys.executable, "-m", "edgebroker", "bench", "mqtt"]
PATIENCE_S = 60

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmark needs /proc and pinned processes")


def bench(*options: str) -> dict:
    """Run the benchmark and parse its output; it must succeed."""
    done = subprocess.run([*BENCH, *options, "--json"], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


def assert_well_formed(report: dict, name: str, unit: str) -> dict:
    assert set(report) == {"machine", "versions", "workloads"}
    assert report["machine"]["cores"] >= 1
    [row] = report["workloads"]
    assert (row["name"], row["unit"], row["failed"]) == (name, unit, None)
    assert row["ours"] > 0
    return row


@pytest.mark.live
def test_quick_run_of_this_broker_gives_well_formed_json():
    report = bench("--quick", "--only", "throughput_batched", "--against", "none")
    row = assert_well_formed(report, "throughput_batched", "msg/s")
    assert report["versions"]["ours"]["name"] == "edgebroker"
    assert "peer" not in row
    assert (row["ratio"], row["met"]) == (None, None)


@pytest.mark.live
@pytest.mark.parametrize("is_refused", [True, False])
def test_clients_that_are_refused_meanwhile_disturb_no_message(is_refused, monkeypatch):
    if not is_refused:
        monkeypatch.setattr(trial, "LEVEL", 4)  # "MQTT" of 3.1.1: it is welcome, and stays
    subject = trial.among_strangers(subjects.edgebroker())
    sample = trial.measure(subject, LoadJob("paced", publishers=2, rate=100, seconds=0.3), trial.Cores(0, 0))
    if is_refused:
        assert sample.failure is None
        assert sample.values["p50_us"] > 0
    else:
        assert sample.failure == "nobody was refused, so nothing was logged"


@pytest.mark.live
@pytest.mark.parametrize(("workload", "unit"), [("qos1", "msg/s"), ("memory_idle", "MiB"), ("cpu", "us")])
def test_quick_run_of_mosquitto_gives_well_formed_json(workload, unit):
    try:
        subjects.mosquitto()
    except subjects.SubjectNotFound as missing:
        pytest.skip(str(missing))
    report = bench("--quick", "--only", workload, "--subject", "mosquitto", "--against", "none")
    assert report["workloads"][0]["unit"] == unit
    assert all(row["failed"] is None for row in report["workloads"])


def test_two_sides_give_a_ratio_by_round_and_a_verdict():
    report = bench("--quick", "--only", "throughput_single", "--subject", "relay", "--against", "relay")
    row = assert_well_formed(report, "throughput_single", "msg/s")
    assert row["ratio"] == row["ratios"][0] == row["ours"] / row["peer"]
    assert row["target"] == ">= 1.5 x peer"
    assert row["met"] is (row["ratio"] >= 1.5)


def test_the_pure_copy_is_pure_wherever_it_is_started(tmp_path):
    assert "pure Python" in subjects.pure_edgebroker(tmp_path).version
    assert not list(tmp_path.rglob("*.so"))


def test_a_missing_peer_is_one_line_and_exit_code_2(monkeypatch):
    monkeypatch.setattr(subjects.shutil, "which", lambda *_, **__: None)
    done = CliRunner().invoke(command, ["mqtt", "--subject", "relay", "--quick"])
    assert done.exit_code == 2
    assert done.output == (
        "Error: skipped: mosquitto is not installed; install the package mosquitto, or use --against none\n"
    )


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_benchmark_takes_its_children_along(ending):
    options = ["--subject", "relay", "--against", "none", "--only", "throughput_batched", "--seconds", "50"]
    with subprocess.Popen([*BENCH, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        children = wait_for_children(process.pid, count=2)  # the broker's place and the generator
        process.send_signal(ending)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0
    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []


def wait_for_children(pid: int, count: int) -> list[int]:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        if len(children) == count:
            return children
    raise AssertionError(f"the benchmark never had {count} children")


def test_every_workload_and_target_is_documented():
    documented = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert len(set(NAMES)) == len(NAMES)
    for workload in WORKLOADS:
        assert f"| `{workload.name}` |" in documented
        for measure in workload.measures:
            assert measure.target is None or str(measure.target) in documented, measure
