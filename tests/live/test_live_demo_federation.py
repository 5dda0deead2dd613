"""The demo of nine gateways: an uplink is squeezed, a gateway is killed, and the audit holds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

psutil = pytest.importorskip("psutil", reason="the demo needs the extra [sim]")
pytest.importorskip("paho.mqtt", reason="the demo needs the extra [sim]")

pytestmark = [pytest.mark.live, pytest.mark.slow]
END_S_MAX = 180


def test_nine_gateways_lose_nothing_when_one_is_killed(tmp_path: Path) -> None:
    options = ("--sites", "3", "--gateways", "3", "--seconds", "6", "--devices", "18", "--json")
    command = [sys.executable, "-m", "edgebroker", "demo", *options, "--dir", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=END_S_MAX, check=False)
    found = json.loads(ended.stdout)
    assert found["problems"] == [], ended.stderr
    assert (ended.returncode, found["ok"], found["gateways"]) == (0, True, 9)
    assert {name: found[name] for name in ("lost", "duplicates", "wrong", "reordered")} == {
        "lost": 0,
        "duplicates": 0,
        "wrong": 0,
        "reordered": 0,
    }
    assert found["published"] > 500
    assert found["handed_over"] > 0
    assert found["runs"] == {"whole": 9, "cut_short": 1}, "the killed gateway has a second run"
    for uplink in found["uplinks"]:
        assert uplink["by_topic"]["bytes"] < uplink["flooding"]["bytes"]
        assert 0 < uplink["bytes"] < uplink["flooding"]["bytes"]
        assert 0 < uplink["share_until_the_kill"] < 1
        assert uplink["wanted"]["events"] < uplink["by_topic"]["events"] / 5
    placement = found["placement"]
    assert (placement["lost"], placement["target"]) == (0, placement["reader"])
    assert placement["load"] == {"before": 4.0, "predicted": 1.0}
    assert placement["after"]["uplink_bytes_per_minute"] < placement["before"]["uplink_bytes_per_minute"]
    assert placement["published"] > 100
    cold = next(one for one in found["subscribers"] if one["name"] == "cold")
    assert cold["received"] > 0
    assert not [one for one in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(one.info["cmdline"] or [])]
