"""The workload generators: the same files for the same options, and about as many matches as they are made for."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgelab.bench import command

GENERATE = Path(__file__).with_name("generate.py")

# what is generated, and between which bounds the matches per event must lie
WORKLOADS = {
    "gryphon-10": (["gryphon", "--subscriptions=1000"], 29.2 * 0.8, 29.2 * 1.25),
    "gryphon-15": (["gryphon", "--attributes=15", "--subscriptions=1000"], 2.9 * 0.7, 2.9 * 1.4),
    "iot-0.1%": (["iot", "--subscriptions=1000"], 1 * 0.6, 1 * 1.5),
    "iot-1%": (["iot", "--selectivity=0.01", "--subscriptions=1000"], 10 * 0.75, 10 * 1.3),
    "stocks": (["stocks", "--subscriptions=1000"], 24.5 * 0.8, 24.5 * 1.2),
    "topics": (["topics", "--subscriptions=1000"], 2, 10),
}


def generate(out, *options):
    done = subprocess.run([sys.executable, str(GENERATE), *options, f"--out={out}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return (out / "S.jsonl").read_bytes(), (out / "E.jsonl").read_bytes()


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_matches_as_often_as_it_is_made_for(tmp_path, name):
    options, least, most = WORKLOADS[name]
    generate(tmp_path, *options, "--events=60", "--seed=3")
    files = [f"--subscriptions={tmp_path / 'S.jsonl'}", f"--events={tmp_path / 'E.jsonl'}"]
    done = CliRunner().invoke(command, ["match", *files, "--rounds=1", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["subscriptions"], found["events"]) == (1_000, 60)
    assert least < found["matches_per_event"] < most


@pytest.mark.parametrize("workload", ["gryphon", "iot", "stocks", "topics"])
def test_the_seed_decides_everything(tmp_path, workload):
    options = [workload, "--subscriptions=200", "--events=20"]
    first, again = (generate(tmp_path / name, *options, "--seed=7") for name in ("first", "again"))
    other = generate(tmp_path / "other", *options, "--seed=8")
    assert first == again
    assert first[0] != other[0]
    assert first[1] != other[1]


def test_more_events_do_not_change_the_subscriptions(tmp_path):
    few, many = (generate(tmp_path / count, "topics", f"--events={count}") for count in ("10", "20"))
    assert few[0] == many[0]
    assert many[1].startswith(few[1])
