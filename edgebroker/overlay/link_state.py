"""Link state: which gateways are reachable, and through which peer, from the connections that every gateway reports
[SCOT 2.10].

A connection counts as open unless one of its ends reports that it is not, so nothing is sent while all connections are
open. A report replaces the previous one of the same gateway; a gateway that receives a new one floods it to all peers.

A gateway *steps aside* by reporting all its connections as closed while they are open: its disk takes nothing, so what
passes through it is held up. It gets what its own clients want over them all the same; no path leads through it.

A *suspect* is a peer without a connection from which nothing has arrived since: it may be dead, although others do not
know it yet. It does not count as reachable, and no path leads through it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edgebroker.overlay.messages import LinkStateUpdate
from edgebroker.overlay.topology.topology import Topology

RUN_BITS: Final = 32
"""The upper half of a report's number is the run of its gateway."""


class LinkStateTable:
    """The connections of a federation as one gateway knows them."""

    def __init__(self, topology: Topology, name: str, boot: int) -> None:
        """boot: the number of the gateway's run, which grows with every start."""
        gateways = topology.gateways
        self._names = {one.number: one.name for one in gateways}
        self._numbers = {one.name: one.number for one in gateways}
        self._clusters = {one.number: one.cluster for one in gateways}
        self._peers = {one.number: tuple(self._numbers[peer] for peer in one.peers()) for one in gateways}
        """Neighbours first: of two paths of equal length all gateways choose the one that enters a cluster last."""
        self._number = self._numbers[name]
        self._up: set[int] = set()
        self._lost: set[int] = set()
        self._suspect: set[int] = set()
        self._alive: set[int] = set()  # peers that reported that their connection with this gateway is closed
        self._is_aside = False
        self._aside: set[int] = set()  # other gateways that have stepped aside
        self._latest: dict[int, LinkStateUpdate] = {}
        self._last = boot << RUN_BITS
        self._next_hops: dict[int, int] | None = None  # gateway -> first peer on the path to it, the nearest first
        self._static_next_hops: dict[int, int] | None = None
        self._connected_clusters: int | None = None
        self._clusters_beyond: dict[str, int] = {}

    def name_of(self, number: int) -> str | None:
        """Return the name of gateway *number*; None if there is none."""
        return self._names.get(number)

    def others(self) -> list[int]:
        """Return the numbers of all other gateways."""
        return [number for number in self._names if number != self._number]

    def number_of(self, gateway: str) -> int:
        """Return the number of *gateway*."""
        return self._numbers[gateway]

    def cluster_of(self, number: int) -> int:
        """Return the cluster of gateway *number*."""
        return self._clusters[number]

    @property
    def number(self) -> int:
        """The number of this gateway."""
        return self._number

    # -- own connections ------------------------------------------------------------------------------------------

    def peer_up(self, peer: str) -> LinkStateUpdate | None:
        """Record an open connection with *peer*. Returns the report to flood; None if none was reported as closed."""
        number = self._numbers[peer]
        self._up.add(number)
        self._suspect.discard(number)
        self._alive.discard(number)
        self._next_hops = None
        if number not in self._lost:
            return None
        self._lost.discard(number)
        return self._statement()

    def peer_down(self, peer: str) -> None:
        """Record a closed connection with *peer*, perhaps for a moment only."""
        self._up.discard(self._numbers[peer])
        self._next_hops = None

    def declare_lost(self, peer: str) -> LinkStateUpdate:
        """Record that the connection with *peer* stays closed. Returns the report to flood.

        The peer may be dead, unless it has reported the same since.
        """
        number = self._numbers[peer]
        self._lost.add(number)
        if number not in self._alive:
            self._suspect.add(number)
        self._next_hops = None
        return self._statement()

    def step_aside(self, is_aside: bool) -> LinkStateUpdate:
        """Record that this gateway steps aside, or is back. Returns the report to flood."""
        self._is_aside = is_aside
        return self._statement()

    def is_aside(self, gateway: str) -> bool:
        """Return whether *gateway* has stepped aside."""
        return self._numbers[gateway] in self._aside

    def mark_alive(self, gateway: str) -> None:
        """Record that a message of *gateway* arrived over any path."""
        number = self._numbers[gateway]
        if number in self._suspect:
            self._suspect.discard(number)
            self._next_hops = None

    def is_lost(self, peer: str) -> bool:
        """Return whether the connection with *peer* is reported as closed."""
        return self._numbers[peer] in self._lost

    @property
    def has_lost(self) -> bool:
        """Whether any connection is reported as closed."""
        return bool(self._lost)

    # -- reports of others ----------------------------------------------------------------------------------------

    def receive(self, update: LinkStateUpdate) -> list[LinkStateUpdate]:
        """Handle a flooded report. Returns the reports to flood in turn; none if it was known."""
        if update.gateway == self._number:  # sent by an earlier run of this gateway
            if self._number in self._latest and update.number <= self._last:
                return []
            self._last = max(self._last, update.number)
            return [self._statement()]
        known = self._latest.get(update.gateway)
        if update.gateway not in self._names or (known is not None and known.number >= update.number):
            return []
        self._latest[update.gateway] = update
        if set(update.peers).issuperset(self._peers[update.gateway]):
            self._aside.add(update.gateway)
        else:
            self._aside.discard(update.gateway)
        if self._number in update.peers:
            self._alive.add(update.gateway)
            self._suspect.discard(update.gateway)
        else:
            self._alive.discard(update.gateway)
        self._next_hops = None
        return [update]

    def statements(self) -> tuple[LinkStateUpdate, ...]:
        """Return the latest report of every gateway, for a peer that may have missed some."""
        return tuple(self._latest.values())

    # -- reachability ---------------------------------------------------------------------------------------------

    def is_reachable(self, gateway: str) -> bool:
        """Return whether there is a path to *gateway*, it is no suspect and has not stepped aside."""
        return self.is_number_reachable(self._numbers[gateway])

    def is_number_reachable(self, number: int) -> bool:
        """Return the same for the gateway with *number*, which may be none of the topology."""
        return number in self._paths() and number not in self._suspect and number not in self._aside

    def are_connected(self, one: str, other: str) -> bool:
        """Return whether two peers, neither of them this gateway, are connected, as far as this gateway knows."""
        return self._numbers[other] in self._connected(self._numbers[one])

    def clusters_beyond(self, peer: str) -> int:
        """Return the vector of the clusters with some gateway of which *peer* is connected, as far as this gateway
        knows.
        """
        self._paths()
        civ = self._clusters_beyond.get(peer)
        if civ is None:
            civ = 0
            for number in self._connected(self._numbers[peer]):
                civ |= 1 << self._clusters[number]
            self._clusters_beyond[peer] = civ
        return civ

    def next_hop(self, gateway: str) -> str | None:
        """Return the first peer on the shortest open path to *gateway*, which may be a suspect; None if there is no
        path.
        """
        hop = self._paths().get(self._numbers[gateway])
        return None if hop is None else self._names[hop]

    def static_next_hop(self, gateway: str) -> str:
        """Return the first peer on the shortest path to *gateway* with all connections open. All gateways agree on
        these paths.
        """
        if self._static_next_hops is None:
            self._static_next_hops = self._search(is_whole=True)
        return self._names[self._static_next_hops[self._numbers[gateway]]]

    def connected_clusters(self) -> int:
        """Return the vector of the clusters to some gateway of which a path of open connections leads, over suspects
        only at its end: a suspect may be alive.
        """
        paths = self._paths()
        if self._connected_clusters is None:
            civ = 0
            for number in paths:
                civ |= 1 << self._clusters[number]
            self._connected_clusters = civ
        return self._connected_clusters

    def nearest(self, cluster: int) -> str | None:
        """Return the reachable gateway of *cluster* over the fewest hops; None if there is none."""
        for number in self._paths():
            if self._clusters[number] == cluster and number not in self._suspect:
                return self._names[number]
        return None

    def _statement(self) -> LinkStateUpdate:
        self._last += 1
        closed = self._peers[self._number] if self._is_aside else self._lost
        update = self._latest[self._number] = LinkStateUpdate(self._number, self._last, tuple(sorted(closed)))
        return update

    def _paths(self) -> dict[int, int]:
        if self._next_hops is None:
            self._next_hops = self._search(is_whole=False)
            self._connected_clusters = None
            self._clusters_beyond.clear()
        return self._next_hops

    def _search(self, is_whole: bool) -> dict[int, int]:
        """Return the first peer on the shortest path to each gateway (breadth-first search)."""
        found: dict[int, int] = {}
        peers = (
            self._peers[self._number] if is_whole else [peer for peer in self._peers[self._number] if peer in self._up]
        )
        frontier = [(peer, peer) for peer in peers]
        while frontier:
            following = []
            for number, hop in frontier:
                if number in found:
                    continue
                found[number] = hop
                if is_whole or number not in self._suspect:
                    beyond = self._peers[number] if is_whole else self._connected(number)
                    following += [(peer, hop) for peer in beyond if peer != self._number]
            frontier = following
        return found

    def _connected(self, number: int) -> Iterator[int]:
        """Iterate over the gateways with which another one is connected, as far as this gateway knows."""
        own = self._latest.get(number)
        for peer in self._peers[number]:
            other = self._latest.get(peer)
            if not (own is not None and peer in own.peers) and not (other is not None and number in other.peers):
                yield peer
