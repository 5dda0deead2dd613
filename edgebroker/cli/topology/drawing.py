"""Drawings of a topology: as text for a terminal, and as SVG for documents and browsers.

Both have one row for each position of the tree, and every branch below the row that it starts from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from edgebroker.overlay.topology.draft import Site
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology, TopologyGateway


@dataclass(frozen=True, slots=True)
class PositionRow:
    """A position, and the vertical lines in front of it, one for each level: whether the line continues below."""

    position: str
    parent: str | None
    rails: tuple[bool, ...]

    @property
    def depth(self) -> int:
        return len(self.rails)


def rows(factor: Factor) -> tuple[PositionRow, ...]:
    """Returns the tree with the middle of its longest path as root, so that it is as flat as possible."""
    longest_path = factor.trunk
    return tuple(_below(factor, longest_path[len(longest_path) // 2], None, ()))


def _below(factor: Factor, position: str, parent: str | None, rails: tuple[bool, ...]) -> Iterator[PositionRow]:
    yield PositionRow(position, parent, rails)
    branches = [neighbour for neighbour in factor.neighbours(position) if neighbour != parent]
    for branch in branches:
        yield from _below(factor, branch, position, (*rails, branch != branches[-1]))


HOME = "*"


def text_drawing(topology: Topology) -> Iterator[str]:
    """Yields a column for each site, and a row for each position with the gateways that hold it."""
    yield f"federation {topology.federation}, digest {topology.digest}"
    yield ""
    table = [
        ["position", *(f"{site.name} ({site.index})" for site in topology.sites)],
        ["", *(site.uplink.kind for site in topology.sites)],
    ]
    for row in rows(topology.factor):
        table.append([_branch(row), *(_holder_text(topology, row.position, site.index) for site in topology.sites)])
    yield from aligned(table)
    yield ""
    yield "A column is a site: its gateways are joined as the positions are in the tree (aLinks). A row is a region:"
    yield f"the gateways that hold the position are joined with each other (iLinks). {HOME} is the home of a gateway."


def gateway_lines(topology: Topology, gateway: TopologyGateway) -> Iterator[str]:
    """Yields the place of *gateway* and its connections."""
    yield f"{gateway.name}: number {gateway.number}, at {gateway.site} ({gateway.cluster})"
    yield f"holds {', '.join(gateway.positions)}; its home is {gateway.home}"
    if clients := topology.client_addresses(gateway.name):
        yield f"clients connect at {', '.join(map(str, clients))}"
    yield ""
    table = [["peer", "link", "dials", "at", "uplink"]]
    for peer in gateway.peers():
        connection = topology.connection(gateway.name, peer)
        addresses = ", ".join(map(str, connection.dial.addresses))
        table.append([peer, links(gateway, peer), connection.dial.dialler, addresses, str(connection.uplink)])
    yield from aligned(table)


def links(gateway: TopologyGateway, peer: str) -> str:
    """Returns what the connection with *peer* carries: an aLink, or iLinks by their regions."""
    if peer in gateway.neighbours:
        return "aLink"
    region = [position for held in gateway.across.values() for position, holder in held.items() if holder == peer]
    return f"iLink{'s' * (len(region) > 1)} {', '.join(region)}"


def aligned(table: Sequence[Sequence[str]]) -> Iterable[str]:
    """Returns lines with columns as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table)


def _branch(row: PositionRow) -> str:
    """Returns the position behind the lines of the tree."""
    if not row.rails:
        return row.position
    *outer, has_sibling = row.rails
    rails = "".join("│  " if rail else "   " for rail in outer)
    return f"{rails}{'├─ ' if has_sibling else '└─ '}{row.position}"


def _holder_text(topology: Topology, position: str, cluster: int) -> str:
    holder = topology.holder(position, cluster)
    return holder + HOME * (topology.gateway(holder).home == position)


TOP, ROW, STEP = 128, 52, 34
"""Pixels: above the first row, between rows, and between levels of the tree."""
GAP: Final = 28
"""Pixels between columns."""
LETTER: Final = 7.2
"""Approximate width of a character of a name."""
WIDTH_MIN: Final = 780
"""Width of the legend."""
SHAPE: Final = 26
"""Thickness of a gateway's shape."""
COLOURS: Final = ("#bfe3d0", "#c9dbf5", "#f6d9b8", "#e3d2f0", "#f5cdd2", "#d6e8b4", "#bfe6ea", "#ecdfb0")
"""Colours of the gateways of a site, in turn."""
STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:#2b3440}.title{font-size:19px;font-weight:650}.small{font-size:12px;"
    "fill:#66717e}.site{font-size:15px;font-weight:600}.name{font-weight:550;paint-order:stroke;stroke:#fff;"
    "stroke-width:4px;stroke-linejoin:round}.name.dark{stroke:#f4f6f8}.band{fill:#f4f6f8}.card{fill:none;stroke:#d9dfe5}.i{stroke:#8a97a5;"
    "stroke-width:1.5;stroke-dasharray:2 5;stroke-linecap:round}.a{fill:none;stroke:#55606c;stroke-width:2}"
    ".in{fill:none;stroke:#55606c;stroke-width:1;stroke-opacity:.45}.hull{fill:none;stroke-linecap:round;"
    "stroke-linejoin:round}.held{fill:#fff;stroke:#2b3440;stroke-width:1.6}.home{fill:#2b3440}"
)


def svg_drawing(topology: Topology) -> str:
    """Returns the drawing as one SVG document."""
    tree = rows(topology.factor)
    depth = max(row.depth for row in tree)
    columns = _columns(topology, depth)
    width = max(columns[-1][1] + GAP, WIDTH_MIN)
    height = TOP + ROW * len(tree) + 84
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f'<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>',
        f'<text class="title" x="24" y="38">{escape(topology.federation)}</text>',
        f'<text class="small" x="24" y="58">{_summary(topology)}</text>',
    ]
    for index, row in enumerate(tree):
        y = _y(index)
        if _is_dark(index):
            parts.append(f'<rect class="band" x="12" y="{y - ROW / 2}" width="{width - 24}" height="{ROW}" rx="8"/>')
        parts.append(f'<text x="24" y="{y + 4}">{escape(row.position)}</text>')
    for site, (left, right) in zip(topology.sites, columns, strict=True):
        parts += _card(site, left, right, len(tree))
    for index, row in enumerate(tree):
        if len(columns) > 1:
            start, end = (_x(column[0], row) for column in (columns[0], columns[-1]))
            parts.append(f'<line class="i" x1="{start}" y1="{_y(index)}" x2="{end}" y2="{_y(index)}"/>')
    for site, (left, _) in zip(topology.sites, columns, strict=True):
        parts += _cluster(topology, site.index, left, tree)
    parts += _legend(height - 34)
    return "\n".join([*parts, "</svg>", ""])


def _summary(topology: Topology) -> str:
    counts = ((len(topology.sites), "site"), (len(topology.gateways), "gateway"), (len(topology.factor), "position"))
    texts = [f"{count} {noun}{'s' * (count != 1)}" for count, noun in counts]
    return " · ".join([*texts, f"digest {topology.digest}"])


def _columns(topology: Topology, depth: int) -> list[tuple[float, float]]:
    """Returns (left, right) of each site: as wide as its names need."""
    columns = []
    left = float(round(48 + LETTER * max(map(len, topology.factor.positions))))
    for site in topology.sites:
        names = [len(gateway.name) for gateway in topology.gateways if gateway.cluster == site.index]
        needed = max(
            STEP * depth + 66 + LETTER * max(names), 40 + LETTER * 1.15 * max(len(site.name), len(_about(site)))
        )
        columns.append((left, float(round(left + needed))))
        left = columns[-1][1] + GAP
    return columns


def _about(site: Site) -> str:
    return f"cluster {site.index} · {site.uplink.kind}"


def _card(site: Site, left: float, right: float, count: int) -> Iterator[str]:
    """Yields the frame of a site and its name."""
    width, height = right - left, 56 + ROW * count
    yield f'<rect class="card" x="{left}" y="{TOP - 56}" width="{width}" height="{height}" rx="12"/>'
    yield f'<text class="site" x="{left + 16}" y="{TOP - 32}">{escape(site.name)}</text>'
    yield f'<text class="small" x="{left + 16}" y="{TOP - 14}">{escape(_about(site))}</text>'


def _cluster(topology: Topology, cluster: int, left: float, tree: Sequence[PositionRow]) -> Iterator[str]:
    """Yields the gateways of a site: shapes, then the tree upon them, then positions and names."""
    points = {row.position: (_x(left, row), _y(index)) for index, row in enumerate(tree)}
    holders = {row.position: topology.holder(row.position, cluster) for row in tree}
    edges = [(row.parent, row.position) for row in tree if row.parent is not None]
    gateways = [upper for upper in topology.gateways if upper.cluster == cluster]
    for index, gateway in enumerate(gateways):
        branches = [
            _svg_branch(points[upper], points[lower])
            for upper, lower in edges
            if {holders[upper], holders[lower]} == {gateway.name}
        ]
        x, y = points[gateway.home]
        shape = " ".join([*branches, f"M{x} {y}h.01"])
        colour = COLOURS[index % len(COLOURS)]
        yield f'<path class="hull" stroke="{colour}" stroke-width="{SHAPE}" d="{shape}"/>'
    for upper, lower in edges:
        kind = "in" if holders[upper] == holders[lower] else "a"
        yield f'<path class="{kind}" d="{_svg_branch(points[upper], points[lower])}"/>'
    homes = {gateway.home: gateway.name for gateway in gateways}
    for index, (position, (x, y)) in enumerate(points.items()):
        yield f'<circle class="{"home" if position in homes else "held"}" cx="{x}" cy="{y}" r="5.5"/>'
        if position in homes:
            kind = "name dark" if _is_dark(index) else "name"
            yield f'<text class="{kind}" x="{x + SHAPE / 2 + 6}" y="{y + 4.5}">{escape(homes[position])}</text>'


def _legend(y: float) -> Iterator[str]:
    """Yields the legend."""
    entries = (
        (f'<path class="hull" stroke="{COLOURS[0]}" stroke-width="18" d="M30 {y}h18"/>', "gateway"),
        (f'<circle class="home" cx="38" cy="{y}" r="5.5"/>', "its home"),
        (f'<circle class="held" cx="38" cy="{y}" r="5.5"/>', "position it holds too"),
        (f'<path class="a" d="M24 {y}h28"/>', "aLink"),
        (f'<path class="i" d="M24 {y}h28"/>', "iLinks: each of the row with each"),
    )
    x = 0.0
    for symbol, meaning in entries:
        yield f'<g transform="translate({x:g} 0)">{symbol}<text class="small" x="62" y="{y + 4}">{meaning}</text></g>'
        x += 62 + 6.2 * len(meaning)


def _x(left: float, row: PositionRow) -> float:
    return left + 30 + STEP * row.depth


def _y(index: int) -> float:
    return TOP + ROW / 2 + ROW * index


def _is_dark(index: int) -> bool:
    return index % 2 == 0


def _svg_branch(above: tuple[float, float], below: tuple[float, float]) -> str:
    """Returns a path down from one position, with a bend to the right to the other."""
    (x, y), (to_x, to_y) = above, below
    return f"M{x} {y}V{to_y - 14}Q{x} {to_y} {x + 14} {to_y}H{to_x}"
