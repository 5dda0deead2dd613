"""The topology of a federation: sites, gateways, the positions they hold, and the peers of each gateway.

A site is a cluster of SCOT. A gateway holds one or several positions of its cluster, connected in the factor, so that
the gateways of a site are a tree too: a contraction of the factor. Between two gateways there is one connection for all
links between their positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.digests import sha256
from edgebroker.names import Address, ClientAddress
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.dialling import DialPlan, dial
from edgebroker.overlay.topology.draft import (
    UPLINKS,
    DraftGateway,
    Site,
    TopologyDraft,
    TopologyInvalid,
    TopologyMistake,
    Uplink,
    nearest,
)
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.validation import holders, mistakes, neighbours

DIGEST_DIGITS: Final = 16  # 64 bits: two files of one federation differ by an edit, not by an attack
SIMULATED_PORT: Final = 1


@dataclass(frozen=True, slots=True)
class TopologyGateway:
    """A gateway in its federation."""

    name: str
    number: int
    """The upper ten bits of the numbers of its publishers."""
    site: str
    cluster: int
    """The cluster index of its site."""
    positions: tuple[str, ...]
    neighbours: tuple[str, ...]
    """The gateways linked by aLinks, by number; they are links 1, 2 ... of its trits, where 0 means its own clients."""
    across: Mapping[int, Mapping[str, str]]
    """Other cluster -> own position -> the gateway there that holds it: the iLinks."""

    @property
    def home(self) -> str:
        """The position, and so the region, of its local publishers."""
        return self.positions[0]

    def peers(self) -> tuple[str, ...]:
        """Return every gateway it is connected with: neighbours, then those across, each once."""
        across = (peer for region in self.across.values() for peer in region.values())
        return tuple(dict.fromkeys((*self.neighbours, *across)))


@dataclass(frozen=True, slots=True)
class ConnectionPlan:
    """The one connection between two gateways."""

    dial: DialPlan
    uplink: Uplink
    """`lan` inside a site; between sites the stricter of both uplinks."""


class Topology:
    """A federation: the factor, its sites by cluster index, its gateways by number. Immutable."""

    __slots__ = (
        "_entries",
        "_gateways",
        "_holders",
        "_links",
        "_sites",
        "digest",
        "draft",
        "factor",
        "federation",
        "meaning",
        "sites",
    )

    def __init__(self, draft: TopologyDraft) -> None:
        """Validate and index *draft*. Raises TopologyInvalid with all mistakes."""
        found = mistakes(draft)
        if found:
            raise TopologyInvalid(found)
        self.draft = draft
        self.federation = draft.federation
        self.factor = Factor.parse(*draft.tree)
        self.sites: tuple[Site, ...] = tuple(sorted(draft.sites, key=lambda site: site.index))
        self._sites = {site.index: site for site in self.sites}
        self._entries = {gateway.name: gateway for gateway in draft.gateways}
        self._links = {frozenset(link.between): link for link in draft.links}
        self._holders = holders(draft, self.factor)
        neighbours_of = neighbours(self._holders, self.factor)
        ordered = sorted(draft.gateways, key=lambda one: one.number)
        built = [self._gateway_of(gateway, neighbours_of[gateway.name]) for gateway in ordered]
        self._gateways = {gateway.name: gateway for gateway in built}
        self.meaning = "\n".join(self._meaning())
        """Everything that all gateways must agree on, as lines of text; addresses are not part of it."""
        self.digest = sha256(self.meaning.encode()).hexdigest()[:DIGEST_DIGITS]
        """A hash of `meaning`."""

    @classmethod
    def product(cls, scot: Scot, federation: str = "scot") -> Topology:
        """Return a topology with one gateway for every broker of *scot*; that for B(u, j) is `u.j`, in site `j`."""
        gateways = [
            DraftGateway(f"{u}.{j}", at, str(j), (u,), (Address(f"{u}.{j}", SIMULATED_PORT),))
            for at, (u, j) in enumerate(scot.brokers())
        ]
        factor = scot.factor
        tree = ("-".join(edge) for edge in factor.edges)
        sites = tuple(Site(str(j), j) for j in range(scot.clusters))
        return cls(TopologyDraft(federation, (*factor.positions, *tree), sites, tuple(gateways)))

    @property
    def scot(self) -> Scot:
        """The product whose brokers the gateways host."""
        return Scot(self.factor, len(self.sites))

    @property
    def tolerated_gateways(self) -> int:
        """The number of gateways that may fail, whichever they are, while the rest stays connected.

        Of m clusters one has lost none and is still a tree, and every gateway has a peer in every other cluster.
        """
        return len(self.sites) - 1

    @property
    def tolerated_connections(self) -> int:
        """The number of connections that may fail, whichever they are, while all gateways stay connected.

        Divide the gateways into two sides, and count connections from side to side. A divided cluster has one inside,
        so m if all are divided. If whole clusters lie on one side only, k among them, each divided cluster, of which
        there is one at least, has another one to k, and each whole one but k has one to the other side: m again. If s
        whole clusters lie on one side and t on the other, they have s t, and the divided ones two each: m-1 at least,
        and no more only if every site has one gateway.
        """
        return len(self.sites) - (2 if len(self._gateways) == len(self.sites) > 1 else 1)

    @property
    def gateways(self) -> tuple[TopologyGateway, ...]:
        """All gateways, by number."""
        return tuple(self._gateways.values())

    def gateway(self, name: str) -> TopologyGateway:
        """Return the gateway *name*. Raises TopologyInvalid if there is none."""
        if name not in self._gateways:
            raise TopologyInvalid(
                [TopologyMistake(("gateway",), f"none is called {name!r}", nearest(name, self._gateways))]
            )
        return self._gateways[name]

    def holder(self, position: str, cluster: int) -> str:
        """Return the gateway that holds *position* in *cluster*."""
        return self._holders[cluster][position]

    def connection(self, one: str, other: str) -> ConnectionPlan:
        """Return the plan of the connection between two peers."""
        ends = self._entries[one], self._entries[other]
        if ends[0].site == ends[1].site:
            uplink = UPLINKS["lan"]
        else:
            first, second = (self._sites[self._gateways[name].cluster].uplink for name in (one, other))
            uplink = first.stricter(second)
        return ConnectionPlan(dial(*ends, self._links.get(frozenset((one, other)))), uplink)

    def client_addresses(self, name: str) -> tuple[ClientAddress, ...]:
        """Return where MQTT clients connect to the gateway *name*; empty if the file does not say."""
        return self._entries[name].clients

    def covering_bytes(self, cluster: int) -> dict[int, int]:
        """Return, for each other cluster, the bytes in which the site with index *cluster* tells it what it wants."""
        own = self._sites[cluster].uplink
        return {site.index: own.stricter(site.uplink).covering_bytes for site in self.sites if site.index != cluster}

    def _gateway_of(self, gateway: DraftGateway, neighbours: Set[str]) -> TopologyGateway:
        cluster = next(site.index for site in self.sites if site.name == gateway.site)
        positions = gateway.positions or self.factor.positions
        ordered = tuple(sorted(neighbours, key=lambda name: self._entries[name].number))
        across = {
            index: {position: holder[position] for position in positions}
            for index, holder in self._holders.items()
            if index != cluster
        }
        return TopologyGateway(gateway.name, gateway.number, gateway.site, cluster, positions, ordered, across)

    def _meaning(self) -> Iterable[str]:
        yield f"federation {self.federation}"
        yield f"positions {' '.join(sorted(self.factor.positions))}"
        yield f"tree {' '.join(sorted('-'.join(sorted(edge)) for edge in self.factor.edges))}"
        for site in self.sites:
            yield f"site {site.index} {site.name}"
        for gateway in self.gateways:
            home, *others = gateway.positions
            yield f"gateway {gateway.number} {gateway.name} of {gateway.site}: {' '.join([home, *sorted(others)])}"
