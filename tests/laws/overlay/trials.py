"""Federations of any shape with subscriptions that come and go, beside an oracle that knows who wants what."""

from __future__ import annotations

from collections import Counter
from random import Random

from edgebroker.federation.options import DEFAULT_OPTIONS, PUBLISHED_OPTIONS, FederationOptions
from edgebroker.filters import Filter
from edgebroker.names import Address
from edgebroker.overlay.congestion import QueueSample
from edgebroker.overlay.messages import Forward
from edgebroker.overlay.reorder_buffer import BROKEN_WAIT_MAX
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.draft import DraftGateway, Site, TopologyDraft, Uplink
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgebroker.predicate import Predicate
from edgebroker.topics import TopicFilter
from edgelab.simworld.federation import ANYTHING, Federation

TOPICS = ("s/a/x", "s/a/y", "s/b/x", "t/a/x", "t", "s/a")
FILTERS = ("#", "s/#", "s/+/x", "s/a/#", "+/a/+", "t/a/x", "+/b/#", "t", "s/a/y")
CONDITIONS = ("v > 1", "v = 2", "v BETWEEN 1 AND 3", "v < 1 OR v > 3", "v IS NULL", "v >= 1")
PREDICATES: tuple[tuple[Predicate, ...], ...] = (
    tuple(ANYTHING),
    *(tuple(Filter.parse(text).predicates) for text in CONDITIONS),
)
DYNAMIC = FederationOptions(is_dynamic=True)
MIXED = FederationOptions(is_dynamic=True, is_precise=False, is_covering=False)
OPTIONS = (DEFAULT_OPTIONS, PUBLISHED_OPTIONS, DYNAMIC, MIXED)
CROWDED = (0, 0, 0, 12, 20)
"""What a link may have waiting."""


def some_factor(chance: Random, most: int) -> Factor:
    names = [chr(ord("a") + at) for at in range(chance.randint(1, most))]
    return Factor(names, [(names[chance.randrange(at)], names[at]) for at in range(1, len(names))])


def some_topology(chance: Random, positions: int = 5, clusters: int = 4) -> Topology:
    """A tree, and at each site another contraction of it; or a gateway for every broker."""
    factor = some_factor(chance, positions)
    count = chance.randint(1, clusters)
    if chance.random() < 0.4:
        return Topology.product(Scot(factor, count))
    uplinks = tuple(Uplink("wan", 2, covering_bytes=octets) for octets in (4_096, 48))
    sites = tuple(Site(f"s{index}", index, uplinks[index % 2]) for index in range(count))
    gateways: list[DraftGateway] = []
    for site in sites:
        joined = {position: {position} for position in factor.positions}
        for one, other in factor.edges:
            if chance.random() < 0.4:
                joined[one] |= joined[other]
                for position in joined[one]:
                    joined[position] = joined[one]
        for part in dict.fromkeys(tuple(sorted(each)) for each in joined.values()):
            positions_held = tuple(chance.sample(part, len(part)))
            name = f"{site.name}-{''.join(part)}"
            gateways.append(DraftGateway(name, len(gateways), site.name, positions_held, (Address(name, 1),)))
    tree = (*factor.positions, *("-".join(edge) for edge in factor.edges))
    return Topology(TopologyDraft("trial", tree, sites, tuple(gateways)))


class Trial:
    """One federation, what was asked for, and what must come of it."""

    def __init__(
        self, chance: Random, topology: Topology | None = None, options: FederationOptions | None = None
    ) -> None:
        self.chance = chance
        self.federation = Federation(topology or some_topology(chance), options or chance.choice(OPTIONS))
        self.names = [gateway.name for gateway in self.federation.topology.gateways]
        self.asked: dict[int, tuple[str, TopicFilter, tuple[Predicate, ...]]] = {}
        self._last = 0
        self.federation.connect_all()

    def settle(self) -> None:
        """Let everything arrive, in any order."""
        self.federation.settle(self.chance)

    def subscribe(self) -> None:
        self._last += 1
        gateway, text = self.chance.choice(self.names), self.chance.choice(FILTERS)
        predicates = self.chance.choice(PREDICATES)
        self.asked[self._last] = (gateway, TopicFilter.parse(text), predicates)
        self.federation.subscribe(gateway, self._last, text, predicates)

    def unsubscribe(self) -> None:
        number = self.chance.choice([*self.asked])
        gateway, _, _ = self.asked.pop(number)
        self.federation.unsubscribe(gateway, number)

    def churn(self) -> None:
        """Somebody comes or goes."""
        if len(self.asked) < 3 or (len(self.asked) < 12 and self.chance.random() < 0.5):
            self.subscribe()
        else:
            self.unsubscribe()

    def crowd(self) -> None:
        """Let some links be congested."""
        for name, peers in self.federation.peers.items():
            around = self.federation.topology.gateway(name).peers()
            peers.end_window({peer: QueueSample(0, 0, self.chance.choice(CROWDED)) for peer in around})

    def wanting(self, topic: str, value: int | None) -> set[str]:
        """The gateways with a client that wants an event."""
        attributes = {} if value is None else {"v": value}
        return {
            gateway
            for gateway, topic_filter, predicates in self.asked.values()
            if topic_filter.matches(topic)
            and any(all(test.accepts(attributes.get(test.attribute)) for test in each) for each in predicates)
        }

    def interested(self, topic: str) -> set[int]:
        """The clusters where somebody asks for something that the advertisement of *topic* may mean."""
        prefix = TopicFilter.parse("/".join([*topic.split("/")[:2], "#"]))
        return {
            self.federation.topology.gateway(gateway).cluster
            for gateway, topic_filter, _ in self.asked.values()
            if topic_filter.overlaps(prefix)
        }

    def publish(self) -> tuple[str, str, int | None]:
        """Somebody publishes something; return where and what."""
        host, topic = self.chance.choice(self.names), self.chance.choice(TOPICS)
        value = self.chance.choice((None, 0, 1, 2, 3, 4))
        payload = b"" if value is None else b'{"v": %d}' % value
        if not self.federation.options.wants_answers:  # as published, nobody waits: one who publishes has advertised
            effects = self.federation.peers[host].advertise(f"c@{host}", topic, self.federation.now)
            self.federation.perform(host, effects)
            self.settle()
        self.federation.local_deliveries.clear()
        self.federation.sent.clear()
        self.federation.publish(host, f"c@{host}", topic, payload)
        return host, topic, value

    def arrive(self) -> Counter[str]:
        """Let it arrive; return how often each gateway was handed it."""
        self.settle()
        self.federation.advance(BROKEN_WAIT_MAX)
        return Counter(handed.gateway for handed in self.federation.local_deliveries)

    def check(self, is_calm: bool) -> None:
        """Publish something while nothing else happens: it comes to all who want it, once, and no further.

        is_calm: nobody went lately; else a cluster may still be thought to want what it does not.
        """
        host, topic, value = self.publish()
        handed = self.arrive()
        assert max(handed.values(), default=1) == 1, f"handled twice: {handed}"
        wanting = self.wanting(topic, value) - {host}
        assert wanting <= handed.keys(), f"{topic} {value} of {host} never came to {wanting - handed.keys()}"
        assert host not in handed, f"{host} was handed its own event"
        self._check_routes(host, topic, wanting, is_calm)

    def _check_routes(self, host: str, topic: str, wanting: set[str], is_calm: bool) -> None:
        """Every copy goes towards somebody, but for one copy to a cluster that wants other events of the publisher."""
        topology = self.federation.topology
        entered: dict[int, list[str]] = {topology.gateway(host).cluster: [host]}
        towards: dict[str, set[str]] = {}
        for sender, peer, message in self.federation.sent:
            if not isinstance(message, Forward):
                continue
            here, there = topology.gateway(sender), topology.gateway(peer)
            if here.cluster == there.cluster:
                towards.setdefault(sender, set()).add(peer)
            else:
                entered.setdefault(there.cluster, []).append(peer)
        for cluster, entries in entered.items():
            assert len(entries) == 1, f"cluster {cluster} was entered at {entries}"
            if is_calm and cluster != topology.gateway(host).cluster:
                assert cluster in self.interested(topic), f"nobody in cluster {cluster} asks for anything like {topic}"

        def follow(gateway: str, before: str) -> bool:
            served = gateway in wanting
            for peer in towards.get(gateway, set()) - {before}:
                assert follow(peer, gateway), f"{gateway} sent {topic} to {peer}, where nobody wants it"
                served = True
            return served

        for (entry,) in entered.values():
            follow(entry, "")
