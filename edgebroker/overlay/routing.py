"""Which copies of an event leave a gateway: static (SNR) and inter-cluster dynamic routing (IDR) [SCOT 2.6, 2.8].

Over aLinks a copy goes wherever somebody in the cluster wants the event: the search tree has said so. Over iLinks one
goes to each cluster that this copy still has to reach (*pending*). Dynamic routing hands the clusters behind congested
iLinks to another copy: it *marks* that copy with them. A link that is down is congested whatever the routing, so static
routing goes around failures too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from edgebroker.overlay.civ import civ_of, clusters_of
from edgebroker.overlay.congestion import LinkStatus


class Case(IntEnum):
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


class Copy(NamedTuple):
    """One copy on its way out."""

    peer: str
    civ: int = 0
    """The clusters that it has to reach besides the receiver's own; one that passes through, only these."""
    passes: bool = False
    """Whether it only passes through the receiver."""


class Routed(NamedTuple):
    """The copies of one event that leave a gateway."""

    copies: list[Copy]
    case: Case
    chosen: str | None
    """The peer whose copy was marked, or that got the extra one."""


class Routing:
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
    ) -> Routed:
        """The copies for the neighbours *targets* and the clusters *pending*.

        preferred: marked if it can be, however loaded others are.  may_walk: whether the copy to a neighbour may be
        marked.  avoided: peers that a detour must not go to, for the event was there.
        """
        if not pending:
            return Routed([Copy(peer) for peer in targets], Case.NONE, None)
        free: dict[str, int] = {}
        congested: dict[str, int] = {}
        for cluster in clusters_of(pending):
            peer, is_free = self._way_to(cluster)
            (free if is_free else congested)[peer] = cluster
        if not congested:
            return Routed([Copy(peer) for peer in (*targets, *free)], Case.NONE, None)
        handed = civ_of(congested.values())
        case, chosen = Case.ANOTHER_CLUSTER, self._best(free, preferred)
        if chosen is None and may_walk:
            case, chosen = Case.NEIGHBOUR, self._best([peer for peer in targets if not self._is_bad(peer)], preferred)
        copies = [Copy(peer, handed if peer == chosen else 0) for peer in (*targets, *free)]
        if chosen is not None:
            return Routed(copies, case, chosen)
        chosen = self._best([peer for peer in congested if self._status.is_up(peer)], preferred)
        if chosen is not None:
            extra = Copy(chosen, handed & ~(1 << congested[chosen]))
            return Routed([*copies, extra], Case.LAST_RESORT, chosen)
        chosen = self._detour(pending, avoided)
        if chosen is not None:
            return Routed([*copies, Copy(chosen, handed, True)], Case.DETOUR, chosen)
        return Routed([*copies, *map(Copy, congested)], Case.STUCK, None)

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
