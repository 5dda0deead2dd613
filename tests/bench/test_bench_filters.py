"""The benchmark of content filters runs, and notices every delivery too few or too many. Nothing looks at a speed."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

if sys.platform != "linux":
    pytest.skip("the benchmark needs /proc and pinned processes", allow_module_level=True)

from edgebroker.filters import Filter
from edgelab.bench.filters import load, report
from edgelab.bench.filters.load import RangeFilter, Readings
from edgelab.bench.job import LoadFailed, LoadJob, LoadSample
from edgelab.bench.subjects import edgebroker
from edgelab.bench.trial import Cores, running

BENCH = [sys.executable, "-m", "edgebroker", "bench", "filters", "--subscriptions", "200", "--quick"]
JOB = LoadJob("readings", shape=load.BY_CONTENT, subscriptions=200, publishers=2, rate=1_000, seconds=0.4, warmup_s=0.1)
PATIENCE_S = 60


@pytest.mark.live
@pytest.mark.slow
def test_a_short_run_gives_both_sides_and_their_ratio():
    command = [*BENCH, "--seconds", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    outcome = json.loads(done.stdout)
    assert set(outcome) == {"machine", "versions", "load", "figures"}
    assert outcome["load"]["clients"] == 2
    assert [row["name"] for row in outcome["figures"]] == [name for name, _ in report.MEASURES]
    for row in outcome["figures"]:
        assert row["failed"] is None
        assert row["ratio"] == row["by_content"] / row["by_topic"]


@pytest.fixture
def broker():
    """A job for a broker process of its own."""
    core = min(os.sched_getaffinity(0))
    with running(edgebroker(), Cores(core, core)) as started:
        yield replace(JOB, port=started.port, broker_pid=started.pid)


@pytest.mark.live
@pytest.mark.parametrize("shape", [load.BY_CONTENT, load.BY_TOPIC])
def test_both_ways_to_subscribe_bring_what_the_readings_say(broker, shape):
    values = load.run(replace(broker, shape=shape)).values
    audiences = Readings(JOB.subscriptions).audiences
    messages = range(int(JOB.rate * JOB.warmup_s), int(JOB.rate * (JOB.warmup_s + JOB.seconds)))
    assert values["messages"] == len(messages)
    assert values["deliveries"] == sum(len(audiences[number % load.DEVICES]) for number in messages)


def falsified(monkeypatch, change):
    """Let the benchmark expect something else for the reading that goes out last before the end."""
    truth = Readings.__init__

    def lie(self, *arguments):
        truth(self, *arguments)
        device = int(JOB.rate * (JOB.warmup_s + JOB.seconds)) - 1
        while not self.audiences[device]:
            device -= 1
        self.audiences[device] = change(self.audiences[device])

    monkeypatch.setattr(Readings, "__init__", lie)


@pytest.mark.live
def test_a_delivery_nobody_asked_for_fails_the_run(broker, monkeypatch):
    falsified(monkeypatch, lambda audience: audience - {min(audience)})
    with pytest.raises(LoadFailed, match=r"did not ask for it|more messages arrived"):
        load.run(broker)


@pytest.mark.live
def test_a_missing_delivery_fails_the_run(broker, monkeypatch):
    monkeypatch.setattr(load, "STALL_S", 1)  # it will not come: no need to wait five seconds for it
    falsified(monkeypatch, lambda audience: frozenset({0, 1}))
    with pytest.raises(LoadFailed, match=r"of .* deliveries are lost"):
        load.run(broker)


def test_the_readings_and_the_filters_agree_with_the_language():
    """The benchmark works out by itself who must get what; here the two are compared."""
    workload = Readings(200)
    assert len({ask.text for ask in workload.asks}) > 190
    for ask in workload.asks[:50]:
        where = ask.text.removeprefix("$filter/").removesuffix("/" + load.READINGS)
        wanted = Filter.parse(where)
        for reading in workload.by_device[:50]:
            payload = json.loads(load.payload_of(reading, 7))
            assert len(payload) == 8
            assert wanted.accepts(payload) is ask.accepts(reading)


def test_a_filter_accepts_about_one_reading_in_a_thousand():
    share = Readings(2_000).matches / 2_000 / load.DEVICES
    assert load.SELECTIVITY / 1.5 < share < load.SELECTIVITY * 1.5


def test_by_topic_every_client_has_as_many_subscriptions_and_the_same_messages():
    workload = Readings(1_000)
    for client in range(workload.clients):
        by_topic = workload.by_topic(client)
        assert len(by_topic) == len(workload.by_content(client)) == load.PER_CLIENT
        for device, audience in enumerate(workload.audiences):
            assert (load.topic_of(device) in by_topic) is (client in audience)


def test_an_ask_is_a_subscription_with_its_ranges():
    assert RangeFilter(((0, 100, 120), (6, 300, 999))).text == (
        "$filter/temperature BETWEEN 100 AND 120 AND level BETWEEN 300 AND 999/sensors/+/reading"
    )


def test_a_failed_run_has_no_figures_and_medians_are_taken_round_by_round():
    values = dict.fromkeys((key for _, key in report.MEASURES), 1.0)
    good = [LoadSample({**values, "cpu_us": cpu}) for cpu in (30.0, 20.0, 10.0)]
    peer = [LoadSample({**values, "cpu_us": cpu}) for cpu in (10.0, 10.0, 10.0)]
    row = report.rows_of("ours", good, peer)[0]
    assert (row.by_content, row.by_topic, row.ratio) == (20.0, 10.0, 2.0)
    failed = report.rows_of("ours", [*good, LoadSample(failure="lost")], peer)
    assert {(row.by_content, row.ratio, row.failed) for row in failed} == {(None, None, "lost")}
