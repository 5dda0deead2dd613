"""The control of the experiments [SCOT]: the same graph without clusters; advertisements flood it and name their trees.

Every broker stores every advertisement and the broker it came from first: these last hops are the advertisement's tree.
A subscription travels against the trees of the advertisements that it meets, each broker once.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from edgebroker.instants import Duration, Instant
from edgebroker.simworld.experiments.overlay import Costs


@dataclass(frozen=True, slots=True)
class Tree:
    """The tree of one advertisement: how each broker first heard of it."""

    host: str
    last_hops: Mapping[str, str]
    """Broker -> the one it heard it from; the host's is itself."""
    reached_after: Mapping[str, Duration]
    messages: int


class Spread(NamedTuple):
    """How far a subscription went."""

    messages: int
    reached_after: Mapping[str, Duration]


class Flooding:
    """Brokers and their neighbours."""

    def __init__(self, neighbours: Mapping[str, Sequence[str]], costs: Costs) -> None:
        self._neighbours = neighbours
        self._costs = costs
        self._sent = 0

    def advertise(self, host: str) -> Tree:
        """Flood an advertisement. Whoever hears it for the first time sends it to all others; duplicates end."""
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
        return Tree(host, last_hops, reached, messages)

    def subscribe(self, broker: str, trees: Sequence[Tree], match: Duration) -> Spread:
        """Send a subscription of *broker* to the hosts of *trees*; over a link it goes once.

        match: how long a broker needs to find them.
        """
        costs = self._costs
        reached: dict[str, Duration] = {broker: 0}
        messages = 0
        waiting = [broker]
        for here in waiting:
            now = reached[here] + match
            hops = dict.fromkeys(tree.last_hops[here] for tree in trees if self._leads_on(tree, here, broker))
            for hop in hops:
                if hop not in reached:
                    now += costs.copy
                    messages += 1
                    reached[hop] = now + costs.delay + costs.receive
                    waiting.append(hop)
        return Spread(messages, reached)

    def _leads_on(self, tree: Tree, here: str, origin: str) -> bool:
        """Whether *here* lies on the way from *origin* to the host of *tree*, before its end."""
        at = origin
        while at != here and at != tree.host:
            at = tree.last_hops[at]
        return at == here and here != tree.host

    def _send(self, broker: str, sender: str, now: Instant, events: list[tuple[Instant, int, str, str]]) -> None:
        for place, peer in enumerate(peer for peer in self._neighbours[broker] if peer != sender):
            sent = now + (place + 1) * self._costs.copy
            self._sent += 1
            heapq.heappush(events, (sent + self._costs.delay + self._costs.receive, self._sent, peer, broker))
