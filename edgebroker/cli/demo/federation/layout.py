"""The federation of the demo: sites of like gateways on this machine, with a relay in each of their uplinks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Final, NamedTuple

from edgebroker.cli.freeports import free_ports
from edgebroker.overlay.address import Address
from edgebroker.overlay.draft import Draft, DraftLink
from edgebroker.overlay.plan import plan
from edgebroker.overlay.topology import Gateway, Topology
from edgebroker.overlay.uplink import UPLINKS

HOST: Final = "127.0.0.1"
SITES: Final = ("north", "south", "east", "west", "centre")
UPLINK: Final = "wan"

Pair = tuple[str, str]
"""Two gateways, or two sites, in the order of the topology."""


class Road(NamedTuple):
    """The way of a copy: how many links between sites and inside them, and its QoS."""

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
        drafted = plan("demo", dict.fromkeys(SITES[:sites], gateways), UPLINKS[UPLINK], 1)
        addresses = [Address(HOST, port) for port in free_ports(len(drafted.gateways))]
        placed = [replace(one, address=(at,)) for one, at in zip(drafted.gateways, addresses, strict=True)]
        self._draft = replace(drafted, gateways=tuple(placed))
        self.topology = Topology(self._draft)
        self.gateways = self.topology.gateways
        self.sites = tuple(site.name for site in self.topology.sites)
        self.uplinks: tuple[Pair, ...] = tuple(
            (one.name, peer)
            for one in self.gateways
            for peer in one.peers()
            if self.site(peer) != one.site and self.topology.gateway(peer).number > one.number
        )
        """Connections between gateways of two sites; the first of a pair dials."""

    def site(self, gateway: str) -> str:
        """Where *gateway* stands."""
        return self.topology.gateway(gateway).site

    def places(self) -> Iterator[str]:
        """Gateways for one subscriber after the other: each at another site, and there at another place."""
        sites = [[one.name for one in self.gateways if one.site == site] for site in self.sites]
        for number in count():
            site = sites[number % len(sites)]
            yield site[(number + number // len(sites)) % len(site)]

    def address(self, gateway: str) -> Address:
        """Where *gateway* awaits peers."""
        return next(one.address[0] for one in self._draft.gateways if one.name == gateway)

    def sites_of(self, uplink: Pair) -> Pair:
        """The sites that *uplink* joins."""
        return self.site(uplink[0]), self.site(uplink[1])

    def road(self, one: str, other: str, qos: int) -> Road:
        """The way of an event from gateway *one* to *other* while nothing fails."""
        origin, goal = self.topology.gateway(one), self.topology.gateway(other)
        if origin.cluster == goal.cluster:
            return Road(0, self._inside(origin, goal), qos)
        entry = self.topology.gateway(self.topology.holder(origin.home, goal.cluster))
        return Road(1, self._inside(entry, goal), qos)

    def with_relays(self, relays: Mapping[Pair, int]) -> Draft:
        """The topology in which each uplink leads through the relay at its port."""
        links = (DraftLink(pair, pair[0], (Address(HOST, port),)) for pair, port in relays.items())
        return replace(self._draft, links=tuple(links))

    def _inside(self, start: Gateway, goal: Gateway) -> int:
        """The links between two gateways of a site, which are a tree."""
        reached, links = {start.name}, 0
        while goal.name not in reached:
            reached |= {near for name in reached for near in self.topology.gateway(name).neighbours}
            links += 1
        return links
