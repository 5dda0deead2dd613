"""How fast the machine is just now.

Who shares a core with others is up to 2.2 times as slow, in processor time too, and changes speed every millisecond. So
a cost is told in yardsticks, laid beside what is measured, and a yardstick in what it takes on a PC.
"""

from __future__ import annotations

import time
from statistics import fmean

ROUNDS = 500
PC_US = 40.0
"""Chosen, not measured: where this took 57 us at best, the hardest inputs of seven kinds took 1.36 to 1.56 times what
docs/fuzzing.md had recorded of another machine. The quickest measured is 48 us, and 105 beside a neighbour."""
LAID = 8
"""Yardsticks at a time: half a millisecond."""


def laid_us() -> float:
    """Processor time of a yardstick in microseconds, here and now."""
    return fmean(_once_us() for _ in range(LAID))


def _once_us() -> float:
    begun = time.thread_time_ns()
    kept: dict[int, tuple[int, int]] = {}
    total = 0
    for number in range(ROUNDS):
        kept[number & 63] = (number, total)
        total += len(kept)
    return (time.thread_time_ns() - begun) / 1_000
