"""Durations of many calls in nanoseconds, with their median and quantiles."""

from __future__ import annotations

import contextlib
import gc
from array import array
from collections.abc import Iterator
from math import ceil
from time import perf_counter_ns

NS_PER_US = 1_000


class Durations:
    """Nanoseconds per call, eight bytes each, so that a million of them can be kept."""

    def __init__(self) -> None:
        self.ns = array("q")

    def __len__(self) -> int:
        return len(self.ns)

    def median_us(self) -> float:
        """Returns the median in us. Raises ValueError if there are no durations."""
        return self.quantile_us(0.5)

    def p99_us(self) -> float:
        """Returns the 99th percentile in us. Raises ValueError if there are no durations."""
        return self.quantile_us(0.99)

    def quantile_us(self, share: float) -> float:
        """Returns the shortest duration that at least *share* of all do not exceed, in us (nearest rank)."""
        if not self.ns:
            raise ValueError("no durations")
        return sorted(self.ns)[max(0, ceil(share * len(self.ns)) - 1)] / NS_PER_US


def clock_us() -> float:
    """Returns the duration of two readings of the clock, which is part of every duration and not subtracted."""
    durations = Durations()
    record, clock = durations.ns.append, perf_counter_ns
    for _ in range(1_000):
        started = clock()
        record(clock() - started)
    return durations.median_us()


@contextlib.contextmanager
def garbage_collection_off() -> Iterator[None]:
    """Disables the garbage collector: its work belongs to no single call."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()
