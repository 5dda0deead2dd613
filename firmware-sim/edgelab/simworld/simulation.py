"""Virtual time: what happens when, in an order that is the same in every run."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import TypeAlias

from edgebroker.instants import Duration, Instant

Action: TypeAlias = Callable[[], None]
"""Something that happens at an instant."""
Look: TypeAlias = Callable[[], bool]
"""Looks, between any two actions, whether its time has come; then it does what it is for, and says so."""


class Simulation:
    """The clock and the chance of one simulated world.

    `now` moves only when something happens. What is due at the same instant happens in the order in which it was
    planned, so a run depends on its seed alone.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.random = Random(seed)
        """The one source of chance; whoever draws from it elsewhere breaks repeatability."""
        self.now: Instant = 0
        self.steps = 0
        """How many actions have happened."""
        self._heap: list[tuple[Instant, int, Action]] = []
        self._planned = 0
        self._looking: list[Look] = []

    def after(self, delay: Duration, action: Action) -> None:
        """Let *action* happen *delay* from now, which is not negative."""
        self._planned += 1
        heapq.heappush(self._heap, (self.now + delay, self._planned, action))

    def at(self, when: Instant, action: Action) -> None:
        """Let *action* happen at *when*, or now if that has passed."""
        self._planned += 1
        heapq.heappush(self._heap, (when if when > self.now else self.now, self._planned, action))

    def between(self, look: Look) -> None:
        """Let *look* be asked after each action, in the same instant, until it says that its time has come."""
        self._looking.append(look)

    def step(self) -> bool:
        """Let the next action happen. False if nothing is planned."""
        if not self._heap:
            return False
        self.now, _, action = heapq.heappop(self._heap)
        self.steps += 1
        action()
        if self._looking:
            self._look()
        return True

    def _look(self) -> None:
        self._looking = [look for look in self._looking if not look()]

    def run_until(self, when: Instant) -> None:
        """Let everything happen that is due up to and at *when*, then be there."""
        heap = self._heap
        while heap and heap[0][0] <= when:
            self.now, _, action = heapq.heappop(heap)
            self.steps += 1
            action()
            if self._looking:
                self._look()
        self.now = max(self.now, when)

    def run_while(self, condition: Callable[[], bool]) -> None:
        """Let things happen as long as *condition* holds and something is planned."""
        while condition() and self.step():
            pass
