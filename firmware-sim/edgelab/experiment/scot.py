"""`edgebroker experiment scot`: measures the cost of routing state with clusters and without.

Source: [SCOT], evaluation of advertisements and subscriptions. The control is the same graph without clusters.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Final, NamedTuple

import click

from edgebroker.cli.parameters import examples
from edgebroker.federation.options import PUBLISHED_OPTIONS
from edgebroker.filters import Filter
from edgebroker.instants import MILLISECOND, Duration, Instant
from edgebroker.overlay.messages import Advertise, Announce, ClusterBits, ClusterBitsAck, Message
from edgelab.experiment.overlay import OverlayCosts, TimedFederation, seventy_brokers
from edgelab.experiment.report import ChartLine, ExperimentFigure, StatusLine, line_chart, report, write_chart
from edgelab.simworld.simulation import Simulation


@dataclass(frozen=True, slots=True)
class AdvertisementTree:
    """The tree of one advertisement: the first sender of it to each broker."""

    host: str
    last_hops: Mapping[str, str]
    """Broker -> the sender of the first copy; the host's is itself."""
    reached_after: Mapping[str, Duration]
    messages: int


class SubscriptionSpread(NamedTuple):
    """The brokers that a subscription reached."""

    messages: int
    reached_after: Mapping[str, Duration]


class FloodControl:
    """The control: brokers and their neighbours, without clusters."""

    def __init__(self, neighbours: Mapping[str, Sequence[str]], costs: OverlayCosts) -> None:
        self._neighbours = neighbours
        self._costs = costs
        self._sent = 0

    def advertise(self, host: str) -> AdvertisementTree:
        """Flood an advertisement. A broker that receives it for the first time sends it to all others;
        duplicates end.
        """
        last_hops = {host: host}
        reached: dict[str, Duration] = {host: 0}
        messages = 0
        events: list[tuple[Instant, int, str, str]] = []
        self._send(host, host, 0, events)
        while events:
            now, _, broker, sender = heapq.heappop(events)
            messages += 1
            if broker not in last_hops:
                last_hops[broker] = sender
                reached[broker] = now
                self._send(broker, sender, now, events)
        return AdvertisementTree(host, last_hops, reached, messages)

    def subscribe(self, broker: str, trees: Sequence[AdvertisementTree], match: Duration) -> SubscriptionSpread:
        """Send a subscription of *broker* to the hosts of *trees*, once over each link.

        match: the time in which a broker finds the matching advertisements.
        """
        costs = self._costs
        reached: dict[str, Duration] = {broker: 0}
        messages = 0
        waiting = [broker]
        for broker_on_path in waiting:
            now = reached[broker_on_path] + match
            hops = dict.fromkeys(
                tree.last_hops[broker_on_path] for tree in trees if self._leads_on(tree, broker_on_path, broker)
            )
            for hop in hops:
                if hop not in reached:
                    now += costs.copy
                    messages += 1
                    reached[hop] = now + costs.delay + costs.receive
                    waiting.append(hop)
        return SubscriptionSpread(messages, reached)

    def _leads_on(self, tree: AdvertisementTree, broker_on_path: str, origin: str) -> bool:
        """Return whether *broker_on_path* is on the path from *origin* to the host of *tree*, before its end."""
        current = origin
        while current != broker_on_path and current != tree.host:
            current = tree.last_hops[current]
        return current == broker_on_path and broker_on_path != tree.host

    def _send(self, broker: str, sender: str, now: Instant, events: list[tuple[Instant, int, str, str]]) -> None:
        for position, peer in enumerate(peer for peer in self._neighbours[broker] if peer != sender):
            sent = now + (position + 1) * self._costs.copy
            self._sent += 1
            heapq.heappush(events, (sent + self._costs.delay + self._costs.receive, self._sent, peer, broker))


ADVERTISEMENTS: Final = (100, 200, 300, 400, 500)
SUBSCRIPTIONS: Final = (500, 1_000, 2_000, 3_000, 4_000, 5_000)
PUBLISHERS: Final = 100
"""The number of publishers while subscriptions are counted."""
SYMBOLS: Final = 500
SECTORS: Final = 33
"""A subscription selects a sector, so it matches 3 % of the advertisements; the source's figures imply a
similar share.
"""
COSTS: Final = OverlayCosts(receive=MILLISECOND // 10, copy=MILLISECOND // 10, delay=MILLISECOND)


MATCH: Final[Duration] = 10
"""For the control: the time per stored advertisement in which a broker finds those that match a subscription, before it
forwards it. With clusters no search precedes forwarding. The delay of the control is larger from 2 microseconds on.
"""
PLAIN: Final = "{:,.4g}"
PERCENT: Final = "{:+.1%}"
EXACT: Final = "{:+.2%}"


@dataclass(frozen=True, slots=True)
class StateCost:
    """The mean cost of one advertisement or subscription."""

    entries: float
    """Brokers that store it."""
    messages: float
    """Messages that carry it."""
    delay_ms: float
    """Time until a broker stores it, the mean of all that do except the first."""


@dataclass(frozen=True, slots=True)
class StateRow:
    """The cost with clusters and without, for a number of advertisements or subscriptions."""

    count: int
    clustered: StateCost
    control: StateCost

    def less(self, cost_of: Callable[[StateCost], float]) -> float:
        """Return the relative change of a cost by clusters; negative if they cost less than the control."""
        return cost_of(self.clustered) / cost_of(self.control) - 1


@dataclass(frozen=True, slots=True)
class SubgroupingOutcome:
    """The outcome of one run."""

    advertisements: list[StateRow]
    subscriptions: list[StateRow]
    answers: float
    """Bits set and cleared per subscription."""


def measure(seed: int, scale: float = 1.0, watch: Callable[[str], None] = lambda _: None) -> SubgroupingOutcome:
    """Advertise and subscribe at random brokers, *scale* times as often as published."""
    run = _SubgroupingRun(Random(seed))
    rows = []
    for count in _scaled(ADVERTISEMENTS, scale):
        watch(f"{count:,} advertisements")
        rows.append(run.advertised(count))
    run = _SubgroupingRun(Random(seed))
    run.advertised(PUBLISHERS)
    more = []
    for count in _scaled(SUBSCRIPTIONS, scale):
        watch(f"{count:,} subscriptions")
        more.append(run.subscribed(count))
    return SubgroupingOutcome(rows, more, run.answers / more[-1].count)


def _scaled(counts: tuple[int, ...], scale: float) -> Iterator[int]:
    return (max(1, round(count * scale)) for count in counts)


class _DelayRecorder(TimedFederation):
    """Records the times at which advertisements and subscriptions arrive at brokers."""

    def __init__(self) -> None:
        self.delays: list[Duration] = []
        self.sent_at = 0
        super().__init__(seventy_brokers(), PUBLISHED_OPTIONS, COSTS, Simulation())

    def message_arrived(self, message: Message) -> None:
        if isinstance(message, Advertise | Announce):
            self.delays.append(self.simulation.now - self.sent_at)

    def count(self, *kinds: type[Message]) -> int:
        """Return the number of messages of these kinds so far."""
        return sum(self.messages.get(kind, 0) for kind in kinds)


class _SubgroupingRun:
    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._federation = _DelayRecorder()
        self._names = [*self._federation.peers]
        neighbours = {gateway.name: gateway.peers() for gateway in self._federation.topology.gateways}
        self._flooding = FloodControl(neighbours, COSTS)
        self._trees: list[tuple[int, AdvertisementTree]] = []  # with the sector
        self._subscriptions = 0
        self._control_entries = self._control_messages = 0
        self._control_delays: list[Duration] = []

    @property
    def answers(self) -> int:
        """Return the number of messages that set or clear a cluster's bits, and of their acknowledgements."""
        return self._federation.count(ClusterBits, ClusterBitsAck)

    def advertised(self, count: int) -> StateRow:
        """Advertise until there are *count* advertisements."""
        federation = self._federation
        while len(self._trees) < count:
            host, symbol = self._chance.choice(self._names), self._chance.randrange(SYMBOLS)
            client = f"publisher {len(self._trees)}"
            federation.sent_at = federation.simulation.now
            topic = f"sector{symbol % SECTORS}/symbol{symbol}/trade"
            federation.perform(host, federation.peers[host].advertise(client, topic, federation.now))
            federation.simulation.run_while(lambda: True)
            self._trees.append((symbol % SECTORS, self._flooding.advertise(host)))
        trees = [tree for _, tree in self._trees]
        stored = sum(
            len(peers.region.advertisements) + sum(len(peers.region.secondary.of(host)) for host in self._names)
            for peers in federation.peers.values()
        )
        return StateRow(
            count,
            StateCost(stored / count, federation.count(Advertise) / count, fmean(federation.delays) / MILLISECOND),
            StateCost(
                fmean(len(tree.last_hops) for tree in trees),
                fmean(tree.messages for tree in trees),
                fmean(_mean_delay(tree.reached_after.values()) for tree in trees) / MILLISECOND,
            ),
        )

    def subscribed(self, count: int) -> StateRow:
        """Subscribe until there are *count* subscriptions."""
        federation = self._federation
        if not self._subscriptions:
            federation.delays.clear()
        while self._subscriptions < count:
            self._subscriptions += 1
            broker, sector = self._chance.choice(self._names), self._chance.randrange(SECTORS)
            federation.sent_at = federation.simulation.now
            predicates = Filter.parse(f"price > {self._subscriptions}").predicates  # each subscription has another one
            federation.subscribe(broker, self._subscriptions, f"sector{sector}/#", predicates)
            federation.simulation.run_while(lambda: True)
            spread = self._flooding.subscribe(
                broker, [tree for of, tree in self._trees if of == sector], MATCH * len(self._trees)
            )
            self._control_entries += len(spread.reached_after)
            self._control_messages += spread.messages
            self._control_delays += [delay for delay in spread.reached_after.values() if delay]
        entries = sum(
            sum(len(peers.interests.announced_by(peer)) for peer in peers.gateway.neighbours)
            for peers in federation.peers.values()
        )
        return StateRow(
            count,
            StateCost(entries / count + 1, federation.count(Announce) / count, fmean(federation.delays) / MILLISECOND),
            StateCost(
                self._control_entries / count,
                self._control_messages / count,
                fmean(self._control_delays) / MILLISECOND,
            ),
        )


def _mean_delay(delays: Iterable[Duration]) -> float:
    return fmean(delay for delay in delays if delay)


def findings(outcome: SubgroupingOutcome) -> list[ExperimentFigure]:
    """Return the published figures beside ours."""
    first, last = outcome.advertisements[0], outcome.advertisements[-1]
    subscriptions = outcome.subscriptions[-1]
    return [
        ExperimentFigure("brokers that store an advertisement", "5 of 70", last.clustered.entries, PLAIN, 5, 5),
        ExperimentFigure("  against the control", "-93 %", last.less(attrgetter("entries")), EXACT, -13 / 14, -13 / 14),
        ExperimentFigure("messages per advertisement", "4", last.clustered.messages, PLAIN, 4, 4),
        ExperimentFigure("  of the control", "341", last.control.messages, PLAIN, 341, 341),
        ExperimentFigure("advertisement delay", "-63.5 %", last.less(attrgetter("delay_ms")), PERCENT, -0.75, -0.5),
        ExperimentFigure(
            f"  {last.count:,} against {first.count:,}",
            "flat",
            last.clustered.delay_ms / first.clustered.delay_ms - 1,
            PERCENT,
            -0.05,
            0.05,
        ),
        ExperimentFigure("messages per subscription", "13", subscriptions.clustered.messages, PLAIN, 13, 13),
        ExperimentFigure(
            "  of the control, less", "32.7 %", 1 - 1 / (1 + subscriptions.less(attrgetter("messages"))), PERCENT
        ),
        ExperimentFigure(
            "brokers that store a subscription", "14 of 70", subscriptions.clustered.entries, PLAIN, 14, 14
        ),
        ExperimentFigure("  against the control", "+33 %", subscriptions.less(attrgetter("entries")), PERCENT),
        ExperimentFigure("subscription delay", "-33 %", subscriptions.less(attrgetter("delay_ms")), PERCENT, high=0.0),
        ExperimentFigure("answers per subscription", "", outcome.answers, PLAIN),
    ]


CLUSTERED_COLOUR = "#28549a"
CONTROL_COLOUR = "#c2410c"


@click.command(
    name="scot",
    short_help="What routing state costs, with clusters and without.",
    epilog=examples("edgebroker experiment scot --scale 0.1"),
)
@click.option("--seed", type=int, default=1, show_default=True, help="Chooses brokers and symbols.")
@click.option(
    "--scale",
    type=click.FloatRange(0.01, 10),
    default=1.0,
    show_default=True,
    help="How many of the published 500 advertisements and 5,000 subscriptions.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw a chart into this file as well.")
def command(seed: int, scale: float, as_json: bool, svg: Path | None) -> None:
    """Count what an advertisement and a subscription cost, with clusters and without.

    70 brokers of the product, on virtual time, beside the same graph without clusters, where advertisements flood and
    subscriptions follow their trees. Ends with exit code 1 if the outcome is not the published one.
    """
    with StatusLine() as progress:
        outcome = measure(seed, scale, progress.show)
    write_chart(svg, drawn(outcome))
    head = f"what routing state costs, 70 brokers in 5 clusters, seed {seed}"
    report(head, {"seed": seed, "scale": scale}, findings(outcome), [], as_json)


def drawn(outcome: SubgroupingOutcome) -> str:
    """Return the chart: brokers' delays over the number of subscriptions."""
    rows = outcome.subscriptions
    lines = [
        ChartLine("clusters", {row.count: row.clustered.delay_ms for row in rows}, CLUSTERED_COLOUR),
        ChartLine("control", {row.count: row.control.delay_ms for row in rows}, CONTROL_COLOUR),
    ]
    return line_chart("Until brokers know a subscription", "", "subscriptions", "ms, mean", lines)
