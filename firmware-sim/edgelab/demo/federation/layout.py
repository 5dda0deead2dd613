"""The federation of the demo: sites of like gateways on this machine, and who is joined to whom."""

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
    """The way of a copy: how many links between sites and inside them, and the QoS with which it was published."""

    uplinks: int
    inside: int
    qos: int

    def __str__(self) -> str:
        if not self.uplinks and not self.inside:
            return f"QoS {self.qos}, one gateway"
        where = "another site" if self.uplinks else "same site"
        return f"QoS {self.qos}, {where}, {self.uplinks + self.inside} links"


class Layout:
    """Who stands where. The first site has most in hand: its middle gateway is the one that will be killed."""

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
        """Those between gateways of two sites."""

    def site(self, gateway: str) -> str:
        """Where *gateway* stands."""
        return self.topology.gateway(gateway).site

    def places(self) -> Iterator[str]:
        """Gateways for one subscriber after the other: each at another site, and there at another place."""
        sites = [[one.name for one in self.gateways if one.site == site] for site in self.sites]
        for number in count():
            site = sites[number % len(sites)]
            yield site[(number + number // len(sites)) % len(site)]

    def sites_of(self, uplink: Pair) -> Pair:
        """The sites that *uplink* joins."""
        return self.site(uplink[0]), self.site(uplink[1])

    def road(self, one: str, other: str, qos: int) -> CopyRoute:
        """The way of an event from gateway *one* to *other* while nothing fails."""
        origin, goal = self.topology.gateway(one), self.topology.gateway(other)
        if origin.cluster == goal.cluster:
            return CopyRoute(0, self._inside(origin, goal), qos)
        entry = self.topology.gateway(self.topology.holder(origin.home, goal.cluster))
        return CopyRoute(1, self._inside(entry, goal), qos)

    def draft(self, gateways: Mapping[str, tuple[Address, ...]], links: Mapping[Pair, Address]) -> TopologyDraft:
        """The topology with the addresses at which *gateways* await peers, and those of *links* that differ."""
        placed = (replace(one, address=gateways[one.name]) for one in self._draft.gateways)
        joined = (DraftLink(pair, pair[0], (address,)) for pair, address in links.items())
        return replace(self._draft, gateways=tuple(placed), links=tuple(joined))

    def _inside(self, start: TopologyGateway, goal: TopologyGateway) -> int:
        """The links between two gateways of a site, which are a tree."""
        reached, links = {start.name}, 0
        while goal.name not in reached:
            reached |= {near for name in reached for near in self.topology.gateway(name).neighbours}
            links += 1
        return links
