"""What is counted as held memory is what a process grows by, within 30 %, whatever a client makes us hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.memory_growth import KINDS

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_counted_is_what_is_held(kind: str) -> None:
    command = [sys.executable, "-m", "tests.support.memory_growth", kind]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=300)
    grown = json.loads(run.stdout)
    assert 0.7 < grown["held"] / grown["rss"] < 1.3, grown
