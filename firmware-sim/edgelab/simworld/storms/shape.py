"""The shape of a federation: its factor, its sites, and the positions of each gateway."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from edgebroker.federation.options import DEFAULT_OPTIONS
from edgebroker.names import Address
from edgebroker.overlay.topology.draft import UPLINKS, DraftGateway, Site, TopologyDraft
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.planner import contractions
from edgebroker.overlay.topology.topology import SIMULATED_PORT, Topology

TREES: Final = (("a",), ("a-b",), ("a-b-c",), ("a-b-c-d",), ("b-a-c", "a-d"))
TREE_WEIGHTS: Final = (5, 6, 4, 1, 2)
CLUSTERS: Final = (1, 2, 3, 4)
CLUSTER_WEIGHTS: Final = (1, 6, 5, 2)
GATEWAYS_MAX: Final = 6
"""Larger federations take longer and find no more: faults between gateways involve few of them."""
SLOW_DISKS: Final = 0.25
"""The share of gateways whose SD card stalls for up to 0.4 s."""
DYNAMIC: Final = 0.33
"""The share of federations that route around congestion."""
METERED: Final = 0.1
"""The share of sites with an uplink that is paid by volume, where messages are batched."""

COVERING_BYTES: Final = (4_096, 64)
"""The bytes in which sites say what they want, in turn: two or three subscriptions are more than fit into the least."""


@dataclass(frozen=True, slots=True)
class FederationShape:
    """`tree`: the paths of the factor. `sites`: for each its gateways, and for each gateway its positions.

    A position is one letter, so `("ab", "c")` is a site of two gateways, the first of which holds a and b. `uplinks`:
    the kind of each site's. `slow_disks`: gateways whose syncs take long. `is_dynamic`: whether routing is. `lease_s`:
    the time for which interests of a peer are valid while its link is down. `outbox_messages`: how many may wait for a
    peer; None: as many as usual.
    """

    tree: tuple[str, ...]
    sites: tuple[tuple[str, ...], ...]
    uplinks: tuple[str, ...]
    slow_disks: tuple[str, ...] = ()
    is_dynamic: bool = False
    lease_s: int = DEFAULT_OPTIONS.lease_s
    outbox_messages: int | None = None

    def __str__(self) -> str:
        sites = zip(self.sites, self.uplinks, strict=True)
        drawn = ("|".join(site) + " (metered)" * (kind == "metered") for site, kind in sites)
        lease = [] if self.lease_s == DEFAULT_OPTIONS.lease_s else [f"leases {self.lease_s} s"]
        outbox = [] if self.outbox_messages is None else [f"outboxes of {self.outbox_messages}"]
        traits = [
            *(["dynamic"] if self.is_dynamic else []),
            *lease,
            *outbox,
            *(f"slow disk {name}" for name in self.slow_disks),
        ]
        return ", ".join([f"{' '.join(self.tree)}: {' + '.join(drawn)}", *traits])

    @classmethod
    def draw(cls, chance: Random) -> FederationShape:
        """Draw one to four sites of any size, each a contraction of the factor."""
        tree = chance.choices(TREES, TREE_WEIGHTS)[0]
        factor = Factor.parse(*tree)
        clusters = chance.choices(CLUSTERS, CLUSTER_WEIGHTS)[0]
        sizes = [min(chance.randint(1, len(factor)) for _ in range(2)) for _ in range(clusters)]
        while sum(sizes) > GATEWAYS_MAX:
            sizes[sizes.index(max(sizes))] -= 1
        parts = contractions(factor, sorted({len(factor), *sizes}, reverse=True))
        sites = []
        for size in sizes:
            held = list(parts[size])
            chance.shuffle(held)
            sites.append(tuple("".join(chance.sample(part, len(part))) for part in held))
        uplinks = tuple("metered" if chance.random() < METERED else "wan" for _ in sizes)
        names = [f"{held}{number}" for number, site in enumerate(sites) for held in site]
        slow_disks = tuple(name for name in names if chance.random() < SLOW_DISKS)
        return cls(tree, tuple(sites), uplinks, slow_disks, chance.random() < DYNAMIC)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the gateways: that of site 0 with the positions b and c is `bc0`."""
        return tuple(f"{held}{number}" for number, site in enumerate(self.sites) for held in site)

    def topology(self) -> Topology:
        """Return the federation as a gateway reads it from a file."""
        sites = tuple(
            Site(f"s{number}", number, replace(UPLINKS[kind], covering_bytes=COVERING_BYTES[number % 2]))
            for number, kind in enumerate(self.uplinks)
        )
        gateways = [
            (f"{held}{number}", f"s{number}", tuple(held)) for number, site in enumerate(self.sites) for held in site
        ]
        drafted = tuple(
            DraftGateway(name, number, site, positions, (Address(name, SIMULATED_PORT),))
            for number, (name, site, positions) in enumerate(gateways)
        )
        return Topology(TopologyDraft("storm", self.tree, sites, drafted))
