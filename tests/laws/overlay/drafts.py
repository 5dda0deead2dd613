"""Random topologies: any tree, any contraction of it at each site, any numbers."""

from __future__ import annotations

from hypothesis import strategies as st

from edgebroker.names import Address
from edgebroker.overlay.topology.draft import DraftGateway, Site, TopologyDraft
from edgebroker.overlay.topology.factor import Factor


@st.composite
def factors(draw: st.DrawFn, most: int = 8) -> Factor:
    """A tree: every position but the first hangs on one of those before it."""
    count = draw(st.integers(1, most))
    names = [chr(ord("a") + at) for at in range(count)]
    return Factor(names, [(names[draw(st.integers(0, at - 1))], names[at]) for at in range(1, count)])


@st.composite
def contractions(draw: st.DrawFn, factor: Factor) -> tuple[tuple[str, ...], ...]:
    """The parts that remain joined without some edges; any position of each may be its home."""
    chosen = draw(st.integers(0, 2 ** len(factor.edges) - 1))
    kept = [edge for at, edge in enumerate(factor.edges) if chosen >> at & 1]
    group = {one: {one} for one in factor.positions}
    for one, other in kept:
        group[one] |= group[other]
        for member in group[one]:
            group[member] = group[one]
    parts = dict.fromkeys(tuple(sorted(group[one])) for one in factor.positions)
    turn = draw(st.integers(0, 7))
    return tuple(part[turn % len(part) :] + part[: turn % len(part)] for part in parts)


@st.composite
def drafts(draw: st.DrawFn) -> TopologyDraft:
    """A draft of a topology without mistakes; every gateway has an address."""
    factor = draw(factors())
    count = draw(st.integers(1, 5))
    indices = range(count) if draw(st.booleans()) else range(count)[::-1]
    sites = tuple(Site(f"s{index}", index) for index in indices)
    held = [(site.name, part) for site in sites for part in draw(contractions(factor))]
    step = draw(st.sampled_from((1, -1, 17, -17)))
    first = draw(st.integers(0, 1_023))
    numbers = [(first + step * at) % 1_024 for at in range(len(held))]
    gateways = tuple(
        DraftGateway(f"{site}-{at}", number, site, part, (Address(f"{site}-{at}", 1),))
        for at, ((site, part), number) in enumerate(zip(held, numbers, strict=True))
    )
    tree = (*factor.positions, *("-".join(edge) for edge in factor.edges))
    return TopologyDraft("plant", tree, sites, gateways)
