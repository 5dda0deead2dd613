"""P10: the same seed is the same run, bit for bit. And in every run the promises hold."""

from __future__ import annotations

import subprocess
import sys

import pytest

from edgelab.simworld.workload import Workload, WorkloadOutcome

ACTIONS = 150
RUNS = 100
PARTS = 4


def run(seed: int, actions: int = ACTIONS) -> WorkloadOutcome:
    return Workload(seed).run(actions)


@pytest.mark.parametrize("number", range(5))
def test_the_same_seed_is_the_same_run(seed: int, number: int) -> None:
    first, second = run(seed + number), run(seed + number)
    assert first == second
    assert first.said > ACTIONS


def test_another_seed_is_another_run(seed: int) -> None:
    assert run(seed).digest != run(seed + 1).digest


def test_a_run_does_not_depend_on_the_process(seed: int) -> None:
    """Nor, therefore, on the hash seed of strings, on which the order of sets depends."""
    script = f"from edgelab.simworld.workload import Workload; print(Workload({seed}).run({ACTIONS}).digest)"
    paths = [path for path in sys.path if path]
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(paths)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert digests == {run(seed).digest}


@pytest.mark.parametrize("part", range(PARTS))
def test_the_promises_hold_on_bad_lines(seed: int, part: int) -> None:
    for number in range(part, RUNS, PARTS):
        outcome = run(seed + number)
        assert not outcome.broken, "\n".join(
            [
                f"from edgelab.simworld.workload import Workload; Workload({outcome.seed}).run({ACTIONS})",
                *outcome.broken[:20],
            ]
        )
        assert outcome.heard > 0
