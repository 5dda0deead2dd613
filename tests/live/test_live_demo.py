"""The demo on real processes: it succeeds with every message accounted for, and leaves nothing behind when it fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

psutil = pytest.importorskip("psutil", reason="the demo needs the extra [sim]")
for package, extra in (("paho.mqtt", "sim"), ("pyspark", "analytics"), ("pyarrow", "analytics")):
    pytest.importorskip(package, reason=f"the demo needs the extra [{extra}]")

pytestmark = [pytest.mark.live, pytest.mark.slow]
END_S_MAX = 60


@contextmanager
def demo(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """`edgebroker demo`, ended with everything it has started when the block is left."""
    command = [sys.executable, "-m", "edgebroker", "demo", "--dir", str(folder), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    started = psutil.Process(process.pid)
    try:
        yield process
    finally:
        family = [*started.children(recursive=True), started] if started.is_running() else []
        for member in family:
            member.kill()
        process.communicate()


def family_once_publishing(process: subprocess.Popen[str]) -> dict[str, psutil.Process]:
    """The demo's children by the module they run, once messages flow."""
    assert process.stderr is not None
    for line in process.stderr:
        if "published" in line and "published 0 " not in line:
            break
    children = psutil.Process(process.pid).children(recursive=True)
    return {next(word for word in ("run", "fleet", "host") if word in child.cmdline()): child for child in children}


def test_every_message_is_accounted_for(tmp_path: Path) -> None:
    with demo(
        tmp_path / "out", "--seconds", "3", "--devices", "12", "--rate", "10", "--seed", "2", "--json"
    ) as process:
        stdout, stderr = process.communicate()
    found = json.loads(stdout)
    assert found["problems"] == [], stderr
    assert (process.returncode, found["ok"]) == (0, True)
    assert found["published"] > 300
    assert {name: found[name] for name in ("lost", "duplicates", "wrong", "reordered")} == {
        "lost": 0,
        "duplicates": 0,
        "wrong": 0,
        "reordered": 0,
    }
    received = {one["name"]: one["received"] for one in found["subscribers"]}
    assert received["everything"] == found["published"]
    assert min(received[name] for name in ("truck-3", "host", "exactly once")) > 0
    assert found["report"]["delivered"] == found["deliveries"] == sum(received.values())
    assert "<html" in Path(found["report_path"]).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)],
    ids=["SIGINT", "SIGTERM", "SIGHUP"],
)
def test_a_signal_ends_the_demo_and_all_that_it_started(number: signal.Signals, code: int, tmp_path: Path) -> None:
    with demo(tmp_path / "out", "--seconds", "600", "--devices", "4") as process:
        family = family_once_publishing(process)
        assert set(family) == {"run", "fleet", "host"}
        process.send_signal(number)
        process.communicate(timeout=END_S_MAX)
        assert process.returncode == code
        assert not any(child.is_running() for child in family.values())


def test_a_gateway_that_dies_fails_the_demo_at_once(tmp_path: Path) -> None:
    with demo(tmp_path / "out", "--seconds", "600", "--devices", "4") as process:
        family = family_once_publishing(process)
        os.kill(family["run"].pid, signal.SIGKILL)
        _, stderr = process.communicate(timeout=END_S_MAX)
        assert process.returncode == 1
        assert "the demo failed: gateway ended with code -9" in stderr
        assert not any(child.is_running() for child in family.values())
