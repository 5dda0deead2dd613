"""Validation of a topology draft: reports all mistakes at once, each with its remedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final

from edgebroker import limits
from edgebroker.names import Address
from edgebroker.overlay.topology.dialling import PeerUnreachable, dial
from edgebroker.overlay.topology.draft import DraftLink, TopologyDraft, TopologyMistake, nearest
from edgebroker.overlay.topology.factor import Factor, ReadTree

MISTAKES_MAX: Final = 20
"""Mistakes reported at once: finding the most similar of 1,000 names for each of 1,000 others would take seconds."""

Holders = Mapping[int, Mapping[str, str]]
"""Cluster -> position -> the gateway that holds it."""


def mistakes(draft: TopologyDraft) -> list[TopologyMistake]:
    """Return the mistakes of *draft*, at most MISTAKES_MAX. Some checks only run when the earlier ones pass."""
    tree = ReadTree.of(draft.tree)
    found = _first(tree.mistakes, _about_sites(draft), _about_gateways(draft, tree.positions))
    if not found:
        factor = Factor(tree.positions, tree.edges)
        found = _first(_about_holdings(draft, factor), _about_addresses(draft)) or _first(_about_links(draft, factor))
    return found


def holders(draft: TopologyDraft, factor: Factor) -> Holders:
    """Return the holder of every position; the last one if there are several."""
    indices = {site.name: site.index for site in draft.sites}
    holders_by_cluster: dict[int, dict[str, str]] = {index: {} for index in sorted(indices.values())}
    for gateway in draft.gateways:
        for position in gateway.positions or factor.positions:
            holders_by_cluster[indices[gateway.site]][position] = gateway.name
    return holders_by_cluster


def neighbours(holders: Holders, factor: Factor) -> dict[str, set[str]]:
    """Return gateway -> the gateways with which it has an aLink."""
    found: dict[str, set[str]] = {name: set() for cluster in holders.values() for name in cluster.values()}
    for cluster in holders.values():
        for one, other in factor.contracted(cluster):
            found[one].add(other)
            found[other].add(one)
    return found


def peers(holders: Holders, factor: Factor) -> dict[str, set[str]]:
    """Return gateway -> the gateways with which it has a link."""
    found = neighbours(holders, factor)
    for position in factor.positions:
        region = {cluster[position] for cluster in holders.values()}
        for one in region:
            found[one] |= region - {one}
    return found


def _first(*several: Iterable[TopologyMistake]) -> list[TopologyMistake]:
    return [*islice(chain(*several), MISTAKES_MAX)]


def _about_sites(draft: TopologyDraft) -> Iterator[TopologyMistake]:
    count = len(draft.sites)
    if not count:
        yield TopologyMistake(("site",), "there is none", "write a [[site]] for each")
    if count > limits.CLUSTERS_MAX:
        yield TopologyMistake(
            ("site", limits.CLUSTERS_MAX), f"is one of {count}", f"at most {limits.CLUSTERS_MAX} are allowed"
        )
    names = [site.name for site in draft.sites]
    yield from _repeated("site", "name", names)
    yield from _repeated("site", "index", [site.index for site in draft.sites])
    are_known = draft.gateways and all(gateway.site in names for gateway in draft.gateways)
    for number, site in enumerate(draft.sites):
        if site.index >= limits.CLUSTERS_MAX:
            at_most = f"{limits.CLUSTERS_MAX} sites have 0 to {limits.CLUSTERS_MAX - 1}"
            yield TopologyMistake(("site", number, "index"), f"is {site.index}", at_most)
        if are_known and not any(gateway.site == site.name for gateway in draft.gateways):
            yield TopologyMistake(
                ("site", number, "name"), f"{site.name} has no gateway", "write a [[gateway]] of this site"
            )


def _about_gateways(draft: TopologyDraft, positions: Sequence[str]) -> Iterator[TopologyMistake]:
    if not draft.gateways:
        yield TopologyMistake(("gateway",), "there is none", "write a [[gateway]] for each")
    yield from _repeated("gateway", "name", [gateway.name for gateway in draft.gateways])
    yield from _repeated("gateway", "number", [gateway.number for gateway in draft.gateways])
    sites = [site.name for site in draft.sites]
    gateways_at = Counter(gateway.site for gateway in draft.gateways)
    for at, gateway in enumerate(draft.gateways):
        if gateway.number > limits.GATEWAY_NUMBER_MAX:
            at_most = f"at most {limits.GATEWAY_NUMBER_MAX}: ten bits of every message's number"
            yield TopologyMistake(("gateway", at, "number"), f"is {gateway.number}", at_most)
        if gateway.site not in sites:
            yield TopologyMistake(("gateway", at, "site"), f"{gateway.site!r} is no site", nearest(gateway.site, sites))
        if not gateway.positions and gateways_at[gateway.site] > 1:
            reason = f"{gateway.name} holds none, and is not alone at {gateway.site}"
            yield TopologyMistake(("gateway", at, "positions"), reason, f"name some of {', '.join(positions)}")
        for position in dict.fromkeys(gateway.positions):
            if position not in positions:
                yield TopologyMistake(
                    ("gateway", at, "positions"), f"{position!r} is no position", nearest(position, positions)
                )
            elif gateway.positions.count(position) > 1:
                yield TopologyMistake(("gateway", at, "positions"), f"{position} stands there twice", "leave one out")


def _about_holdings(draft: TopologyDraft, factor: Factor) -> Iterator[TopologyMistake]:
    """Check that each position of each cluster has one holder, and that the positions of a gateway are connected."""
    held: dict[str, dict[str, str]] = {site.name: {} for site in draft.sites}
    for at, gateway in enumerate(draft.gateways):
        where = ("gateway", at, "positions")
        positions = gateway.positions or factor.positions
        for position in positions:
            holder = held[gateway.site].setdefault(position, gateway.name)
            if holder != gateway.name:
                reason = f"{position} of {gateway.site} is held by {holder} too"
                yield TopologyMistake(where, reason, "take it from one of them")
        pieces = factor.pieces(positions)
        if len(pieces) > 1:
            between = factor.path(pieces[0][0], pieces[1][0])[1:-1]
            missing = ", ".join(one for one in between if one not in positions)
            apart = " and ".join(" ".join(piece) for piece in pieces)
            yield TopologyMistake(where, f"{apart} are not joined", f"give {gateway.name} {missing} too, or less")
    for number, site in enumerate(draft.sites):
        if vacant := [one for one in factor.positions if one not in held[site.name]]:
            there = held[site.name]
            adjacent = ((one, there[other]) for one in vacant for other in factor.neighbours(one) if other in there)
            position, holder = next(adjacent)  # exists: the tree is connected, and some position has a holder
            reason = f"nobody at {site.name} holds {', '.join(vacant)}"
            yield TopologyMistake(
                ("site", number, "name"), reason, f"give {position} to {holder}, which holds a neighbour"
            )


def _about_addresses(draft: TopologyDraft) -> Iterator[TopologyMistake]:
    """Check that no two gateways have the same address, and that clients do not meet where peers do."""
    taken: dict[object, str] = {}
    for at, gateway in enumerate(draft.gateways):
        for key, addresses, scope in (("address", gateway.address, ""), ("lan", gateway.lan, gateway.site)):
            for address in addresses:
                holder = taken.setdefault((address, scope), gateway.name)
                if holder != gateway.name:
                    yield TopologyMistake(
                        ("gateway", at, key), f"{address} is that of {holder} too", "correct one of them"
                    )
    clients_at: dict[Address, str] = {}
    for at, gateway in enumerate(draft.gateways):
        for client_address in gateway.clients:
            address = client_address.address
            peer = next((taken[one] for one in ((address, ""), (address, gateway.site)) if one in taken), None)
            if peer is not None:
                reason, mend = f"{address} is where gateways reach {peer}", "name the port of a listener for clients"
                yield TopologyMistake(("gateway", at, "clients"), reason, mend)
            elif (holder := clients_at.setdefault(address, gateway.name)) != gateway.name:
                # A client that is sent there would arrive at either of them.
                reason, mend = f"{address} is that of {holder} too", "give each gateway an address of its own"
                yield TopologyMistake(("gateway", at, "clients"), reason, mend)


def _about_links(draft: TopologyDraft, factor: Factor) -> Iterator[TopologyMistake]:
    """Check that exceptions name existing links, and that one end of each link can dial the other."""
    gateways = {gateway.name: gateway for gateway in draft.gateways}
    linked = peers(holders(draft, factor), factor)
    exceptions: dict[frozenset[str], DraftLink] = {}
    for at, link in enumerate(draft.links):
        one, other = link.between
        unknown = [name for name in link.between if name not in gateways]
        if unknown:
            yield TopologyMistake(
                ("link", at, "between"), f"{unknown[0]!r} is no gateway", nearest(unknown[0], gateways)
            )
        elif other not in linked[one]:
            reason = f"{one} and {other} have no link"
            yield TopologyMistake(
                ("link", at, "between"), reason, f"{one} has links with {', '.join(sorted(linked[one]))}"
            )
        elif link.dials not in link.between:
            yield TopologyMistake(
                ("link", at, "dials"), f"{link.dials!r} is none of the two", f"write {one} or {other}"
            )
        elif exceptions.setdefault(frozenset(link.between), link) is not link:
            yield TopologyMistake(
                ("link", at, "between"), f"{one} and {other} have a [[link]] above", "keep one of the two"
            )
    unreachable: dict[str, tuple[str, str]] = {}
    above: set[str] = set()
    for gateway in draft.gateways:
        for peer in sorted(linked[gateway.name] & above):
            try:
                dial(gateway, gateways[peer], exceptions.get(frozenset((gateway.name, peer))))
            except PeerUnreachable as error:
                culprit, reason, mend = error.args
                unreachable.setdefault(culprit.name, (reason, mend))  # its other links fail for the same reason
        above.add(gateway.name)
    for at, gateway in enumerate(draft.gateways):
        if gateway.name in unreachable:
            yield TopologyMistake(("gateway", at, "name"), *unreachable[gateway.name])


def _repeated(section: str, key: str, values: Sequence[object]) -> Iterator[TopologyMistake]:
    seen = set()
    for at, value in enumerate(values):
        if value in seen:
            yield TopologyMistake(
                (section, at, key), f"is {value} a second time", f"give every {section} one of its own"
            )
        seen.add(value)
