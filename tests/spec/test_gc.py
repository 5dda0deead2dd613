"""Objects that survived a full collection are not examined again, except once in a while."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from edgebroker.runtime.process import LONG_S, THRESHOLDS, UNSEEN_MAX, GarbageCollector


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Iterator[Clock]:
    """The garbage collector is the process's: it is given back as it was."""
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    yield Clock()
    gc.callbacks[:] = callbacks
    gc.set_threshold(*thresholds)
    gc.unfreeze()
    gc.enable()


def look(collector: GarbageCollector, clock: Clock, seconds: float, generation: int = 2) -> None:
    collector.on_collection("start", {"generation": generation})
    clock.now += seconds
    collector.on_collection("stop", {"generation": generation})


def test_what_is_there_when_it_settles_is_never_looked_at(clock: Clock) -> None:
    gc.disable()
    collector = GarbageCollector(clock)
    collector.install()
    assert gc.isenabled()
    assert gc.get_threshold() == THRESHOLDS
    assert collector.on_collection in gc.callbacks
    before = gc.get_freeze_count()
    assert before > 10_000
    gc.collect()
    assert gc.get_freeze_count() == before, "the clock stands still: it was a short look"


def test_what_a_long_look_found_alive_is_out_of_sight(clock: Clock) -> None:
    gc.collect()
    collector = GarbageCollector(clock)
    queue = [[number] for number in range(5_000)]
    look(collector, clock, LONG_S / 2)
    look(collector, clock, LONG_S * 2, generation=1)
    assert gc.get_freeze_count() == 0
    look(collector, clock, LONG_S * 2)
    assert gc.get_freeze_count() >= len(queue)
    for _ in range(UNSEEN_MAX - 1):
        look(collector, clock, LONG_S * 2)
    assert gc.get_freeze_count() >= len(queue)
    look(collector, clock, LONG_S * 2)
    assert gc.get_freeze_count() == 0, "now everything is looked at once more"
    look(collector, clock, LONG_S * 2)
    assert gc.get_freeze_count() >= len(queue)
