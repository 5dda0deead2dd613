"""The federation of the demo: equal gateways at several sites on this machine, and the connections between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Final, NamedTuple

from edgebroker.names import Address
from edgebroker.overlay.topology.draft import UPLINKS, DraftLink, TopologyDraft
from edgebroker.overlay.topology.planner import plan
from edgebroker.overlay.topology.topology import Topology, TopologyGateway

HOST: Final = "127.0.0.1"
SITES: Final = ("north", "south", "east", "west", "centre")
UPLINK: Final = "wan"

Pair = tuple[str, str]
"""Two gateways, or two sites, in the order of the topology."""


class CopyRoute(NamedTuple):
    """The route of a copy: the number of links between sites and inside them, and the QoS of the message."""

    uplinks: int
    inside: int
    qos: int

    def __str__(self) -> str:
        if not self.uplinks and not self.inside:
            return f"QoS {self.qos}, one gateway"
        where = "another site" if self.uplinks else "same site"
        return f"QoS {self.qos}, {where}, {self.uplinks + self.inside} links"


class Layout:
    """The positions of the gateways. The first site has the most connections: its middle gateway is the one that is
    killed.
    """

    def __init__(self, sites: int, gateways: int) -> None:
        self._draft = plan("demo", dict.fromkeys(SITES[:sites], gateways), UPLINKS[UPLINK], 1)
        self.topology = Topology(self._draft)
        self.gateways = self.topology.gateways
        self.sites = tuple(site.name for site in self.topology.sites)
        self.links: tuple[Pair, ...] = tuple(
            (one.name, peer)
            for one in self.gateways
            for peer in one.peers()
            if self.topology.gateway(peer).number > one.number
        )
        """Connections between gateways; the first of a pair dials."""
        self.uplinks = tuple(pair for pair in self.links if self.site(pair[0]) != self.site(pair[1]))
        """The connections between gateways of two sites."""

    def site(self, gateway: str) -> str:
        """Return the site of *gateway*."""
        return self.topology.gateway(gateway).site

    def places(self) -> Iterator[str]:
        """Yield a gateway for each subscriber: each at another site, and there at another position."""
        sites = [[one.name for one in self.gateways if one.site == site] for site in self.sites]
        for number in count():
            site = sites[number % len(sites)]
            yield site[(number + number // len(sites)) % len(site)]

    def sites_of(self, uplink: Pair) -> Pair:
        """Return the sites that *uplink* joins."""
        return self.site(uplink[0]), self.site(uplink[1])

    def route(self, one: str, other: str, qos: int) -> CopyRoute:
        """Return the route of an event from gateway *one* to *other* while nothing fails."""
        origin, goal = self.topology.gateway(one), self.topology.gateway(other)
        if origin.cluster == goal.cluster:
            return CopyRoute(0, self._inside(origin, goal), qos)
        entry = self.topology.gateway(self.topology.holder(origin.home, goal.cluster))
        return CopyRoute(1, self._inside(entry, goal), qos)

    def draft(self, gateways: Mapping[str, tuple[Address, ...]], links: Mapping[Pair, Address]) -> TopologyDraft:
        """Return the topology with the addresses at which *gateways* accept peers, and those of *links* that differ."""
        placed = (replace(one, address=gateways[one.name]) for one in self._draft.gateways)
        joined = (DraftLink(pair, pair[0], (address,)) for pair, address in links.items())
        return replace(self._draft, gateways=tuple(placed), links=tuple(joined))

    def _inside(self, start: TopologyGateway, goal: TopologyGateway) -> int:
        """Return the number of links between two gateways of a site, which are a tree."""
        reached, links = {start.name}, 0
        while goal.name not in reached:
            reached |= {near for name in reached for near in self.topology.gateway(name).neighbours}
            links += 1
        return links
