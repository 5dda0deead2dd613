"""What routing state costs with clusters and without [SCOT, evaluation of advertisements and subscriptions]."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from random import Random
from statistics import fmean
from typing import Final

from edgebroker.filters import Filter
from edgebroker.instants import MILLISECOND, Duration
from edgebroker.node.ways import PUBLISHED
from edgebroker.overlay.messages import Advertise, Announce, ClusterBits, ClusterBitsHeld, Message
from edgebroker.simworld.experiments.finding import Finding
from edgebroker.simworld.experiments.flooded import Flooding, Tree
from edgebroker.simworld.experiments.overlay import Costs, Course, seventy_brokers
from edgebroker.simworld.simulation import Simulation

ADVERTISEMENTS: Final = (100, 200, 300, 400, 500)
SUBSCRIPTIONS: Final = (500, 1_000, 2_000, 3_000, 4_000, 5_000)
PUBLISHERS: Final = 100
"""While subscriptions are counted."""
SYMBOLS: Final = 500
SECTORS: Final = 33
"""A subscription asks for a sector. So it meets 3 % of the advertisements; the source's figures imply about as many."""
COSTS: Final = Costs(receive=MILLISECOND // 10, copy=MILLISECOND // 10, delay=MILLISECOND)


MATCH: Final[Duration] = 10
"""For the control: how long a broker needs for each advertisement that it holds to find those that a subscription
meets, before it sends it on. With clusters nobody looks before a subscription is on its way. The delay of the control
is the greater from 2 microseconds on."""
PLAIN: Final = "{:,.4g}"
PERCENT: Final = "{:+.1%}"
EXACT: Final = "{:+.2%}"


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one advertisement or subscription, in the mean."""

    entries: float
    """Brokers that store it."""
    messages: float
    """That carry it."""
    delay_ms: float
    """Until a broker stores it, the mean of all that do but the first."""


@dataclass(frozen=True, slots=True)
class Row:
    """Both ways beside each other, for so many advertisements or subscriptions."""

    count: int
    clustered: Cost
    control: Cost

    def less(self, what: Callable[[Cost], float]) -> float:
        """How much less (below 0) or more the clusters cost, as a part of what the control costs."""
        return what(self.clustered) / what(self.control) - 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run."""

    advertisements: list[Row]
    subscriptions: list[Row]
    answers: float
    """Bits set, and cleared, per subscription."""


def measure(seed: int, scale: float = 1.0, watch: Callable[[str], None] = lambda _: None) -> Outcome:
    """Advertise and subscribe at random brokers, *scale* times as often as published."""
    run = _Run(Random(seed))
    rows = []
    for count in _scaled(ADVERTISEMENTS, scale):
        watch(f"{count:,} advertisements")
        rows.append(run.advertised(count))
    run = _Run(Random(seed))
    run.advertised(PUBLISHERS)
    more = []
    for count in _scaled(SUBSCRIPTIONS, scale):
        watch(f"{count:,} subscriptions")
        more.append(run.subscribed(count))
    return Outcome(rows, more, run.answers / more[-1].count)


def _scaled(counts: tuple[int, ...], scale: float) -> Iterator[int]:
    return (max(1, round(count * scale)) for count in counts)


class _Storing(Course):
    """Notes when brokers come to know what is said."""

    def __init__(self) -> None:
        self.delays: list[Duration] = []
        self.said_at = 0
        super().__init__(seventy_brokers(), PUBLISHED, COSTS, Simulation())

    def heard(self, message: Message) -> None:
        if isinstance(message, Advertise | Announce):
            self.delays.append(self.simulation.now - self.said_at)

    def count(self, *kinds: type[Message]) -> int:
        """The messages of these kinds so far."""
        return sum(self.messages.get(kind, 0) for kind in kinds)


class _Run:
    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._course = _Storing()
        self._names = [*self._course.peers]
        neighbours = {gateway.name: gateway.peers() for gateway in self._course.topology.gateways}
        self._flooding = Flooding(neighbours, COSTS)
        self._trees: list[tuple[int, Tree]] = []  # with the sector
        self._subscriptions = 0
        self._control_entries = self._control_messages = 0
        self._control_delays: list[Duration] = []

    @property
    def answers(self) -> int:
        """Messages that say whether a cluster wants events, and confirm that."""
        return self._course.count(ClusterBits, ClusterBitsHeld)

    def advertised(self, count: int) -> Row:
        """Advertise until there are *count* advertisements."""
        course = self._course
        while len(self._trees) < count:
            host, symbol = self._chance.choice(self._names), self._chance.randrange(SYMBOLS)
            client = f"publisher {len(self._trees)}"
            course.said_at = course.simulation.now
            topic = f"sector{symbol % SECTORS}/symbol{symbol}/trade"
            course.perform(host, course.peers[host].advertise(client, topic, course.now))
            course.simulation.run_while(lambda: True)
            self._trees.append((symbol % SECTORS, self._flooding.advertise(host)))
        trees = [tree for _, tree in self._trees]
        stored = sum(
            len(peers.region.advertisements) + sum(len(peers.region.answers.of(host)) for host in self._names)
            for peers in course.peers.values()
        )
        return Row(
            count,
            Cost(stored / count, course.count(Advertise) / count, fmean(course.delays) / MILLISECOND),
            Cost(
                fmean(len(tree.last_hops) for tree in trees),
                fmean(tree.messages for tree in trees),
                fmean(_mean_delay(tree.reached_after.values()) for tree in trees) / MILLISECOND,
            ),
        )

    def subscribed(self, count: int) -> Row:
        """Subscribe until there are *count* subscriptions."""
        course = self._course
        if not self._subscriptions:
            course.delays.clear()
        while self._subscriptions < count:
            self._subscriptions += 1
            broker, sector = self._chance.choice(self._names), self._chance.randrange(SECTORS)
            course.said_at = course.simulation.now
            wanted = Filter.parse(f"price > {self._subscriptions}").predicates  # each is another
            course.subscribe(broker, self._subscriptions, f"sector{sector}/#", wanted)
            course.simulation.run_while(lambda: True)
            spread = self._flooding.subscribe(
                broker, [tree for of, tree in self._trees if of == sector], MATCH * len(self._trees)
            )
            self._control_entries += len(spread.reached_after)
            self._control_messages += spread.messages
            self._control_delays += [delay for delay in spread.reached_after.values() if delay]
        entries = sum(
            sum(len(peers.interests.held(peer)) for peer in peers.gateway.neighbours) for peers in course.peers.values()
        )
        return Row(
            count,
            Cost(entries / count + 1, course.count(Announce) / count, fmean(course.delays) / MILLISECOND),
            Cost(
                self._control_entries / count,
                self._control_messages / count,
                fmean(self._control_delays) / MILLISECOND,
            ),
        )


def _mean_delay(delays: Iterable[Duration]) -> float:
    return fmean(delay for delay in delays if delay)


def findings(outcome: Outcome) -> list[Finding]:
    """What the source says, what we find."""
    first, last = outcome.advertisements[0], outcome.advertisements[-1]
    subscriptions = outcome.subscriptions[-1]
    return [
        Finding("brokers that store an advertisement", "5 of 70", last.clustered.entries, PLAIN, 5, 5),
        Finding("  against the control", "-93 %", last.less(attrgetter("entries")), EXACT, -13 / 14, -13 / 14),
        Finding("messages per advertisement", "4", last.clustered.messages, PLAIN, 4, 4),
        Finding("  of the control", "341", last.control.messages, PLAIN, 341, 341),
        Finding("advertisement delay", "-63.5 %", last.less(attrgetter("delay_ms")), PERCENT, -0.75, -0.5),
        Finding(
            f"  {last.count:,} against {first.count:,}",
            "flat",
            last.clustered.delay_ms / first.clustered.delay_ms - 1,
            PERCENT,
            -0.05,
            0.05,
        ),
        Finding("messages per subscription", "13", subscriptions.clustered.messages, PLAIN, 13, 13),
        Finding("  of the control, less", "32.7 %", 1 - 1 / (1 + subscriptions.less(attrgetter("messages"))), PERCENT),
        Finding("brokers that store a subscription", "14 of 70", subscriptions.clustered.entries, PLAIN, 14, 14),
        Finding("  against the control", "+33 %", subscriptions.less(attrgetter("entries")), PERCENT),
        Finding("subscription delay", "-33 %", subscriptions.less(attrgetter("delay_ms")), PERCENT, high=0.0),
        Finding("answers per subscription", "", outcome.answers, PLAIN),
    ]
