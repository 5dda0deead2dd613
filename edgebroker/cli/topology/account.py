"""A topology in figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edgebroker.overlay.topology import Topology


def figures(topology: Topology) -> dict[str, Any]:
    """What is shown for programs."""
    scot = topology.scot
    inside, across = _connections(topology)
    return {
        "federation": topology.federation,
        "digest": topology.digest,
        "positions": len(topology.factor),
        "sites": [site.name for site in topology.sites],
        "brokers": len(scot),
        "a_links": sum(1 for _ in scot.a_links()),
        "i_links": sum(1 for _ in scot.i_links()),
        "diameter": scot.diameter,
        "connections_inside": inside,
        "connections_across": across,
        "tolerated_gateways": topology.tolerated_gateways,
        "tolerated_connections": topology.tolerated_connections,
        "gateways": [
            {
                "name": one.name,
                "number": one.number,
                "site": one.site,
                "cluster": one.cluster,
                "positions": one.positions,
                "neighbours": one.neighbours,
                "peers": one.peers(),
            }
            for one in topology.gateways
        ],
    }


def sentences(topology: Topology) -> Iterator[str]:
    """What people read."""
    scot = topology.scot
    inside, across = _connections(topology)
    gateways = len(topology.gateways)
    yield (
        f"federation {topology.federation}: {_count(len(topology.sites), 'site')}, {_count(gateways, 'gateway')}, "
        f"{_count(len(topology.factor), 'position')}; digest {topology.digest}"
    )
    yield (
        f"stands for {_count(len(scot), 'broker')} with {_count(sum(1 for _ in scot.a_links()), 'aLink')} and "
        f"{_count(sum(1 for _ in scot.i_links()), 'iLink')}; no way is longer than {_count(scot.diameter, 'link')}"
    )
    yield f"{_count(inside + across, 'connection')} between gateways: {inside} inside sites, {across} between sites"
    yield _tolerance(topology)


def _tolerance(topology: Topology) -> str:
    if not topology.tolerated_gateways:
        return "one site: a gateway that fails divides the others, unless it stands at an end of the tree"
    some = _count(topology.tolerated_gateways, "gateway")
    if topology.tolerated_connections:
        some += f" or {_count(topology.tolerated_connections, 'connection')}"
    return f"whichever {some} may fail: what is left stays joined"


def _connections(topology: Topology) -> tuple[int, int]:
    """(inside sites, between sites)."""
    inside = sum(len(one.neighbours) for one in topology.gateways) // 2
    return inside, sum(len(one.peers()) for one in topology.gateways) // 2 - inside


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
