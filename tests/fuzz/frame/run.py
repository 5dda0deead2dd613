"""One target, many inputs: a run, and its report."""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from types import FrameType
from typing import TYPE_CHECKING

from .finding import Finding, TooSlow, watched
from .guidance import Guidance
from .mutation import Mutation
from .target import Target

if TYPE_CHECKING:
    from _typeshed import TraceFunction

KEPT_MAX = 4_000
"""Inputs that others are made from."""
MEMORY_SAMPLE = 2_048
"""Of one input in so many the memory is measured, which takes five times as long as reading it."""
WARM_UP = 200
"""Inputs before the slowest is looked for: the first fill caches and import what is imported late."""


@dataclass(slots=True)
class Report:
    """What a run saw."""

    name: str
    inputs: int = 0
    taken: int = 0
    """Inputs that were not refused."""
    seconds: float = 0.0
    kept: int = 0
    spots: int = 0
    slowest_us: float = 0.0
    slowest: bytes = field(default=b"", repr=False)
    hungriest_bytes: int = 0
    finding: Finding | None = None

    def __str__(self) -> str:
        rate = self.inputs / self.seconds if self.seconds else 0
        return (
            f"{self.name:<18} {self.inputs:>11,} {rate:>9,.0f}/s {self.taken / max(1, self.inputs):>6.0%} taken "
            f"{self.kept:>6,} kept {self.spots:>6,} spots  slowest {self.slowest_us:>8,.0f} us "
            f"({len(self.slowest):,} bytes)  hungriest {self.hungriest_bytes / 1024:>7,.0f} KiB"
        )


def run(target: Target, seed: int, seconds: float | None = None, inputs: int | None = None) -> Report:
    """Give *target* inputs for *seconds*, or that many *inputs*. The inputs depend on *seed* alone."""
    assert seconds or inputs, "a run needs an end"
    report = Report(target.name)
    begun = time.perf_counter()
    ends = begun + seconds if seconds else None
    with watched(lambda: report.inputs):
        _give(target, Random(f"{seed} {target.name}"), report, ends, inputs)
    report.seconds = time.perf_counter() - begun
    return report


def _give(target: Target, chance: Random, report: Report, ends: float | None, inputs: int | None) -> None:
    guidance, mutation, kept = Guidance(), Mutation(chance, target.words), list(target.seeds)
    clock, read, refusals = time.perf_counter, target.read, target.refusals
    seeds = list(target.seeds)
    while True:
        now = clock()
        if (ends is not None and now >= ends) or (inputs is not None and report.inputs >= inputs):
            break
        report.inputs += 1
        data = seeds.pop() if seeds else _made(target, chance, mutation, kept)
        error: Exception | None = None
        begun = clock()
        try:
            read(data)
            report.taken += 1
        except refusals as refusal:
            error = refusal
        except (Exception, TooSlow) as wrong:
            report.finding = Finding(target, data, wrong, report.inputs)
            break
        took_us = (clock() - begun) * 1e6
        if took_us > report.slowest_us and report.inputs > WARM_UP:
            took_us = cost_us(target, data, 3)
            if took_us > report.slowest_us:
                report.slowest_us, report.slowest = took_us, data
        if guidance.is_new(report.inputs, read, data, error) and len(kept) < KEPT_MAX:
            kept.append(data)
        if report.inputs % MEMORY_SAMPLE == 0:
            report.hungriest_bytes = max(report.hungriest_bytes, peak_bytes(target, data))
    report.kept, report.spots = len(kept), len(guidance.reached)


def _made(target: Target, chance: Random, mutation: Mutation, kept: list[bytes]) -> bytes:
    if target.make is not None and chance.random() < 0.3:
        data = target.make(chance)
        if chance.random() < 0.5:
            return data
    else:  # what was found lately leads on more often
        data = kept[-1 - int(len(kept) * chance.random() ** 2)]
    data = mutation.changed(data, chance.choice(kept))
    if target.mend is not None and chance.random() < 0.8:
        data = target.mend(data)
    return data


def cost_us(target: Target, data: bytes, times: int) -> float:
    """Processor time in microseconds of the longest step of reading *data*: the least of *times*."""
    return max(steps_us(target, data, times), default=0.0)


def steps_us(target: Target, data: bytes, times: int) -> list[float]:
    """Processor time of each step in microseconds: the least of *times*, so that others do not count."""
    runs = [_took(target, data, time.thread_time_ns) for _ in range(times)]
    return [min(step) / 1_000 for step in zip(*runs, strict=False)]


def lines_of(target: Target, data: bytes) -> int:
    """How many lines of Python the longest step of reading *data* runs: the same on every machine, however busy it is.
    What is compiled has none.
    """
    count = 0

    def counted(frame: FrameType, event: str, arg: object) -> TraceFunction:
        nonlocal count
        count += event == "line"
        return counted

    before = sys.gettrace()
    sys.settrace(counted)
    try:
        took = _took(target, data, lambda: count)
    finally:
        sys.settrace(before)
    return max(took, default=0)


def _took(target: Target, data: bytes, clock: Callable[[], int]) -> list[int]:
    """What each step took by *clock*."""
    took: list[int] = []
    steps = _stepping(target, data)
    with suppress(StopIteration, *target.refusals, *target.plain_refusals):
        next(steps)
        while True:
            begun = clock()
            try:
                next(steps)
            finally:
                took.append(clock() - begun)
    return took


def _stepping(target: Target, data: bytes) -> Iterator[object]:
    """A reader without steps does all in one."""
    if target.steps is not None:
        yield from target.steps(data)
    else:
        yield
        (target.plain or target.read)(data)


def peak_bytes(target: Target, data: bytes) -> int:
    """The memory that reading *data* takes beyond what was there before, at its peak."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        _took(target, data, time.perf_counter_ns)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
