"""`edgebroker bench durable` runs, and says what it should. Nothing here looks at a speed."""

import json
import sys

import pytest
from click.testing import CliRunner

from edgelab.bench import command, subjects
from edgelab.bench.durable import trial
from edgelab.bench.durable.load import LoadOutcome

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmark needs /proc and pinned processes")


def run(*options: str) -> dict:
    done = CliRunner().invoke(command, ["durable", "--quick", "--publishers=2", "--json", *options])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.live
def test_ours_keeps_its_session_through_a_kill(tmp_path):
    [ours] = run("--against", "none", "--dir", str(tmp_path))["sides"]
    assert (ours["name"], ours["failure"], ours["values"]["kept"]) == ("edgebroker", "", 1.0)
    assert min(ours["values"][name] for name in ("rate", "p50_ms", "written", "recovery_s_per_100_mb")) > 0
    away = ("away_messages", "away_kept", "away_mib", "away_start_ms", "away_peak_mib", "away_drained")
    assert min(ours["values"][name] for name in away) > 0
    assert not list(tmp_path.iterdir())


@pytest.mark.live
def test_mosquitto_is_measured_beside_it(tmp_path):
    try:
        subjects.mosquitto()
    except subjects.SubjectNotFound as missing:
        pytest.skip(str(missing))
    sides = run("--against", "mosquitto", "--dir", str(tmp_path))["sides"]
    assert [side["name"] for side in sides] == ["edgebroker", "mosquitto"]
    assert sides[1]["values"]["rate"] > 0


def test_sqlite_commits_each_message(tmp_path):
    from edgelab.bench.durable.trial import DurablePlan, measure_sqlite

    figures = measure_sqlite(DurablePlan(None, tmp_path, seconds=0.1))
    assert figures.values["rate"] > 0
    assert not list(tmp_path.iterdir())


def test_a_folder_in_memory_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("edgelab.bench.durable.is_in_memory", lambda folder: True)
    done = CliRunner().invoke(command, ["durable", "--quick", "--dir", str(tmp_path)])
    assert done.exit_code == 2
    assert "lies in memory" in done.output


def test_the_deepest_mount_decides(monkeypatch, tmp_path):
    mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/vdb /tmp/disk ext4 rw 0 0\n"
    monkeypatch.setattr(trial.Path, "read_text", lambda self, encoding: mounts)
    found = [trial.is_in_memory(trial.Path(name)) for name in ("/var", "/tmp", "/tmp/x", "/tmp/disk/x", "/tmpx")]
    assert found == [False, True, True, False, False]


def test_quantiles_are_those_of_the_acknowledgements():
    from array import array

    outcome = LoadOutcome(100, 1.0, array("q", [n * 1_000_000 for n in range(100, 0, -1)]))
    assert (outcome.quantile_ms(0.5), outcome.quantile_ms(0.99), LoadOutcome(0, 1.0).quantile_ms(0.5)) == (51, 100, 0)
