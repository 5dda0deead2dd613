"""What inputs of 64 KiB cost that are made to cost much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from edgebroker.storage.journal import record_reader

from .run import lines_of, peak_bytes, steps_us
from .target import Target
from .yardstick import PC_US, laid_us

REPETITIONS = 8
IS_COMPILED = not str(record_reader.__file__).endswith(".py")
LINES_PER_MS = 50_000 if IS_COMPILED else 200_000
"""Lines of Python that take a millisecond, if nothing in them takes long: what `Target.bound_ms` allows. Where nothing
is compiled, kernels have lines too."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one bomb: processor time of its longest step, of all steps, memory, and lines.

    The time is what it would be on a PC (`yardstick`), however slow or busy this machine is.
    """

    target: Target
    bomb: str
    size: int
    ms: float
    here_ms: float
    """The longest step as it was measured on this machine: the least of several."""
    steps: int
    all_ms: float
    mib: float
    lines: int
    """Of Python that the longest step runs. They are the same on every machine, and nothing is in a cache yet."""

    @property
    def has_too_many_lines(self) -> bool:
        """Whether it runs more lines than the time allows that the target has."""
        return self.lines > LINES_PER_MS * self.target.bound_ms

    @property
    def is_over(self) -> bool:
        """Whether it takes more of anything than it may."""
        return self.ms > self.target.bound_ms or self.mib > self.target.bound_mib or self.has_too_many_lines

    def __str__(self) -> str:
        over = "  over" if self.is_over else ""
        steps = f"  {self.steps} steps, {self.all_ms:,.0f} ms" if self.steps > 1 else ""
        cost = f"{self.ms:>8.2f} ms {self.here_ms:>7.2f} here {self.mib:>6.2f} MiB {self.lines:>9,} lines{over}{steps}"
        return f"{self.target.name:<18} {self.bomb:<44} {self.size:>7,} {cost}"


def costs_of(target: Target, repetitions: int = REPETITIONS) -> Iterator[Cost]:
    """Each bomb of *target* once."""
    for bomb in target.bombs:
        yield cost_of(target, bomb, repetitions)


def cost_of(target: Target, bomb: str, repetitions: int = REPETITIONS) -> Cost:
    """That of *bomb*: lines and memory of the first two readings, and the time of those that come after them."""
    data = target.bombs[bomb]()
    lines = lines_of(target, data)
    peak = peak_bytes(target, data) / 2**20
    laid, runs = [laid_us()], []
    for _ in range(repetitions):
        runs.append(steps_us(target, data, 1))
        laid.append(laid_us())
    on_pc = PC_US / fmean(laid) / 1_000
    steps_ms = [fmean(step) * on_pc for step in zip(*runs, strict=False)]
    here_ms = max(min(step) for step in zip(*runs, strict=False)) / 1_000
    return Cost(target, bomb, len(data), max(steps_ms), here_ms, len(steps_ms), sum(steps_ms), peak, lines)
