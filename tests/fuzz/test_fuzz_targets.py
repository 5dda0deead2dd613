"""Every reader of bytes, by the frame in tests/fuzz/frame: any bytes are taken or refused, at a bounded price.

EDGEBROKER_FUZZ_SECONDS=120 gives each kind of target two minutes.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import pytest

from tests.fuzz.frame import bounds
from tests.fuzz.frame.bounds import cost_of, costs_of
from tests.fuzz.frame.budget import per_kind, spent
from tests.fuzz.frame.finding import LOOK_S, TooSlow, finding_of, shrunk
from tests.fuzz.frame.run import Report, cost_us, run, steps_us
from tests.fuzz.frame.target import Target
from tests.fuzz.frame.yardstick import PC_US
from tests.fuzz.targets import KINDS, TARGETS, kind_of, share_of

SECONDS = 5.0
"""For each target."""
SECONDS_PER_KIND = float(os.environ.get("EDGEBROKER_FUZZ_SECONDS", "0"))
"""Instead, for all targets of a kind together; others get a part of it."""
BRIEF = 300
"""Inputs in the runs that are not about time: the seeds and some more."""
GENEROUS = 10
"""Machines are slow and busy; an input that costs the square of its size is found all the same."""
CALM = 5
"""So often an input that took longer is tried again: whoever shares a core's caches shows in processor time too."""


def judge(report: Report) -> None:
    print(report)
    if report.finding is not None:
        pytest.fail(str(shrunk(report.finding)), pytrace=False)


@pytest.mark.parametrize("name", TARGETS)
def test_some_bytes_are_taken_or_refused(name: str, seed: int) -> None:
    """The quick suite's share."""
    judge(run(TARGETS[name], seed, inputs=BRIEF))


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_are_taken_or_refused(name: str, seed: int, record_property: Callable[[str, object], None]) -> None:
    report = run(TARGETS[name], seed, seconds=share_of(name, SECONDS_PER_KIND) if SECONDS_PER_KIND else SECONDS)
    record_property("fuzzed", [kind_of(name), report.inputs, report.seconds, int(report.finding is not None)])
    judge(report)
    assert report.inputs > len(TARGETS[name].seeds)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TARGETS if TARGETS[name].bombs])
def test_no_input_of_64_kib_costs_much(name: str) -> None:
    target = TARGETS[name]
    print(f"{sys.executable} -m tests.fuzz.frame {name} --bounds")
    for cost in costs_of(target, repetitions=1):  # it is tried again if it is too much
        print(cost)
        assert cost.mib <= target.bound_mib, cost
        assert not cost.has_too_many_lines, cost
        for _ in range(CALM):
            if cost.here_ms <= GENEROUS * target.bound_ms:
                break
            cost = cost_of(target, cost.bomb, 3)
        assert cost.here_ms <= GENEROUS * target.bound_ms, cost


def test_only_files_of_the_operator_may_cost_what_they_like() -> None:
    without = {"settings", "topology", "mosquitto-conf", "password-file", "acl-file", "key-file"}
    assert {name for name in TARGETS if not TARGETS[name].bombs} == without


def test_every_target_of_a_kind_exists() -> None:
    named = [name for names in KINDS.values() for name in names]
    assert len(named) == len(set(named))
    assert set(named) < set(TARGETS)
    assert sum(share_of(name, 120.0) for name in named) == pytest.approx(120.0 * (len(KINDS) - 1) + 20.0)
    assert all(share_of(name, 120.0) == 3.0 for name in TARGETS if name not in named)


# -- the frame itself --------------------------------------------------------------------------------------------------


def broken(data: bytes) -> None:
    """A reader with a fault behind two doors, which guidance opens one after the other."""
    if not data.startswith(b"ab"):
        raise ValueError
    if data[2:3] == b"c":
        if len(data) > 8 and data[6] == 0xFF:
            raise KeyError("the fault")
        raise ValueError


def endless(data: bytes) -> None:
    while data[:1] == b"!":
        pass


BROKEN = Target("broken", broken, (b"ab",), (ValueError,), (b"c",))


def test_a_fault_is_found_and_made_small(seed: int) -> None:
    report = run(BROKEN, seed, inputs=200_000)
    assert report.finding is not None
    assert isinstance(report.finding.error, KeyError)
    small = shrunk(report.finding)
    assert len(small.data) == 9
    assert small.data.startswith(b"abc")
    assert f"tests.fuzz.frame broken --repeat {small.data.hex()}" in str(small)


def test_the_same_seed_gives_the_same_inputs(seed: int) -> None:
    def inputs(seed: int) -> list[bytes]:
        seen: list[bytes] = []
        run(Target("seen", seen.append, (b"abc", b"xyz"), words=(b"w",)), seed, inputs=500)
        return [data for data, _ in groupby(seen)]  # what is measured or traced is read again at once

    assert inputs(seed) == inputs(seed)
    assert inputs(seed) != inputs(seed + 1)


def test_an_input_that_takes_no_end_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.frame.finding.LOOK_S", LOOK_S / 20)
    finding = finding_of(Target("endless", endless, (b"!",)), b"!")
    assert finding is not None
    assert isinstance(finding.error, TooSlow)
    assert finding_of(Target("endless", endless, ()), b"?") is None


def test_the_longest_step_is_what_counts() -> None:
    """What is done in steps, between which others come, is not added up; what comes before the first is no cost."""

    def steps(data: bytes) -> Iterator[None]:
        sum(range(1_000_000))
        for size in data:
            yield
            sum(range(10_000 * size))
        if not data:
            raise ValueError

    stepping = Target("stepping", len, (b"x",), (ValueError,), steps=steps)
    once, twice, more = (steps_us(stepping, data, 5) for data in (b"\x01", b"\x01\x01", b"\x01\x08\x01"))
    assert [len(found) for found in (once, twice, more)] == [1, 2, 3]
    assert max(more) == more[1] > 2 * more[0]
    assert cost_us(stepping, b"", 1) == 0


def test_lines_are_counted_of_the_longest_step() -> None:
    """The same number each time, and too many are over the bound however quick the machine is."""

    def steps(data: bytes) -> Iterator[None]:
        for size in data:
            yield
            for _ in range(1_000 * size):
                pass

    bombs = {"few": lambda: b"\x01\x02\x01", "many": lambda: b"\x01\x20"}
    stepping = Target("stepping", len, (b"x",), bombs=bombs, steps=steps, bound_ms=0.1)
    few, many = (cost_of(stepping, bomb, 1) for bomb in bombs)
    assert 4_000 <= few.lines == cost_of(stepping, "few", 1).lines <= 4_010
    assert not few.has_too_many_lines
    assert many.has_too_many_lines
    assert many.is_over


@pytest.mark.parametrize("slow", [1.0, 2.5])
def test_a_slow_machine_has_the_figures_of_a_pc(slow: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the yardstick takes longer, so does everything else."""
    monkeypatch.setattr(bounds, "laid_us", lambda: PC_US * slow)
    monkeypatch.setattr(bounds, "steps_us", lambda *_: [4_000 * slow, 6_000 * slow])
    cost = cost_of(Target("two steps", len, (b"x",), bombs={"one": lambda: b"x"}), "one")
    assert (cost.ms, cost.all_ms, cost.is_over) == (pytest.approx(6), pytest.approx(10), False)
    assert cost.here_ms == pytest.approx(6 * slow)
    monkeypatch.setattr(bounds, "laid_us", lambda: PC_US * slow / 2)
    assert cost_of(cost.target, "one").is_over


def test_a_budget_ends_whatever_its_processes_do(seed: int) -> None:
    """A fault, a process that dies and one that does not end are told, each with a command, and others have a share."""
    faulty = Target("faulty", lambda data: {b"abc": 1}[data], (b"xyz",))
    dying = Target("dying", lambda data: os._exit(7), (b"",))
    hanging = Target("hanging", lambda data: time.sleep(600), (b"",))  # takes no processor time, so nobody looks
    shares = [(target, 0.3) for target in (faulty, dying, hanging, Target("sound", len, (b"abc",)))]
    outcomes = {outcome.report.name: outcome for outcome in spent(shares, 0.3, len(shares), seed, grace=1.0)}
    assert not outcomes["sound"].told
    assert outcomes["sound"].report.inputs > 1
    assert "KeyError: b''" in outcomes["faulty"].told
    assert "-m tests.fuzz.frame faulty --repeat -" in outcomes["faulty"].told
    assert "ended with 7" in outcomes["dying"].told
    assert "did not end in time" in outcomes["hanging"].told
    assert f"-m tests.fuzz.frame hanging --seconds 600 --seed {seed}" in outcomes["hanging"].told


def test_a_budget_is_shared_among_kinds() -> None:
    def given(seconds: float, most: float = 120.0) -> tuple[float, float]:
        each = per_kind(list(TARGETS), seconds, most, share_of)
        return each, sum(share_of(name, each) for name in TARGETS)

    others = len(TARGETS) - sum(len(names) for names in KINDS.values())
    assert given(200.0) == (pytest.approx(200.0 / (len(KINDS) - 1 + 1 / 6 + others / 40)), pytest.approx(200.0))
    assert given(800.0)[1] == pytest.approx(800.0)
    assert given(9_999.0) == (pytest.approx(120.0), pytest.approx(120.0 * (len(KINDS) - 1) + 20.0 + 3.0 * others))
    assert given(0.0)[0] == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ("traceparent --inputs 50", 0, "traceparent "),
        ("proxy --repeat 50524f5859", 0, "nothing is wrong"),
        ("traceparent --inputs 20 --json", 0, '"inputs": 20'),
        ("traceparent proxy --budget 0.2 --jobs 2 --seed 7", 0, "all others "),
        ("nosuch", 2, "there is no target nosuch"),
    ],
)
def test_the_command(arguments: str, code: int, told: str, root: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz.frame", *shlex.split(arguments)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    assert told in done.stdout + done.stderr
