"""Cluster index vectors (CIV): sets of clusters as bits, bit j for cluster j [SCOT 2.2].

What the bits mean depends on where a vector stands. We keep a publisher's host cluster and its target clusters apart
and write the published layouts, which mix them, for people only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


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
