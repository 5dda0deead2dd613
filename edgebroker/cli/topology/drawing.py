"""A topology as text: for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from edgebroker.cli.topology.rows import Row, rows
from edgebroker.overlay.topology import Gateway, Topology

HOME = "*"


def drawing(topology: Topology) -> Iterator[str]:
    """A column for each site, and a row for each position with the gateways that hold it."""
    yield f"federation {topology.federation}, digest {topology.digest}"
    yield ""
    table = [
        ["position", *(f"{site.name} ({site.index})" for site in topology.sites)],
        ["", *(site.uplink.kind for site in topology.sites)],
    ]
    for row in rows(topology.factor):
        table.append([_branch(row), *(_held(topology, row.position, site.index) for site in topology.sites)])
    yield from aligned(table)
    yield ""
    yield "A column is a site: its gateways are joined as the positions are in the tree (aLinks). A row is a region:"
    yield f"the gateways that hold the position are joined with each other (iLinks). {HOME} is the home of a gateway."


def place(topology: Topology, gateway: Gateway) -> Iterator[str]:
    """Where *gateway* stands, and its connections."""
    yield f"{gateway.name}: number {gateway.number}, at {gateway.site} ({gateway.cluster})"
    yield f"holds {', '.join(gateway.positions)}; its home is {gateway.home}"
    yield ""
    table = [["peer", "link", "dials", "at", "uplink"]]
    for peer in gateway.peers():
        connection = topology.connection(gateway.name, peer)
        addresses = ", ".join(map(str, connection.dial.addresses))
        table.append([peer, links(gateway, peer), connection.dial.dialler, addresses, str(connection.uplink)])
    yield from aligned(table)


def links(gateway: Gateway, peer: str) -> str:
    """What the connection with *peer* carries: an aLink, or iLinks by their regions."""
    if peer in gateway.neighbours:
        return "aLink"
    region = [position for held in gateway.across.values() for position, holder in held.items() if holder == peer]
    return f"iLink{'s' * (len(region) > 1)} {', '.join(region)}"


def aligned(table: Sequence[Sequence[str]]) -> Iterable[str]:
    """Lines with columns as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table)


def _branch(row: Row) -> str:
    """The position behind the rails of the tree."""
    if not row.rails:
        return row.position
    *before, goes_on = row.rails
    rails = "".join("│  " if rail else "   " for rail in before)
    return f"{rails}{'├─ ' if goes_on else '└─ '}{row.position}"


def _held(topology: Topology, position: str, cluster: int) -> str:
    holder = topology.holder(position, cluster)
    return holder + HOME * (topology.gateway(holder).home == position)
