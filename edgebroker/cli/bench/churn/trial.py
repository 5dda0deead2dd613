"""Subscriptions come and go while events arrive: who waits for whom, and how long.

Arrivals are drawn on a clock of their own and served in their order by one thread, as in the broker's event loop. How
long each takes is measured on the real clock as it is served; the idle time between is skipped. So ten seconds of load
take a second, and the waiting times are those of a queue with these arrivals and these durations.

Everything is measured twice: by the wall clock, which counts what other programs on the core took, and in processor
time of this thread, which does not.
"""

from __future__ import annotations

import gc
import heapq
import random
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import perf_counter_ns, thread_time_ns

from edgebroker.filters import Filter
from edgebroker.matching.ends import Resolution
from edgebroker.matching.pst import Pst
from edgebroker.topics import TopicFilter

from ..match.durations import Durations
from .load import RangeLoad

NS_PER_S = 1_000_000_000
TOPIC = "iot/readings"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is installed, and what then happens per second."""

    subscriptions: int = 100_000
    changes_per_s: int = 1_000
    events_per_s: int = 2_000
    seconds: float = 10
    leaving: int = 10_000
    """Subscriptions of the client that leaves at the end, all at once."""
    links: int = 8
    selectivity: float = 0.001
    seed: int = 1


class Queue:
    """One thread that serves in the order of arrival, by one of the two clocks."""

    def __init__(self) -> None:
        self.waits = array("q")
        """How long each event waited, in ns."""
        self.holds = array("q")
        """How long each change held the thread, in ns."""
        self.busy_ns = 0
        self._free_at = 0

    def serve(self, at: int, spent: int, is_event: bool) -> None:
        """Enter that what arrived at *at* was served in *spent* ns."""
        begins = max(at, self._free_at)
        self._free_at = begins + spent
        self.busy_ns += spent
        if is_event:
            self.waits.append(begins - at)
        else:
            self.holds.append(spent)


@dataclass(slots=True)
class Trial:
    """A tree under churn, and everything that was measured on it."""

    plan: Plan
    tree: Pst
    wall: Queue = field(default_factory=Queue)
    processor: Queue = field(default_factory=Queue)
    parsing: Durations = field(default_factory=Durations)
    inserting: Durations = field(default_factory=Durations)
    removing: Durations = field(default_factory=Durations)
    matching: Durations = field(default_factory=Durations)
    matches: int = 0
    longest_collection_ns: int = 0
    left: int = 0
    """Subscriptions of the client that left: fewer than planned if there were no more."""
    leave_ns: int = 0
    leave_processor_ns: int = 0
    _numbers: list[int] = field(default_factory=list)  # who is in the tree, in no order
    _last_number: int = 0
    _known: dict[str, Resolution] = field(default_factory=dict)

    def run(self, tell: Callable[[str], None]) -> None:
        """Install, churn, and let one client leave. *tell* hears what is going on.

        The garbage collector runs as in a gateway: what was there before the first subscription is left alone.
        """
        load = RangeLoad(self.plan.seed, self.plan.selectivity)
        chance = random.Random(f"{self.plan.seed} churn")
        gc.collect()
        gc.freeze()
        try:
            for count in range(self.plan.subscriptions):
                if count % 1_000 == 0:
                    tell(f"installing: {count:,} of {self.plan.subscriptions:,}")
                self._subscribe(load.where())
            self.parsing, self.inserting = Durations(), Durations()  # from here on the tree is full
            tell("churning")
            gc.callbacks.append(watch := self._collection_watch())
            try:
                self._churn(load, chance)
            finally:
                gc.callbacks.remove(watch)
            tell("leaving")
            self._leave(chance)
        finally:
            gc.unfreeze()

    def _churn(self, load: RangeLoad, chance: random.Random) -> None:
        for at, is_event in arrivals(self.plan, chance):
            if is_event:
                attributes = load.reading()
                processor, began = thread_time_ns(), perf_counter_ns()
                self._match(attributes)
            elif not self._numbers or chance.random() < 0.5:
                where = load.where()
                processor, began = thread_time_ns(), perf_counter_ns()
                self._subscribe(where)
            else:
                number = self._drawn(chance)
                processor, began = thread_time_ns(), perf_counter_ns()
                self._unsubscribe(number)
            self.wall.serve(at, perf_counter_ns() - began, is_event)
            self.processor.serve(at, thread_time_ns() - processor, is_event)

    def _leave(self, chance: random.Random) -> None:
        leaving = [self._drawn(chance) for _ in range(min(self.plan.leaving, len(self._numbers)))]
        self.left = len(leaving)
        processor, began = thread_time_ns(), perf_counter_ns()
        for number in leaving:
            self.tree.remove(number)
        self.leave_ns = perf_counter_ns() - began
        self.leave_processor_ns = thread_time_ns() - processor

    def _subscribe(self, where: str) -> None:
        """All that a subscription costs: its filter is read, and the tree changed."""
        self._last_number += 1
        began = perf_counter_ns()
        topic_filter, predicates = TopicFilter.parse(TOPIC), Filter.parse(where).predicates
        parsed = perf_counter_ns()
        self.tree.insert(self._last_number, topic_filter, predicates, self._last_number % self.plan.links)
        inserted = perf_counter_ns()
        self.parsing.ns.append(parsed - began)
        self.inserting.ns.append(inserted - parsed)
        self._numbers.append(self._last_number)

    def _unsubscribe(self, number: int) -> None:
        began = perf_counter_ns()
        self.tree.remove(number)
        self.removing.ns.append(perf_counter_ns() - began)

    def _match(self, attributes: Mapping[str, float]) -> None:
        """As the broker does: what the topic means is resolved again when a change has made it stale."""
        began = perf_counter_ns()
        route = self._known.get(TOPIC)
        if route is None or route.epoch != self.tree.epoch:
            route = self._known[TOPIC] = self.tree.resolve(TOPIC)
        found = self.tree.match(route, attributes)
        self.matching.ns.append(perf_counter_ns() - began)
        self.matches += len(found)

    def _drawn(self, chance: random.Random) -> int:
        """Take out a random subscription, the last one filling its place."""
        place = chance.randrange(len(self._numbers))
        last = self._numbers.pop()
        if place == len(self._numbers):
            return last
        number, self._numbers[place] = self._numbers[place], last
        return number

    def _collection_watch(self) -> Callable[[str, Mapping[str, int]], None]:
        began = 0

        def watch(phase: str, _: Mapping[str, int]) -> None:
            nonlocal began
            if phase == "start":
                began = perf_counter_ns()
            else:
                self.longest_collection_ns = max(self.longest_collection_ns, perf_counter_ns() - began)

        return watch


def arrivals(plan: Plan, chance: random.Random) -> Iterator[tuple[int, bool]]:
    """When what arrives, in ns, and whether it is an event: two Poisson processes, in order."""
    changes = ((at, False) for at in poisson(plan.changes_per_s, plan.seconds, random.Random(chance.random())))
    events = ((at, True) for at in poisson(plan.events_per_s, plan.seconds, random.Random(chance.random())))
    return heapq.merge(changes, events)


def poisson(per_s: float, seconds: float, chance: random.Random) -> Iterator[int]:
    """Random times between 0 and *seconds*, in ns, at *per_s* a second on average."""
    at = chance.expovariate(per_s)
    while at < seconds:
        yield int(at * NS_PER_S)
        at += chance.expovariate(per_s)
