"""`edgebroker experiment idr`: compares static with dynamic routing while publishers burst.

Source: [SCOT], evaluation of notification routing.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Final

import click

from edgebroker.cli.parameters import examples
from edgebroker.federation.effects import DeliverEvent
from edgebroker.federation.options import PUBLISHED_OPTIONS
from edgebroker.filters import Filter
from edgebroker.instants import MINUTE, SECOND, Duration, Instant
from edgebroker.overlay.congestion import WINDOW
from edgebroker.overlay.messages import Forward
from edgelab.experiment.overlay import CLUSTERS, OverlayCosts, TimedFederation, machines_of, seventy_brokers
from edgelab.experiment.report import ChartLine, ExperimentFigure, StatusLine, line_chart, report, write_chart
from edgelab.simworld.simulation import Simulation

SUBSCRIBERS: Final = 2_000
FOLLOWERS: Final = 40
"""Subscribers of a publisher that bursts: 2 % of all."""
PUBLISHERS: Final = 100
EVENTS: Final = 2_000
"""Events of each publisher."""
PER_MINUTE: Final = 60
BURST: Final = 100_000
"""Events of a publisher that bursts."""
GROUP: Final = 1_000
"""Events per group of which the largest delay is shown."""
SOON: Final[Duration] = SECOND
OVERLOAD: Final = 1.5
"""The load of the bursting publisher's broker machine at FASTEST with static routing, relative to its capacity."""
FASTEST: Final = 100_000
"""Events per minute."""
BEGIN: Final[Instant] = 100 * SECOND
PRICES: Final = 100
PAYLOAD: Final = (
    '{"n":"%08d","price":%d,"open":51.5,"high":54,"low":49.25,"close":53,"volume":1200,"change":1.5,"bid":2,"ask":3}'
)
"""The payload has ten attributes."""


@dataclass(frozen=True, slots=True)
class BurstOutcome:
    """The delays and losses of all events. Times are measured in the run and divided by its scale."""

    mean_s: float
    p99_s: float
    soon: float
    """The share of the deliveries within a second."""
    stable_s: float
    """Time from the beginning of the burst until every event is again delivered everywhere within a second."""
    deliveries: int
    wrong: int
    """Number of deliveries that are missing, or too many."""
    messages: int
    host_load: int
    """Events that left the broker of the bursting publisher."""
    maxima_s: tuple[float, ...]
    """The largest delay in each GROUP of events, in the order of publication."""


def burst(seed: int, is_dynamic: bool, scale: float, per_minute: int = FASTEST, bursting: int = 1) -> BurstOutcome:
    """Run the experiment with *scale* times the events at the same rates: queues, delays and windows are *scale* times
    as long.
    """
    run = _BurstRun(seed, is_dynamic, bursting)
    return run.outcome(scale, per_minute)


class _BurstRun(TimedFederation):
    """One run. Clients are called `b0`, `b1` ... if they burst, and `p0`, `p1` ... otherwise."""

    def __init__(self, seed: int, is_dynamic: bool, bursting: int) -> None:
        topology, simulation = seventy_brokers(), Simulation(seed)
        options = replace(PUBLISHED_OPTIONS, is_dynamic=is_dynamic)
        super().__init__(topology, options, OverlayCosts(0, 0), simulation, machines_of(topology))
        chance = simulation.random
        names = [*self.peers]
        self._hosts = {f"b{number}": host for number, host in enumerate(chance.sample(names, bursting))}
        self._hosts |= {f"p{number}": chance.choice(names) for number in range(PUBLISHERS)}
        self._readers: dict[str, dict[str, list[int]]] = {client: {} for client in self._hosts}
        self._published: list[tuple[Instant, int]] = []
        self._slowest: list[Duration] = []
        self._missing: list[int] = []  # expected deliveries, by event
        self._delays: list[Duration] = []
        with self.at_once():
            for number in range(SUBSCRIBERS):
                self._place_subscriber(number, names, bursting)
            for client, host in self._hosts.items():
                self.perform(host, self.peers[host].advertise(client, f"{client}/stock", self.now))
        cost = round(MINUTE / FASTEST * OVERLOAD / self._work_of_host_machine())
        self.costs = OverlayCosts(receive=cost, copy=cost)

    def outcome(self, scale: float, per_minute: int) -> BurstOutcome:
        """Run the simulation and return its outcome."""
        chance = self.simulation.random
        begin, span = round(BEGIN * scale), round(EVENTS * MINUTE / PER_MINUTE * scale)
        for client in self._hosts:
            if client.startswith("b"):
                pause = MINUTE / per_minute
                instants = [begin + round(at * pause) for at in range(round(BURST * scale))]
            else:
                instants = [chance.randrange(span) for _ in range(round(EVENTS * scale))]
            for instant in instants:
                self.simulation.at(instant, partial(self._publish_price, client, chance.randrange(PRICES)))
        self.watch(max(1, round(WINDOW * scale)), span)
        self.simulation.run_while(lambda: True)
        return self._outcome(scale)

    def deliver_local(self, gateway: str, delivery: DeliverEvent) -> None:
        """Count the deliveries to the gateway's clients, each with its delay."""
        thresholds = self._readers[delivery.forward.client].get(gateway, ())
        number = int(delivery.forward.payload[6:14])
        published_at, price = self._published[number]
        readers = bisect_left(thresholds, price)
        if readers:
            delay = self.simulation.now - published_at
            self._delays += [delay] * readers
            self._slowest[number] = max(self._slowest[number], delay)
            self._missing[number] -= readers

    def _place_subscriber(self, number: int, names: list[str], bursting: int) -> None:
        """Place a subscriber of a bursting publisher, at another broker than it; or of another publisher.

        Each bursting publisher has FOLLOWERS subscribers. The first ones go to one cluster after the other, so that all
        are targets.
        """
        chance = self.simulation.random
        if number < bursting * FOLLOWERS:
            client, threshold = f"b{number % bursting}", -1
            cluster = number // bursting % CLUSTERS
            names = [name for name in names if name != self._hosts[client] and name.endswith(f".{cluster}")]
        else:
            client, threshold = f"p{chance.randrange(PUBLISHERS)}", chance.randrange(PRICES)
        gateway = chance.choice(names)
        self._readers[client].setdefault(gateway, []).append(threshold)
        self._readers[client][gateway].sort()
        self.subscribe(gateway, number, f"{client}/#", Filter.parse(f"price > {threshold}").predicates)

    def _work_of_host_machine(self) -> int:
        """Return the copies of an event of `b0` that its broker's machine receives or sends with static routing."""
        host, factor = self._hosts["b0"], self.topology.factor
        root, cluster = host.split(".")
        links = {(host, f"{root}.{other}") for other in range(CLUSTERS) if str(other) != cluster}
        for reader in self._readers["b0"]:
            position, cluster = reader.split(".")
            links |= set(pairwise(f"{each}.{cluster}" for each in factor.path(root, position)))
        own = self._machines[host]
        return sum(self._machines[broker] == own for link in links for broker in link)

    def _publish_price(self, client: str, price: int) -> None:
        payload = PAYLOAD % (len(self._published), price)
        self._published.append((self.simulation.now, price))
        self._slowest.append(0)
        host = self._hosts[client]
        remote_readers = (readers for gateway, readers in self._readers[client].items() if gateway != host)
        self._missing.append(sum(bisect_left(readers, price) for readers in remote_readers))
        self.publish(host, client, f"{client}/stock", payload.encode())

    def _outcome(self, scale: float) -> BurstOutcome:
        soon, begin = SOON * scale, BEGIN * scale
        slow = [at + slowest for (at, _), slowest in zip(self._published, self._slowest, strict=True) if slowest > soon]
        size = max(1, round(GROUP * scale))
        groups = [self._slowest[at : at + size] for at in range(0, len(self._slowest), size)]
        self._delays.sort()
        unit = SECOND * scale
        return BurstOutcome(
            fmean(self._delays) / unit,
            self._delays[len(self._delays) * 99 // 100] / unit,
            bisect_left(self._delays, soon) / len(self._delays),
            (max(slow, default=begin) - begin) / unit,
            len(self._delays),
            sum(map(abs, self._missing)),
            self.messages.get(Forward, 0),
            sum(line.carried for line in self.outgoing_links(self._hosts["b0"])),
            tuple(max(group) / unit for group in groups),
        )


SEEDS: Final = 5
SLOWER: Final = {80_000: "-17.7 %", 60_000: "-21 %"}
"""Events per minute -> the published gain."""
BURSTING: Final = (1, 2, 3, 5)
"""Publishers that burst at the same time."""
PAIRS: Final = 8
"""Seeds with which several publishers burst. Two at once gain 15 % with one seed and lose 1 % with another: with few
seeds it would be unknown whether three gain less.
"""
SCALE: Final = 0.02
PERCENT: Final = "{:+.1%}"
EXACT: Final = "{:+.2%}"
SHARE: Final = "{:.1%}"
RATIO: Final = "{:.2f}"
COUNT: Final = "{:,.0f}"


@dataclass(frozen=True, slots=True, order=True)
class BurstCase:
    """The parameters of a run, except the routing."""

    seed: int
    per_minute: int = FASTEST
    bursting: int = 1


Both = tuple[BurstOutcome, BurstOutcome]
"""Outcomes with static and with dynamic routing."""


def cases(seeds: int) -> list[BurstCase]:
    """Yield the burst for every seed, a slower one for the first, and for the first PAIRS one, two ... publishers at
    once.
    """
    return [
        *(BurstCase(seed) for seed in range(1, max(seeds, PAIRS) + 1)),
        *(BurstCase(1, per_minute=rate) for rate in SLOWER),
        *(BurstCase(seed, bursting=number) for number in BURSTING[1:] for seed in range(1, PAIRS + 1)),
    ]


def run(case: BurstCase, is_dynamic: bool, scale: float) -> BurstOutcome:
    """Run one case with static or dynamic routing."""
    return burst(case.seed, is_dynamic, scale, case.per_minute, case.bursting)


def gain(both: Both) -> float:
    """Return the relative change of the mean delay with dynamic routing: -0.2 is a fifth shorter."""
    static, dynamic = both
    return dynamic.mean_s / static.mean_s - 1


def findings(outcomes: Mapping[BurstCase, Both], seeds: int = SEEDS) -> list[ExperimentFigure]:
    """Return the published figures beside ours; for one bursting publisher, with *seeds* seeds."""
    main = _main(outcomes, seeds)
    pairs = {case.seed for case in outcomes if case.bursting > 1}
    gains = [fmean(gain(outcomes[BurstCase(seed, bursting=number)]) for seed in pairs) for number in BURSTING]
    earlier = fmean(1 - _settling(dynamic) / _settling(static) for static, dynamic in main)
    load = fmean(dynamic.host_load / static.host_load - 1 for static, dynamic in main)
    rises = sum(after <= before for before, after in pairwise(gains))
    sooner = sum(dynamic.soon > static.soon for static, dynamic in main)
    return [
        ExperimentFigure("mean delay, dynamic against static", "-17.5 %", fmean(map(gain, main)), PERCENT, -0.3, -0.1),
        *(
            ExperimentFigure(f"  {rate:,} a minute", said, gain(outcomes[BurstCase(1, per_minute=rate)]), PERCENT)
            for rate, said in SLOWER.items()
        ),
        ExperimentFigure("stable after the burst, earlier by", "239 s", earlier, PERCENT, low=0.1),
        ExperimentFigure("messages", "+0.3 %", _more_messages(main), EXACT, -0.02, 0.02),
        ExperimentFigure("what leaves the publisher's broker", "-61 %", load, PERCENT),
        ExperimentFigure(
            "delivered within a second, static", "44.1 %", fmean(static.soon for static, _ in main), SHARE
        ),
        ExperimentFigure(
            "delivered within a second, dynamic", "53.8 %", fmean(dynamic.soon for _, dynamic in main), SHARE
        ),
        ExperimentFigure("  more, in so many runs", "", sooner, COUNT, len(main), len(main)),
        *(
            ExperimentFigure(f"mean delay, {number} of them burst", "less gain" if number > 1 else "", each, PERCENT)
            for number, each in zip(BURSTING, gains, strict=True)
        ),
        ExperimentFigure("  steps without less gain", "0", rises, COUNT, 0, 0),
    ]


def beyond(outcomes: Mapping[BurstCase, Both], seeds: int = SEEDS) -> list[ExperimentFigure]:
    """Return the figures that a product should reach; for one bursting publisher, with *seeds* seeds."""
    main = _main(outcomes, seeds)
    mean = fmean(dynamic.mean_s / static.mean_s for static, dynamic in main)
    slow = fmean(dynamic.p99_s / static.p99_s for static, dynamic in main)
    wrong = sum(one.wrong for both in outcomes.values() for one in both)
    return [
        ExperimentFigure("mean delay, dynamic / static", "", mean, RATIO, high=0.7),
        ExperimentFigure("delay of 99 %, dynamic / static", "", slow, RATIO, high=0.8),
        ExperimentFigure("deliveries lost or doubled", "", wrong, COUNT, 0, 0),
        ExperimentFigure("more messages", "", _more_messages(main), EXACT, high=0.01),
    ]


def _main(outcomes: Mapping[BurstCase, Both], seeds: int) -> list[Both]:
    return [outcomes[BurstCase(seed)] for seed in range(1, seeds + 1)]


def _more_messages(main: Sequence[Both]) -> float:
    return fmean(dynamic.messages / static.messages - 1 for static, dynamic in main)


def _settling(outcome: BurstOutcome) -> float:
    """Return the time from the end of the burst until all is stable."""
    return max(0.0, outcome.stable_s - BURST / FASTEST * 60)


def labels(case: BurstCase, is_dynamic: bool) -> Iterator[str]:
    """Yield a description of each step."""
    yield "dynamic" if is_dynamic else "static"
    yield f"seed {case.seed}"
    yield f"{case.per_minute:,} a minute"
    if case.bursting > 1:
        yield f"{case.bursting} publishers"


STATIC_COLOUR = "#c2410c"
DYNAMIC_COLOUR = "#28549a"


@click.command(
    name="idr",
    short_help="Static and dynamic routing while publishers burst.",
    epilog=examples("edgebroker experiment idr --seeds 3 --scale 0.1 --svg idr.svg"),
)
@click.option(
    "--seeds", type=click.IntRange(1, 100), default=SEEDS, show_default=True, help="Runs of the burst: seeds 1 to N."
)
@click.option(
    "--scale",
    type=click.FloatRange(0.005, 1),
    default=SCALE,
    show_default=True,
    help="How many of the published 300,000 events, at the same rates.",
)
@click.option(
    "--jobs", type=click.IntRange(1, 64), default=os.cpu_count() or 1, show_default="all cores", help="Runs at once."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw a chart into this file as well.")
def command(seeds: int, scale: float, jobs: int, as_json: bool, svg: Path | None) -> None:
    """Let publishers say more than their gateway's links can carry, with static and with dynamic routing.

    70 brokers of the product, on virtual time, 2,000 subscribers and 100 publishers. Ends with exit code 1 if the
    outcome is not the published one.
    """
    outcomes = measured(seeds, scale, jobs)
    write_chart(svg, drawn(outcomes[BurstCase(1)]))
    head = f"a publisher bursts: dynamic against static routing, {scale:g} of the events, {seeds} seeds"
    report(head, {"seeds": seeds, "scale": scale}, findings(outcomes, seeds), beyond(outcomes, seeds), as_json)


def measured(seeds: int, scale: float, jobs: int) -> dict[BurstCase, Both]:
    """Return the outcomes of all runs, *jobs* at a time."""
    wanted = [(case, is_dynamic) for case in cases(seeds) for is_dynamic in (False, True)]
    found: dict[tuple[BurstCase, bool], BurstOutcome] = {}
    with ProcessPoolExecutor(jobs) as pool, StatusLine() as progress:
        running = {pool.submit(run, case, is_dynamic, scale): (case, is_dynamic) for case, is_dynamic in wanted}
        for done in as_completed(running):
            case, is_dynamic = running[done]
            found[case, is_dynamic] = done.result()
            progress.show(f"{len(found)} of {len(wanted)}: {', '.join(labels(case, is_dynamic))}")
    return {case: (found[case, False], found[case, True]) for case in cases(seeds)}


def drawn(both: Both) -> str:
    """Return the chart: the largest delay in each thousand events, in the order of publication."""
    lines = [
        ChartLine(name, {(at + 1) * GROUP: delay for at, delay in enumerate(both[place].maxima_s)}, colour)
        for place, (name, colour) in enumerate((("static", STATIC_COLOUR), ("dynamic", DYNAMIC_COLOUR)))
    ]
    return line_chart("Events published while one publisher bursts", "", "events", "s, greatest delay", lines)
