"""Routing of event copies: cluster index vectors (CIV), static (SNR) and inter-cluster dynamic routing (IDR) [SCOT 2.2,
2.6, 2.8].

In the published layouts the meaning of a bit depends on where the vector is used. This code keeps the publisher's host
cluster and the target clusters apart.

Over aLinks copies go to the neighbours that the search tree has found. Over iLinks one copy goes to each cluster that
the event still has to reach (*pending*). Dynamic routing *marks* another copy with the clusters behind congested
iLinks. A link that is down counts as congested in both modes, so static routing avoids failures too. A gateway with a
dear uplink marks a copy in the same way: one of them leaves, to a site with a cheaper uplink, and that site hands it on
to the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from edgebroker.overlay.congestion import LinkStatus


def clusters_of(civ: int) -> Iterator[int]:
    """Iterate over the clusters in *civ*, in ascending order."""
    cluster = 0
    while civ:
        if civ & 1:
            yield cluster
        civ >>= 1
        cluster += 1


def civ_of(clusters: Iterable[int]) -> int:
    """Return the vector of *clusters*."""
    civ = 0
    for cluster in clusters:
        civ |= 1 << cluster
    return civ


class RoutingCase(IntEnum):
    """How the clusters behind congested iLinks are reached. Case iii of the paper is i or ii here, and the rest
    later.
    """

    NONE = 0
    """No pending iLink is congested."""
    ANOTHER_CLUSTER = 1
    """Case i: marks the copy to another pending cluster."""
    NEIGHBOUR = 2
    """Case ii: marks the copy to a neighbour."""
    LAST_RESORT = 4
    """Case iv: sends an extra copy on the least loaded of the congested iLinks."""
    DETOUR = 5
    """All these iLinks are down or stalled: sends an extra copy that passes through another gateway."""
    STUCK = 6
    """There is no such gateway: one copy for each cluster waits until its iLink is up again."""
    CHEAPER_SITE = 7
    """No pending iLink is congested: marks the copy to a site whose uplink costs less than that of this one."""


class RoutedCopy(NamedTuple):
    """One copy to send."""

    peer: str
    civ: int = 0
    """The clusters that it has to reach besides the receiver's own; if it passes through, only these."""
    passes: bool = False
    """Whether it only passes through the receiver."""


class RoutingDecision(NamedTuple):
    """The copies of one event that leave a gateway."""

    copies: list[RoutedCopy]
    case: RoutingCase
    chosen: str | None
    """The peer whose copy was marked, or that got the extra one."""


class CheaperSite(NamedTuple):
    """A site that hands an event on, because its uplink costs less."""

    peer: str
    behind: int
    """The clusters to which it hands it on."""


class RouteSelector:
    """Selects the copies of one gateway."""

    def __init__(
        self, neighbours: Sequence[str], across: Mapping[int, Sequence[str]], status: LinkStatus, is_dynamic: bool
    ) -> None:
        """across: other cluster -> the peers there, that of the own home position first.

        is_dynamic: avoid congested iLinks, not only those that are down or stalled.
        """
        self._neighbours = tuple(neighbours)
        self._across = {cluster: tuple(dict.fromkeys(peers)) for cluster, peers in across.items()}
        self._status = status
        self._order = {peer: at for at, peer in enumerate((*neighbours, *(p for v in across.values() for p in v)))}
        self._is_avoided = status.is_congested if is_dynamic else status.is_failed

    def route(
        self,
        targets: Sequence[str],
        pending: int,
        preferred: str | None = None,
        may_walk: bool = True,
        avoided: Sequence[str] = (),
        cheaper: CheaperSite | None = None,
    ) -> RoutingDecision:
        """Return the copies for the neighbours *targets* and the clusters *pending*.

        preferred: marked if possible, whatever the loads. may_walk: whether the copy to a neighbour may be marked.
        avoided: peers that a detour must not use, because the event was there. cheaper: what `free_link` returned for
        one of the clusters, and others of them.
        """
        if not pending:
            return RoutingDecision([RoutedCopy(peer) for peer in targets], RoutingCase.NONE, None)
        free: dict[str, int] = {}
        congested: dict[str, int] = {}
        handed = 0 if cheaper is None else cheaper.behind
        for cluster in clusters_of(pending & ~handed):
            peer, is_free = self._best_link(cluster)
            (free if is_free else congested)[peer] = cluster
        if not congested and not handed:
            return RoutingDecision([RoutedCopy(peer) for peer in (*targets, *free)], RoutingCase.NONE, None)
        case = RoutingCase.ANOTHER_CLUSTER if congested else RoutingCase.CHEAPER_SITE
        handed |= civ_of(congested.values())
        chosen = self._best(free, preferred) if cheaper is None else cheaper.peer
        if chosen is None and may_walk:
            case, chosen = (
                RoutingCase.NEIGHBOUR,
                self._best([peer for peer in targets if not self._is_avoided(peer)], preferred),
            )
        copies = [RoutedCopy(peer, handed if peer == chosen else 0) for peer in (*targets, *free)]
        if chosen is not None:
            return RoutingDecision(copies, case, chosen)
        chosen = self._best([peer for peer in congested if not self._status.is_failed(peer)], preferred)
        if chosen is not None:
            extra = RoutedCopy(chosen, handed & ~(1 << congested[chosen]))
            return RoutingDecision([*copies, extra], RoutingCase.LAST_RESORT, chosen)
        chosen = self._detour(pending, avoided)
        if chosen is not None:
            return RoutingDecision([*copies, RoutedCopy(chosen, handed, True)], RoutingCase.DETOUR, chosen)
        return RoutingDecision([*copies, *map(RoutedCopy, congested)], RoutingCase.STUCK, None)

    def free_link(self, cluster: int) -> str | None:
        """Return the peer in *cluster* that gets its copies; None if all iLinks to it are congested."""
        peer, is_free = self._best_link(cluster)
        return peer if is_free else None

    def _best_link(self, cluster: int) -> tuple[str, bool]:
        """Return the best iLink to *cluster*, and whether it is free. That of the home position comes first."""
        peers = self._across[cluster]
        for peer in peers:
            if not self._is_avoided(peer):
                return peer, True
        return min(peers, key=self._status.load), False

    def _best(self, peers: Sequence[str] | Mapping[str, int], preferred: str | None) -> str | None:
        """Return the least loaded of *peers*, the first of equals; None if there are none."""
        if preferred in peers:
            return preferred
        return min(peers, key=lambda peer: (self._status.load(peer), self._order[peer]), default=None)

    def _detour(self, pending: int, avoided: Sequence[str]) -> str | None:
        """Return a peer to pass through: one of another cluster of the region, or else a neighbour.

        While at most m-1 of the links between m clusters are down, such a walk ends after at most m-1 steps: at its
        i-th gateway i dead links are behind it, so at most m-1-i are left for the m-i or more links to clusters that it
        has not visited.
        """
        if len(avoided) >= len(self._across):
            return None
        others = [peer for cluster, peers in self._across.items() if not pending >> cluster & 1 for peer in peers]
        for peers in (others, self._neighbours):
            usable = [peer for peer in peers if not self._status.is_failed(peer) and peer not in avoided]
            if usable:
                return self._best(usable, None)
        return None
