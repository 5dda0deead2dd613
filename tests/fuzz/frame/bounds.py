"""What inputs of 64 KiB cost that are made to cost much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .run import peak_bytes, steps_us
from .target import Target

REPETITIONS = 3


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one bomb: processor time of its longest step, of all steps, and memory."""

    target: Target
    bomb: str
    size: int
    ms: float
    steps: int
    all_ms: float
    mib: float

    def __str__(self) -> str:
        over = "  over" if self.ms > self.target.bound_ms or self.mib > self.target.bound_mib else ""
        steps = f"  {self.steps} steps, {self.all_ms:,.0f} ms" if self.steps > 1 else ""
        cost = f"{self.ms:>8.2f} ms {self.mib:>6.2f} MiB{over}{steps}"
        return f"{self.target.name:<18} {self.bomb:<44} {self.size:>7,} {cost}"


def costs_of(target: Target, repetitions: int = REPETITIONS) -> Iterator[Cost]:
    """Each bomb of *target* once."""
    for bomb in target.bombs:
        yield cost_of(target, bomb, repetitions)


def cost_of(target: Target, bomb: str, repetitions: int = REPETITIONS) -> Cost:
    """That of *bomb*: the memory of one reading, and the least time of several."""
    data = target.bombs[bomb]()
    steps_ms = [step / 1_000 for step in steps_us(target, data, repetitions)]
    peak = peak_bytes(target, data) / 2**20
    return Cost(target, bomb, len(data), max(steps_ms), len(steps_ms), sum(steps_ms), peak)
