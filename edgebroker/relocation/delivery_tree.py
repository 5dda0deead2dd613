"""The tree on which a publisher's events travel, and what it would cost from every gateway [GRAPE 4.2].

In one cluster the tree is the cluster itself, rooted at the publisher's gateway. In a federation of several it is the
tree of its cluster, an iLink to each other cluster with readers, and the tree of that cluster, rooted where the iLink
ends.

`load(c)` is the number of gateways that the events of a trace session would enter if they were published at c, all
together. `delay(c)` is the mean time from the publisher to a client. A walk over the tree from every candidate would
take N * N steps. Both are computed by *rerooting* in N: where the root moves over a link, only this link turns round:

    load(c') = load(c) - |down(c', c)| + |down(c, c')|

where down(x, p) is the union of the bit vectors at and behind x, seen from p. Likewise the sum of the times of all
deliveries changes by those on either side of the link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from edgebroker.instants import Duration
from edgebroker.trace_records import QueueDelays, TraceRecord


class ClusterTree:
    """The gateways of one cluster, in an order in which each but the first comes after its parent."""

    __slots__ = ("brokers", "children", "parents", "places")

    def __init__(self, neighbours: Mapping[str, Sequence[str]]) -> None:
        """neighbours: for every gateway those that aLinks join it with; a tree."""
        self.brokers = [next(iter(neighbours))]
        self.places = {self.brokers[0]: 0}
        self.parents = [0]
        """The place of each one's parent."""
        self.children: list[list[int]] = []
        for place, broker in enumerate(self.brokers):
            new = [other for other in neighbours[broker] if other not in self.places]
            self.children.append([*range(len(self.brokers), len(self.brokers) + len(new))])
            for other in new:
                self.places[other] = len(self.brokers)
                self.brokers.append(other)
                self.parents.append(place)


class OverlayTrees:
    """The clusters of a federation, and where iLinks lead. It is the same for all publishers."""

    def __init__(
        self,
        clusters: Sequence[Mapping[str, Sequence[str]]],
        entry: Callable[[str, int], str],
        is_precise: bool = True,
    ) -> None:
        """clusters: for each cluster its gateways with their neighbours. entry: the gateway of cluster j that a gateway
        of another one sends events to. is_precise: events cross an iLink only if the cluster wants them.
        """
        self.clusters = [ClusterTree(neighbours) for neighbours in clusters]
        self.cluster_of = {broker: at for at, tree in enumerate(self.clusters) for broker in tree.brokers}
        self.entry = entry
        self.is_precise = is_precise


class HopDelays:
    """The time from gateway to gateway and to clients, from the records of a session.

    A queue without samples is empty. Where a gateway sent no record it counts as an average one.
    """

    def __init__(self, records: Iterable[TraceRecord], with_links: bool) -> None:
        self._delays = {record.broker: record.delays for record in records}
        known = self._delays.values()
        links = [time for each in known for time in (each.links or {}).values()] if with_links else []
        self._with_links = with_links
        self._usual_link = sum(links) // max(1, len(links))
        work = sum(each.input + each.matching for each in known) // max(1, len(self._delays))
        self._usual = QueueDelays(matching=work)

    def hop(self, broker: str, peer: str) -> Duration:
        """Return the time of an event from its arrival at *broker* to its arrival at *peer*."""
        delays = self._delays.get(broker, self._usual)
        time = delays.input + delays.matching + (delays.outputs or {}).get(peer, 0)
        return time + (delays.links or {}).get(peer, self._usual_link) if self._with_links else time

    def link(self, broker: str, peer: str) -> Duration:
        """Return the time on the way from *broker* to *peer*; 0 if links are not counted."""
        delays = self._delays.get(broker, self._usual)
        return (delays.links or {}).get(peer, self._usual_link) if self._with_links else 0

    def to_clients(self, broker: str) -> Duration:
        """Return the time of an event from its arrival at *broker* to its local clients."""
        delays = self._delays.get(broker, self._usual)
        return delays.input + delays.matching + delays.clients


class ClusterCosts:
    """What events would cost in one cluster from every gateway in it, in the order of `ClusterTree.brokers`."""

    __slots__ = ("all", "clients", "deliveries", "loads", "times")

    def __init__(self, tree: ClusterTree, records: Mapping[str, TraceRecord], hops: HopDelays) -> None:
        own = [records.get(broker) for broker in tree.brokers]
        down = [0 if record is None else record.delivered for record in own]
        count = [0 if record is None else record.deliveries for record in own]
        at_root, last = [*down], range(len(own) - 1, 0, -1)
        for place in last:  # the leaves first
            down[tree.parents[place]] |= down[place]
            count[tree.parents[place]] += count[place]
        self.all = down[0]
        """The bit vector of the events that the cluster wants."""
        self.deliveries = count[0]
        self.clients = sum(
            record.deliveries * hops.to_clients(record.broker) for record in own if record and record.deliveries
        )
        """The sum of the times from the last gateway to clients, of all deliveries."""
        up = self._seen_from_children(tree, at_root, down)
        self.loads = [sum(vector.bit_count() for vector in down)]
        """For each gateway as the root the number of events that enter gateways."""
        self.times = [0]
        """For each gateway as the root the sum of the times to the last gateways, of all deliveries."""
        brokers = tree.brokers
        for place in range(1, len(brokers)):
            self.times[0] += count[place] * hops.hop(brokers[tree.parents[place]], brokers[place])
        for place in range(1, len(brokers)):
            parent = tree.parents[place]
            self.loads.append(self.loads[parent] - down[place].bit_count() + up[place].bit_count())
            there = count[place] * hops.hop(brokers[parent], brokers[place])
            back = (self.deliveries - count[place]) * hops.hop(brokers[place], brokers[parent])
            self.times.append(self.times[parent] - there + back)

    def _seen_from_children(self, tree: ClusterTree, own: Sequence[int], down: Sequence[int]) -> list[int]:
        """Return for each place the union of the bit vectors at and behind its parent, as it sees them."""
        up = [0] * len(own)
        for place, children in enumerate(tree.children):
            before = own[place] | up[place]
            for child in children:
                up[child] = before
                before |= down[child]
            after = 0
            for child in reversed(children):
                up[child] |= after
                after |= down[child]
        return up


class DeliveryTree:
    """The records of one trace session, and the costs that follow for each gateway."""

    def __init__(self, overlay: OverlayTrees, records: Iterable[TraceRecord], with_links: bool = True) -> None:
        """with_links: count the time on links between gateways; the published estimate does not."""
        self._overlay = overlay
        self._records = {record.broker: record for record in records if record.broker in overlay.cluster_of}
        self.hops = HopDelays(self._records.values(), with_links)
        """The time from gateway to gateway."""
        self._costs = [ClusterCosts(tree, self._records, self.hops) for tree in overlay.clusters]
        self._all = 0
        for costs in self._costs:
            self._all |= costs.all
        self._deliveries = sum(costs.deliveries for costs in self._costs)

    @property
    def brokers(self) -> list[str]:
        """Return the gateways that sent a record; the publisher may move to any of them."""
        return [*self._records]

    def load(self, candidate: str) -> int:
        """Return how many gateways the session's events would enter, all together."""
        overlay, own = self._overlay, self._overlay.cluster_of[candidate]
        wanted = self._all.bit_count()
        load = wanted - self._costs[own].all.bit_count()
        for cluster, (tree, costs) in enumerate(zip(overlay.clusters, self._costs, strict=True)):
            if cluster == own:
                load += costs.loads[tree.places[candidate]]
            elif costs.all:
                load += costs.loads[tree.places[overlay.entry(candidate, cluster)]]
                load += 0 if overlay.is_precise else wanted - costs.all.bit_count()
        return load

    def delay(self, candidate: str, ping: Duration) -> float:
        """Return the mean time from the publisher to a client. ping: the round trip from the publisher to *candidate*.

        Without any delivery it is the way to the candidate.
        """
        overlay, own = self._overlay, self._overlay.cluster_of[candidate]
        total = 0
        for cluster, (tree, costs) in enumerate(zip(overlay.clusters, self._costs, strict=True)):
            if not costs.deliveries:
                continue
            root = candidate
            if cluster != own:
                root = overlay.entry(candidate, cluster)
                total += costs.deliveries * self.hops.hop(candidate, root)
            total += costs.times[tree.places[root]] + costs.clients
        return ping / 2 + total / max(1, self._deliveries)

    def distance(self, broker: str, other: str) -> Duration:
        """Return the time on links from *broker* to *other* on the tree, without queues; 0 if links are not counted."""
        overlay = self._overlay
        cluster = overlay.cluster_of[other]
        root, time = broker, 0
        if overlay.cluster_of[broker] != cluster:
            root = overlay.entry(broker, cluster)
            time = self.hops.link(broker, root)
        tree = overlay.clusters[cluster]
        one, another = tree.places[root], tree.places[other]
        while one != another:  # a parent has a lower place
            low, one = max(one, another), min(one, another)
            another = tree.parents[low]
            time += self.hops.link(tree.brokers[low], tree.brokers[another])
        return time

    def crossings(self, candidate: str) -> dict[int, int]:
        """Return for each other cluster with readers how many of the session's events would cross the iLink to it."""
        overlay, own = self._overlay, self._overlay.cluster_of[candidate]
        wanted = self._all.bit_count()
        return {
            cluster: costs.all.bit_count() if overlay.is_precise else wanted
            for cluster, costs in enumerate(self._costs)
            if cluster != own and costs.all
        }

    @property
    def marked_share(self) -> float:
        """Return the share of the copies that had been on a detour."""
        copies = sum(record.copies for record in self._records.values())
        return sum(record.marked for record in self._records.values()) / max(1, copies)
