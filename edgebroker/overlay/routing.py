"""Routing of event copies: cluster index vectors (CIV), static (SNR) and inter-cluster dynamic routing (IDR) [SCOT
2.2, 2.6, 2.8].

What the bits mean depends on where a vector stands. We keep a publisher's host cluster and its target clusters
apart and write the published layouts, which mix them, for people only.

Over aLinks a copy goes wherever somebody in the cluster wants the event: the search tree has said so. Over iLinks
one goes to each cluster that this copy still has to reach (*pending*). Dynamic routing hands the clusters behind
congested iLinks to another copy: it *marks* that copy with them. A link that is down is congested whatever the
routing, so static routing goes around failures too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from edgebroker.overlay.congestion import LinkStatus


def clusters_of(civ: int) -> Iterator[int]:
    """The clusters in *civ*, in ascending order."""
    cluster = 0
    while civ:
        if civ & 1:
            yield cluster
        civ >>= 1
        cluster += 1


def civ_of(clusters: Iterable[int]) -> int:
    """The vector of *clusters*."""
    civ = 0
    for cluster in clusters:
        civ |= 1 << cluster
    return civ


def format_civ(civ: int, clusters: int) -> str:
    """One digit for each of so many *clusters*, cluster 0 rightmost."""
    return f"{civ:0{clusters}b}"


def advertisement_context(host_cluster: int, target_clusters: int) -> int:
    """The layout published for the publisher's gateway: the host cluster's bit is on whoever is there."""
    return target_clusters | 1 << host_cluster


def subscription_context(host_cluster: int, own_cluster: int, is_wanted: bool) -> int:
    """The layout published for the region mates of that gateway: two bits count, the host's and the own cluster's."""
    return 1 << host_cluster | is_wanted << own_cluster


class RoutingCase(IntEnum):
    """Who got the clusters behind congested iLinks. Case iii of the source is i or ii here and the rest later."""

    NONE = 0
    """No pending iLink is congested."""
    ANOTHER_CLUSTER = 1
    """Case i: the copy to another pending cluster."""
    NEIGHBOUR = 2
    """Case ii: the copy to a neighbour."""
    LAST_RESORT = 4
    """Case iv: an extra copy on the least loaded of the congested iLinks."""
    DETOUR = 5
    """All of them are down: an extra copy that passes through another gateway."""
    STUCK = 6
    """There is no such gateway: one copy for each waits until its iLink is up again."""


class RoutedCopy(NamedTuple):
    """One copy on its way out."""

    peer: str
    civ: int = 0
    """The clusters that it has to reach besides the receiver's own; one that passes through, only these."""
    passes: bool = False
    """Whether it only passes through the receiver."""


class RoutingDecision(NamedTuple):
    """The copies of one event that leave a gateway."""

    copies: list[RoutedCopy]
    case: RoutingCase
    chosen: str | None
    """The peer whose copy was marked, or that got the extra one."""


class RouteSelector:
    """The decisions of one gateway."""

    def __init__(
        self, neighbours: Sequence[str], across: Mapping[int, Sequence[str]], status: LinkStatus, is_dynamic: bool
    ) -> None:
        """across: other cluster -> the peers there, that of our home position first.

        is_dynamic: go around congested iLinks, not only around those that are down.
        """
        self._neighbours = tuple(neighbours)
        self._across = {cluster: tuple(dict.fromkeys(peers)) for cluster, peers in across.items()}
        self._status = status
        self._order = {peer: at for at, peer in enumerate((*neighbours, *(p for v in across.values() for p in v)))}
        self._is_bad = status.is_congested if is_dynamic else self._is_down

    def route(
        self,
        targets: Sequence[str],
        pending: int,
        preferred: str | None = None,
        may_walk: bool = True,
        avoided: Sequence[str] = (),
    ) -> RoutingDecision:
        """The copies for the neighbours *targets* and the clusters *pending*.

        preferred: marked if it can be, however loaded others are.  may_walk: whether the copy to a neighbour may be
        marked.  avoided: peers that a detour must not go to, for the event was there.
        """
        if not pending:
            return RoutingDecision([RoutedCopy(peer) for peer in targets], RoutingCase.NONE, None)
        free: dict[str, int] = {}
        congested: dict[str, int] = {}
        for cluster in clusters_of(pending):
            peer, is_free = self._way_to(cluster)
            (free if is_free else congested)[peer] = cluster
        if not congested:
            return RoutingDecision([RoutedCopy(peer) for peer in (*targets, *free)], RoutingCase.NONE, None)
        handed = civ_of(congested.values())
        case, chosen = RoutingCase.ANOTHER_CLUSTER, self._best(free, preferred)
        if chosen is None and may_walk:
            case, chosen = (
                RoutingCase.NEIGHBOUR,
                self._best([peer for peer in targets if not self._is_bad(peer)], preferred),
            )
        copies = [RoutedCopy(peer, handed if peer == chosen else 0) for peer in (*targets, *free)]
        if chosen is not None:
            return RoutingDecision(copies, case, chosen)
        chosen = self._best([peer for peer in congested if self._status.is_up(peer)], preferred)
        if chosen is not None:
            extra = RoutedCopy(chosen, handed & ~(1 << congested[chosen]))
            return RoutingDecision([*copies, extra], RoutingCase.LAST_RESORT, chosen)
        chosen = self._detour(pending, avoided)
        if chosen is not None:
            return RoutingDecision([*copies, RoutedCopy(chosen, handed, True)], RoutingCase.DETOUR, chosen)
        return RoutingDecision([*copies, *map(RoutedCopy, congested)], RoutingCase.STUCK, None)

    def _way_to(self, cluster: int) -> tuple[str, bool]:
        """The best iLink to *cluster*, and whether it is free: our home's, or another position's if that is not."""
        peers = self._across[cluster]
        for peer in peers:
            if not self._is_bad(peer):
                return peer, True
        return min(peers, key=self._status.load), False

    def _best(self, peers: Sequence[str] | Mapping[str, int], preferred: str | None) -> str | None:
        """The least loaded of *peers*, the first of equals; None if there are none."""
        if preferred in peers:
            return preferred
        return min(peers, key=lambda peer: (self._status.load(peer), self._order[peer]), default=None)

    def _detour(self, pending: int, avoided: Sequence[str]) -> str | None:
        """A peer to pass through: one of another cluster of the region, or else a neighbour.

        While at most m-1 of the links between m clusters are down, such a walk ends after m-1 steps at most: at its
        i-th gateway i dead links are behind it, so at most m-1-i are left for the m-i or more links to where it has
        not been.
        """
        if len(avoided) >= len(self._across):
            return None
        others = [peer for cluster, peers in self._across.items() if not pending >> cluster & 1 for peer in peers]
        for peers in (others, self._neighbours):
            usable = [peer for peer in peers if self._status.is_up(peer) and peer not in avoided]
            if usable:
                return self._best(usable, None)
        return None

    def _is_down(self, peer: str) -> bool:
        return not self._status.is_up(peer)
