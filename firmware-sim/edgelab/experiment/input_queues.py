"""The input queues of brokers on virtual time, for the experiment on network loading.

A broker handles one event after the other: it receives and matches the event, then sends its copies one by one, first
to neighbours, then to clients. Events that arrive meanwhile wait in its input queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from edgebroker.instants import MILLISECOND, SECOND, Duration, Instant
from edgelab.experiment.broker_cluster import EventVisit
from edgelab.simworld.simulation import Simulation


@dataclass(frozen=True, slots=True)
class EventCosts:
    """The processor time that an event takes at a broker."""

    receive: Duration
    copy: Duration
    """For each copy that the broker sends."""
    step: Duration
    """For each matching step."""

    def of(self, visit: EventVisit) -> Duration:
        """Return the time of the whole visit."""
        return self.receive + self.step * visit.steps + self.copy * visit.sent


COSTS: Final = EventCosts(receive=MILLISECOND // 5, copy=MILLISECOND // 10, step=5)
"""The costs of the published model. The product's steps are less expensive: the compiled matcher finds the links among
14,820 subscriptions in 3.6 steps and 3 us on a PC; 5 us for each step leave room for a much slower processor.
"""

Events = Mapping[int, Sequence[EventVisit]]
"""By publisher: the events that it publishes, in any order and as often as needed."""


class QueuedWork(NamedTuple):
    """The work of one broker for an event."""

    broker: int
    duration: Duration
    copies: tuple[tuple[Duration, QueuedWork], ...]
    """When each copy arrives at the next broker, counted from the beginning of the work, and the work there."""


def work_for(visit: EventVisit, costs: EventCosts, brokers: Set[int]) -> QueuedWork:
    """Return the work of *visit* and of those that follow from it at *brokers*."""
    matched = costs.receive + costs.step * visit.steps
    copies = [
        (matched + number * costs.copy + round(delay_ms * MILLISECOND), work_for(copy, costs, brokers))
        for number, (delay_ms, copy) in enumerate(visit.copies, start=1)
        if copy.broker in brokers
    ]
    return QueuedWork(visit.broker, costs.of(visit), tuple(copies))


class InputQueues:
    """The brokers of a cluster, with empty queues at first. The length of one queue is recorded."""

    def __init__(self, events: Events, costs: EventCosts, watched: int, upstream: Set[int], seed: int) -> None:
        """watched: the broker whose queue is recorded. upstream: the brokers on the ways from publishers to it, itself
        included; what other brokers do has no influence on its queue.
        """
        self._events = [[work_for(visit, costs, upstream) for visit in visits] for visits in events.values()]
        self._watched = watched
        self._simulation = Simulation(seed)
        self._free_at = dict.fromkeys(upstream, 0)
        self._leaves: deque[Instant] = deque()  # when each event leaves the watched broker

    def run(self, rate: float, end: Instant, interval: Duration) -> list[int]:
        """Let every publisher publish *rate* events a second on average (a Poisson process) until *end*.

        Returns the length of the watched queue at the end of every *interval*; the event being handled counts.
        """
        chance = self._simulation.random
        for events in self._events:
            now = chance.expovariate(rate / SECOND)
            while now < end:
                self._simulation.at(int(now), partial(self._arrive, chance.choice(events)))
                now += chance.expovariate(rate / SECOND)
        lengths = []
        for instant in range(interval, end + 1, interval):
            self._simulation.run_until(instant)
            while self._leaves and self._leaves[0] <= instant:
                self._leaves.popleft()
            lengths.append(len(self._leaves))
        return lengths

    def _arrive(self, work: QueuedWork) -> None:
        broker, duration, copies = work
        begin = max(self._simulation.now, self._free_at[broker])
        for after, there in copies:
            self._simulation.at(begin + after, partial(self._arrive, there))
        self._free_at[broker] = begin + duration
        if broker == self._watched:
            self._leaves.append(begin + duration)
