"""What inputs of 64 KiB cost that are made to cost much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .run import cost_us, peak_bytes
from .target import Target

REPETITIONS = 3


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one bomb: processor time and memory."""

    target: Target
    bomb: str
    size: int
    ms: float
    mib: float

    def __str__(self) -> str:
        over = "  over" if self.ms > self.target.bound_ms or self.mib > self.target.bound_mib else ""
        return f"{self.target.name:<18} {self.bomb:<44} {self.size:>7,} {self.ms:>8.2f} ms {self.mib:>6.2f} MiB{over}"


def costs_of(target: Target) -> Iterator[Cost]:
    """Each bomb of *target* once."""
    for name, make in target.bombs.items():
        data = make()
        ms = cost_us(target, data, REPETITIONS) / 1_000
        yield Cost(target, name, len(data), ms, peak_bytes(target, data) / 2**20)
