"""Subscriptions change while events arrive: the waiting times of events, for a load of ranges and readings."""

from __future__ import annotations

import gc
import heapq
import random
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from time import perf_counter_ns, thread_time_ns

from edgebroker.cli.call_durations import Durations
from edgebroker.filters import Filter
from edgebroker.matching.ends import Resolution
from edgebroker.matching.pst import Pst
from edgebroker.topics import TopicFilter

ATTRIBUTES = ("temperature", "humidity", "pressure", "co2", "light", "vibration", "voltage", "noise")
"""What every reading has, each uniform in 0..DOMAIN. The first is the most popular with subscribers."""

DOMAIN = 100.0
TESTED = (3, 4, 5)
"""Attributes a filter tests, equally often: of eight it leaves 37 to 62 % open."""

HOT_SPOTS = 100
"""Places that ranges lie around, popular by Zipf's law: the limits that people know and set again and again."""

SPREAD = 0.3
"""A range may be so much wider or narrower than the selectivity asks for. It is so on average."""

RANGE_SHARE = 0.6
"""Of all tests are BETWEEN; the others are `<` and `>`, half each."""


class RangeLoad:
    """Filters and readings, endless and always the same for one seed.

    A range has the width w in a filter with k tests such that w^k is the selectivity; it never reaches beyond the
    domain. So a reading matches `selectivity` of all filters on average, whatever the popular places are.
    """

    def __init__(self, seed: int, selectivity: float) -> None:
        self._filters = random.Random(f"{seed} filters")
        self._readings = random.Random(f"{seed} readings")
        self._selectivity = selectivity
        self._popular = list(range(HOT_SPOTS))
        self._filters.shuffle(self._popular)
        self._popularity = list(accumulate(1 / rank for rank in range(1, HOT_SPOTS + 1)))

    def where(self) -> str:
        """The next content filter."""
        chance = self._filters
        count = chance.choice(TESTED)
        width = self._selectivity ** (1 / count)
        return " AND ".join(self._test(name, width) for name in self._names(count))

    def reading(self) -> dict[str, float]:
        """The next payload."""
        return {name: round(self._readings.uniform(0, DOMAIN), 2) for name in ATTRIBUTES}

    def _names(self, count: int) -> list[str]:
        """*count* attributes by popularity: the weight of the n-th is 1/n, and nobody names one twice."""
        weights = {name: 1 / rank for rank, name in enumerate(ATTRIBUTES, 1)}
        chosen = []
        for _ in range(count):
            [name] = self._filters.choices(list(weights), list(weights.values()))
            del weights[name]
            chosen.append(name)
        return sorted(chosen, key=ATTRIBUTES.index)

    def _test(self, name: str, width: float) -> str:
        chance = self._filters
        width *= chance.uniform(1 - SPREAD, 1 + SPREAD)
        if chance.random() >= RANGE_SHARE:
            return chance.choice((f"{name} < {DOMAIN * width:.2f}", f"{name} > {DOMAIN * (1 - width):.2f}"))
        [spot] = chance.choices(self._popular, cum_weights=self._popularity)
        low = DOMAIN * (1 - width) * (spot + chance.random()) / HOT_SPOTS
        return f"{name} BETWEEN {low:.2f} AND {low + DOMAIN * width:.2f}"


NS_PER_S = 1_000_000_000
TOPIC = "iot/readings"


@dataclass(frozen=True, slots=True)
class ChurnPlan:
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


class ServiceQueue:
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
class ChurnTrial:
    """A tree under churn, and everything that was measured on it."""

    plan: ChurnPlan
    tree: Pst
    wall: ServiceQueue = field(default_factory=ServiceQueue)
    processor: ServiceQueue = field(default_factory=ServiceQueue)
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


def arrivals(plan: ChurnPlan, chance: random.Random) -> Iterator[tuple[int, bool]]:
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
