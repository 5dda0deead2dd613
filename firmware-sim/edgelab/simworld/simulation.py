"""Virtual time: the order of all actions is the same in every run."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import TypeAlias

from edgebroker.instants import Duration, Instant

Action: TypeAlias = Callable[[], None]
"""Executed at an instant."""
Probe: TypeAlias = Callable[[], bool]
"""Called between any two actions; returns True when it has done its work and is no longer needed."""


class Simulation:
    """The clock and the random source of one simulation.

    `now` advances only with actions. Actions at the same instant are executed in the order in which they were planned,
    so a run depends on its seed alone.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.random = Random(seed)
        """The only source of random numbers; any other one breaks repeatability."""
        self.now: Instant = 0
        self.steps = 0
        """The number of executed actions."""
        self._heap: list[tuple[Instant, int, Action]] = []
        self._planned = 0
        self._probes: list[Probe] = []

    def after(self, delay: Duration, action: Action) -> None:
        """Plan *action* for *delay* from now, which is not negative."""
        self._planned += 1
        heapq.heappush(self._heap, (self.now + delay, self._planned, action))

    def at(self, when: Instant, action: Action) -> None:
        """Plan *action* for *when*, or for now if that has passed."""
        self._planned += 1
        heapq.heappush(self._heap, (when if when > self.now else self.now, self._planned, action))

    def between(self, probe: Probe) -> None:
        """Call *probe* after each action, in the same instant, until it returns True."""
        self._probes.append(probe)

    def step(self) -> bool:
        """Execute the next action. Returns False if nothing is planned."""
        if not self._heap:
            return False
        self.now, _, action = heapq.heappop(self._heap)
        self.steps += 1
        action()
        if self._probes:
            self._run_probes()
        return True

    def _run_probes(self) -> None:
        self._probes = [probe for probe in self._probes if not probe()]

    def run_until(self, when: Instant) -> None:
        """Execute all actions up to and at *when*, and set the clock to *when*."""
        heap = self._heap
        while heap and heap[0][0] <= when:
            self.now, _, action = heapq.heappop(heap)
            self.steps += 1
            action()
            if self._probes:
                self._run_probes()
        self.now = max(self.now, when)

    def run_while(self, condition: Callable[[], bool]) -> None:
        """Execute actions as long as *condition* is true and something is planned."""
        while condition() and self.step():
            pass
