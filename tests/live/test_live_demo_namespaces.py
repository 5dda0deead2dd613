"""The demo in network namespaces, on this machine's kernel: all of it, and what is left when it is interrupted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("paho.mqtt", reason="the demo needs the extra [sim]")

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0 or not all(map(shutil.which, ("ip", "tc"))),
        reason="namespaces are made by root on Linux, with ip and tc (iproute2)",
    ),
]
END_S_MAX = 120


def command(folder: Path, *options: str) -> list[str]:
    sites = ("--sites", "2", "--gateways", "1", "--netns", "--devices", "8", "--dir", str(folder))
    return [sys.executable, "-m", "edgebroker", "demo", *sites, *options]


def left_by(pid: int) -> list[str]:
    return [name for name in os.listdir("/run/netns") if name.startswith(f"edgebroker-{pid}-")]


def test_two_gateways_in_namespaces_lose_nothing_and_the_kernel_agrees_with_them(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        command(tmp_path, "--seconds", "2", "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    out, said = demo.communicate(timeout=END_S_MAX)
    if demo.returncode == 2 and "does not work on this machine" in said:
        pytest.skip(said.strip())
    found = json.loads(out)
    assert (demo.returncode, found["problems"]) == (0, []), said
    assert [found[name] for name in ("lost", "duplicates", "wrong", "reordered")] == [0, 0, 0, 0]
    assert any("was cut for" in event for event in found["events"])
    assert (found["network"]["kind"], found["network"]["rate_by"]) == ("namespaces", "tbf")
    for counted in found["received"].values():
        assert 0 < counted["said_bytes"] < counted["bytes"]
    assert not left_by(demo.pid)


def test_nothing_is_left_of_a_demo_that_is_told_to_end(tmp_path: Path) -> None:
    demo = subprocess.Popen(command(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert demo.stderr is not None
    first = demo.stderr.readline()
    if "does not work on this machine" in first:
        pytest.skip(first.strip())
    assert "joined by 1 uplinks" in first
    assert len(left_by(demo.pid)) == 3
    demo.send_signal(signal.SIGTERM)
    demo.stderr.read()
    assert demo.wait(END_S_MAX) == 128 + signal.SIGTERM
    assert not left_by(demo.pid)
