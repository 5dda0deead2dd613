"""Link state: which gateways are reachable, and through which peer, from the connections that every gateway
reports [SCOT 2.10].

A connection is taken to be there unless one of its ends says that it is not. So while nothing is wrong nobody says
anything. What a gateway says replaces what it said before; who learns something new tells all its peers.

A peer that is *doubted* is one that we have no connection with and have not heard of since: it may be dead,
although others do not know it yet. It does not count as reached, and nothing is sent through it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edgebroker.overlay.messages import LinkStateUpdate
from edgebroker.overlay.topology.topology import Topology

RUN_BITS: Final = 32
"""The upper half of a statement's number is its gateway's run."""


class LinkStateTable:
    """The connections of a federation as one gateway knows them."""

    def __init__(self, topology: Topology, name: str, boot: int) -> None:
        """boot: grows with every run of the gateway."""
        gateways = topology.gateways
        self._names = {one.number: one.name for one in gateways}
        self._numbers = {one.name: one.number for one in gateways}
        self._clusters = {one.number: one.cluster for one in gateways}
        self._peers = {one.number: tuple(self._numbers[peer] for peer in one.peers()) for one in gateways}
        """Neighbours first: of two ways of one length all gateways choose that which enters a cluster last."""
        self._me = self._numbers[name]
        self._up: set[int] = set()
        self._lost: set[int] = set()
        self._suspect: set[int] = set()
        self._latest: dict[int, LinkStateUpdate] = {}
        self._last = boot << RUN_BITS
        self._next_hops: dict[int, int] | None = None  # gateway -> first peer on the way there, the nearest first
        self._static_next_hops: dict[int, int] | None = None

    def name_of(self, number: int) -> str | None:
        """The gateway *number*; None: there is none."""
        return self._names.get(number)

    def number_of(self, gateway: str) -> int:
        """The number of *gateway*."""
        return self._numbers[gateway]

    @property
    def number(self) -> int:
        """Our own."""
        return self._me

    # -- what happens to our connections --------------------------------------------------------------------------

    def peer_up(self, peer: str) -> LinkStateUpdate | None:
        """The connection with *peer* is there. Returns what to say of it: nothing if nobody was told otherwise."""
        number = self._numbers[peer]
        self._up.add(number)
        self._suspect.discard(number)
        self._next_hops = None
        if number not in self._lost:
            return None
        self._lost.discard(number)
        return self._statement()

    def peer_down(self, peer: str) -> None:
        """The connection with *peer* is not there; perhaps for a moment only."""
        self._up.discard(self._numbers[peer])
        self._next_hops = None

    def declare_lost(self, peer: str) -> LinkStateUpdate:
        """It stays away. Returns what to say of it."""
        number = self._numbers[peer]
        self._lost.add(number)
        self._suspect.add(number)
        self._next_hops = None
        return self._statement()

    def mark_alive(self, gateway: str) -> None:
        """*gateway* said something just now, over whomever: it lives."""
        number = self._numbers[gateway]
        if number in self._suspect:
            self._suspect.discard(number)
            self._next_hops = None

    def is_lost(self, peer: str) -> bool:
        """Whether others were told that there is no connection with *peer*."""
        return self._numbers[peer] in self._lost

    @property
    def has_lost(self) -> bool:
        """Whether there is any such peer."""
        return bool(self._lost)

    # -- what others say ------------------------------------------------------------------------------------------

    def receive(self, said: LinkStateUpdate) -> list[LinkStateUpdate]:
        """Somebody passes on what a gateway *said*; return what all others must be told because of it."""
        if said.gateway == self._me:  # of an earlier run
            if self._me in self._latest and said.number <= self._last:
                return []
            self._last = max(self._last, said.number)
            return [self._statement()]
        known = self._latest.get(said.gateway)
        if said.gateway not in self._names or (known is not None and known.number >= said.number):
            return []
        self._latest[said.gateway] = said
        self._next_hops = None
        return [said]

    def statements(self) -> tuple[LinkStateUpdate, ...]:
        """The last words of everybody, for a peer that may have missed them."""
        return tuple(self._latest.values())

    # -- what follows ---------------------------------------------------------------------------------------------

    def is_reachable(self, gateway: str) -> bool:
        """Whether there is a way to *gateway*, and no reason to doubt that it lives."""
        number = self._numbers[gateway]
        return number in self._found() and number not in self._suspect

    def are_connected(self, one: str, other: str) -> bool:
        """Whether two peers, neither of them this gateway, have a connection, as far as we know."""
        return self._numbers[other] in self._connected(self._numbers[one])

    def next_hop(self, gateway: str) -> str | None:
        """The peer over which *gateway* is reached, if anyhow; one that is doubted, too."""
        hop = self._found().get(self._numbers[gateway])
        return None if hop is None else self._names[hop]

    def static_next_hop(self, gateway: str) -> str:
        """The peer that is nearest to *gateway* when all connections are there. All gateways agree on such ways."""
        if self._static_next_hops is None:
            self._static_next_hops = self._search(is_whole=True)
        return self._names[self._static_next_hops[self._numbers[gateway]]]

    def nearest(self, cluster: int) -> str | None:
        """The gateway of *cluster* that is reached over the fewest others; None: there is none."""
        for number in self._found():
            if self._clusters[number] == cluster and number not in self._suspect:
                return self._names[number]
        return None

    def _statement(self) -> LinkStateUpdate:
        self._last += 1
        said = self._latest[self._me] = LinkStateUpdate(self._me, self._last, tuple(sorted(self._lost)))
        return said

    def _found(self) -> dict[int, int]:
        if self._next_hops is None:
            self._next_hops = self._search(is_whole=False)
        return self._next_hops

    def _search(self, is_whole: bool) -> dict[int, int]:
        """The first peer on the shortest way to each gateway, by breadth."""
        found: dict[int, int] = {}
        around = self._peers[self._me] if is_whole else [peer for peer in self._peers[self._me] if peer in self._up]
        waiting = [(peer, peer) for peer in around]
        while waiting:
            further = []
            for number, hop in waiting:
                if number in found:
                    continue
                found[number] = hop
                if is_whole or number not in self._suspect:
                    beyond = self._peers[number] if is_whole else self._connected(number)
                    further += [(peer, hop) for peer in beyond if peer != self._me]
            waiting = further
        return found

    def _connected(self, number: int) -> Iterator[int]:
        """The gateways with which another one has a connection, as far as we know."""
        own = self._latest.get(number)
        for peer in self._peers[number]:
            other = self._latest.get(peer)
            if not (own is not None and peer in own.peers) and not (other is not None and number in other.peers):
                yield peer
