"""A publisher bursts, and static and dynamic routing cope [SCOT, evaluation of notification routing].

One in a hundred publishers suddenly has as much to say as many others together, faster than the links of its broker can
carry. Some in every cluster follow it.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import Final

from edgebroker.filters import Filter
from edgebroker.instants import MINUTE, SECOND, Duration, Instant
from edgebroker.node.peereffects import Hand
from edgebroker.node.ways import PUBLISHED
from edgebroker.overlay.congestion import WINDOW
from edgebroker.overlay.messages import Forward
from edgebroker.simworld.experiments.overlay import CLUSTERS, Costs, Course, machines_of, seventy_brokers
from edgebroker.simworld.simulation import Simulation

SUBSCRIBERS: Final = 2_000
FOLLOWERS: Final = 40
"""Of a publisher that bursts: 2 % of the subscribers."""
PUBLISHERS: Final = 100
EVENTS: Final = 2_000
"""Of each publisher."""
PER_MINUTE: Final = 60
BURST: Final = 100_000
"""Events of a publisher that bursts."""
GROUP: Final = 1_000
"""Events of which the greatest delay is looked at together."""
SOON: Final[Duration] = SECOND
OVERLOAD: Final = 1.5
"""How many times what it can send comes to the machine of the publisher's broker, at FASTEST, with static routing."""
FASTEST: Final = 100_000
"""Events in a minute."""
BEGIN: Final[Instant] = 100 * SECOND
PRICES: Final = 100
PAYLOAD: Final = (
    '{"n":"%08d","price":%d,"open":51.5,"high":54,"low":49.25,"close":53,"volume":1200,"change":1.5,"bid":2,"ask":3}'
)
"""Ten attributes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of all events. Times are measured in the run and divided by its scale."""

    mean_s: float
    p99_s: float
    soon: float
    """The part of the deliveries within a second."""
    stable_s: float
    """From the beginning of the burst until every event is again delivered everywhere within a second."""
    deliveries: int
    wrong: int
    """Deliveries missing, or too many."""
    messages: int
    host_load: int
    """Events that left the broker of the publisher that bursts."""
    maxima_s: tuple[float, ...]
    """The greatest delay in each GROUP of events, in the order in which they were published."""


def burst(seed: int, is_dynamic: bool, scale: float, per_minute: int = FASTEST, bursting: int = 1) -> Outcome:
    """Run it with *scale* times the events at the same rates: queues, delays and windows are *scale* times as long."""
    run = _Run(seed, is_dynamic, bursting)
    return run.outcome(scale, per_minute)


class _Run(Course):
    """One run. Clients are called `b0`, `b1` ... if they burst, and `p0`, `p1` ... otherwise."""

    def __init__(self, seed: int, is_dynamic: bool, bursting: int) -> None:
        topology, simulation = seventy_brokers(), Simulation(seed)
        ways = replace(PUBLISHED, is_dynamic=is_dynamic)
        super().__init__(topology, ways, Costs(0, 0), simulation, machines_of(topology))
        chance = simulation.random
        names = [*self.peers]
        self._hosts = {f"b{number}": host for number, host in enumerate(chance.sample(names, bursting))}
        self._hosts |= {f"p{number}": chance.choice(names) for number in range(PUBLISHERS)}
        self._readers: dict[str, dict[str, list[int]]] = {client: {} for client in self._hosts}
        self._published: list[tuple[Instant, int]] = []
        self._slowest: list[Duration] = []
        self._missing: list[int] = []  # deliveries, by event
        self._delays: list[Duration] = []
        with self.at_once():
            for number in range(SUBSCRIBERS):
                self._place_subscriber(number, names, bursting)
            for client, host in self._hosts.items():
                self.perform(host, self.peers[host].advertise(client, f"{client}/stock", self.now))
        work = round(MINUTE / FASTEST * OVERLOAD / self._work_of_host_machine())
        self.costs = Costs(receive=work, copy=work)

    def outcome(self, scale: float, per_minute: int) -> Outcome:
        """Let it happen."""
        chance = self.simulation.random
        begin, span = round(BEGIN * scale), round(EVENTS * MINUTE / PER_MINUTE * scale)
        for client in self._hosts:
            if client.startswith("b"):
                pause = MINUTE / per_minute
                instants = [begin + round(at * pause) for at in range(round(BURST * scale))]
            else:
                instants = [chance.randrange(span) for _ in range(round(EVENTS * scale))]
            for instant in instants:
                self.simulation.at(instant, partial(self._say, client, chance.randrange(PRICES)))
        self.watch(max(1, round(WINDOW * scale)), span)
        self.simulation.run_while(lambda: True)
        return self._outcome(scale)

    def hand(self, gateway: str, hand: Hand) -> None:
        """Count the deliveries to the gateway's clients, each with its delay."""
        thresholds = self._readers[hand.forward.client].get(gateway, ())
        number = int(hand.forward.payload[6:14])
        published_at, price = self._published[number]
        readers = bisect_left(thresholds, price)
        if readers:
            delay = self.simulation.now - published_at
            self._delays += [delay] * readers
            self._slowest[number] = max(self._slowest[number], delay)
            self._missing[number] -= readers

    def _place_subscriber(self, number: int, names: list[str], bursting: int) -> None:
        """One of FOLLOWERS of each publisher that bursts, elsewhere than it; or a reader of another one.

        The first followers go to one cluster after the other, so that all are targets.
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
        """The copies of an event of `b0` that the machine of its broker takes in or sends with static routing."""
        host, factor = self._hosts["b0"], self.topology.factor
        root, cluster = host.split(".")
        links = {(host, f"{root}.{other}") for other in range(CLUSTERS) if str(other) != cluster}
        for reader in self._readers["b0"]:
            position, cluster = reader.split(".")
            links |= set(pairwise(f"{each}.{cluster}" for each in factor.path(root, position)))
        own = self._machines[host]
        return sum(self._machines[broker] == own for link in links for broker in link)

    def _say(self, client: str, price: int) -> None:
        payload = PAYLOAD % (len(self._published), price)
        self._published.append((self.simulation.now, price))
        self._slowest.append(0)
        host = self._hosts[client]
        elsewhere = (readers for gateway, readers in self._readers[client].items() if gateway != host)
        self._missing.append(sum(bisect_left(readers, price) for readers in elsewhere))
        self.publish(host, client, f"{client}/stock", payload.encode())

    def _outcome(self, scale: float) -> Outcome:
        soon, begin = SOON * scale, BEGIN * scale
        slow = [at + slowest for (at, _), slowest in zip(self._published, self._slowest, strict=True) if slowest > soon]
        size = max(1, round(GROUP * scale))
        groups = [self._slowest[at : at + size] for at in range(0, len(self._slowest), size)]
        self._delays.sort()
        unit = SECOND * scale
        return Outcome(
            fmean(self._delays) / unit,
            self._delays[len(self._delays) * 99 // 100] / unit,
            bisect_left(self._delays, soon) / len(self._delays),
            (max(slow, default=begin) - begin) / unit,
            len(self._delays),
            sum(map(abs, self._missing)),
            self.messages.get(Forward, 0),
            sum(line.carried for line in self.lines(self._hosts["b0"])),
            tuple(max(group) / unit for group in groups),
        )
