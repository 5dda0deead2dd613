"""SCOT, the overlay of the paper: the Cartesian product of the acyclic factor and the complete graph of m clusters.

B(u, j) is the broker at position u of cluster j. Cluster j is a copy of the factor, joined by aLinks; region u has the
brokers at position u of every cluster, joined pairwise by iLinks. Source: Shafique, arXiv:1604.06853, and the theorems
about connectivity of Cartesian products there.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from edgebroker.dataclasses import dataclass
from edgebroker.overlay.topology.factor import Factor


class Broker(NamedTuple):
    """B(u, j)."""

    position: str
    cluster: int


BrokerLink = tuple[Broker, Broker]


@dataclass(frozen=True, slots=True)
class Scot:
    """The product of `factor`, with n positions, and the complete graph of the clusters 0 to `clusters` - 1, K_m."""

    factor: Factor
    clusters: int

    def __len__(self) -> int:
        """The number of brokers, n m."""
        return len(self.factor) * self.clusters

    def brokers(self) -> Iterator[Broker]:
        """Iterate over the brokers, cluster by cluster."""
        return (Broker(position, cluster) for cluster in range(self.clusters) for position in self.factor.positions)

    def a_links(self) -> Iterator[BrokerLink]:
        """The links inside clusters: m (n-1)."""
        for cluster in range(self.clusters):
            for one, other in self.factor.edges:
                yield Broker(one, cluster), Broker(other, cluster)

    def i_links(self) -> Iterator[BrokerLink]:
        """The links inside regions: n m (m-1) / 2."""
        for position in self.factor.positions:
            for one, other in combinations(range(self.clusters), 2):
                yield Broker(position, one), Broker(position, other)

    def neighbours(self, broker: Broker) -> tuple[Broker, ...]:
        """The primary neighbours, over aLinks, then the secondary ones, over iLinks."""
        position, cluster = broker
        primary = (Broker(other, cluster) for other in self.factor.neighbours(position))
        secondary = (Broker(position, other) for other in range(self.clusters) if other != cluster)
        return (*primary, *secondary)

    @property
    def diameter(self) -> int:
        """The length of the longest of all shortest paths, in links."""
        return self.factor.diameter + (self.clusters > 1)
