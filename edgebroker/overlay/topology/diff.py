"""The difference between two topologies, and whether running gateways can take the new one without a restart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import TypeVar

from edgebroker.dataclasses import dataclass
from edgebroker.overlay.topology.draft import DraftGateway, Site
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology

Named = TypeVar("Named", Site, DraftGateway)


@dataclass(frozen=True, slots=True)
class TopologyDifference:
    """One difference, as text. `is_live`: running gateways can take it when they read the file again."""

    text: str
    is_live: bool


def difference(old: Topology, new: Topology) -> tuple[TopologyDifference, ...]:
    """Return the differences from *old* to *new*, in the order of a file.

    A change is live if every gateway that stays keeps its number, its site and its home, and gains positions only of
    gateways that are gone: other addresses, uplinks and exceptions, new sites, new gateways that take over positions,
    and sites and gateways that are taken out. Any other change gives numbers or header bits a new meaning, so that
    messages on their way would be misread.
    """
    sites = _of_sites(_named(old.sites), _named(new.sites))
    return (*_of_federation(old, new), *sites, *_of_gateways(old, new), *_of_links(old, new))


def _of_federation(old: Topology, new: Topology) -> Iterator[TopologyDifference]:
    if old.federation != new.federation:
        yield TopologyDifference(f"federation {old.federation} is called {new.federation}", is_live=False)
    before, after = _tree(old.factor), _tree(new.factor)
    if before != after:
        changes = [f"{word} {', '.join(sorted(some))}" for word, some in _removed_and_added(before, after) if some]
        yield TopologyDifference(f"the tree {' and '.join(changes)}", is_live=False)


def _tree(factor: Factor) -> set[str]:
    """Return the edges; the position itself if there is only one."""
    return {"-".join(sorted(edge)) for edge in factor.edges} or set(factor.positions)


def _removed_and_added(before: set[str], after: set[str]) -> Iterable[tuple[str, set[str]]]:
    return ("loses", before - after), ("gains", after - before)


def _of_sites(before: Mapping[str, Site], after: Mapping[str, Site]) -> Iterator[TopologyDifference]:
    for name in sorted(before.keys() - after.keys()):
        yield TopologyDifference(f"site {name} is gone", is_live=True)
    for name, site in after.items():
        old = before.get(name)
        if old is None:
            gone = next((one.name for one in before.values() if one.index == site.index and one.name not in after), "")
            text = f"site {name} is new" + (f", with the index {site.index} of {gone}" if gone else "")
            yield TopologyDifference(text, is_live=not gone)
        else:
            if old.index != site.index:
                yield TopologyDifference(f"site {name} has index {site.index}, had {old.index}", is_live=False)
            if old.uplink != site.uplink:
                yield TopologyDifference(
                    f"site {name} has another uplink: {site.uplink}, had {old.uplink}", is_live=True
                )


def _of_gateways(old: Topology, new: Topology) -> Iterator[TopologyDifference]:
    before, after = _named(old.draft.gateways), _named(new.draft.gateways)
    for name in sorted(before.keys() - after.keys()):
        yield TopologyDifference(f"gateway {name} is gone", is_live=True)
    for name, gateway in after.items():
        previous = before.get(name)
        if previous is None:
            number = gateway.number
            gone = next((one.name for one in before.values() if one.number == number and one.name not in after), "")
            text = f"gateway {name} is new" + (f", with the number {number} of {gone}" if gone else "")
            yield TopologyDifference(text, is_live=not gone)
            continue
        if previous.number != gateway.number:
            yield TopologyDifference(
                f"gateway {name} has number {gateway.number}, had {previous.number}", is_live=False
            )
        if previous.site != gateway.site:
            yield TopologyDifference(
                f"gateway {name} stands at {gateway.site}, stood at {previous.site}", is_live=False
            )
        else:
            cluster = old.gateway(name).cluster
            free = {one for one in old.factor.positions if old.holder(one, cluster) not in after}
            yield from _of_positions(name, old.gateway(name).positions, new.gateway(name).positions, free)
        yield from _of_addresses(previous, gateway)


def _of_positions(
    name: str, before: tuple[str, ...], after: tuple[str, ...], free: Set[str]
) -> Iterator[TopologyDifference]:
    """Compare the positions of a gateway. *free*: those of its site whose gateways are gone."""
    for word, some in _removed_and_added(set(before), set(after)):
        if some:
            is_live = word == "loses" or some <= free
            yield TopologyDifference(f"gateway {name} {word} {', '.join(sorted(some))}", is_live)
    if before[0] != after[0]:
        yield TopologyDifference(f"gateway {name} has its home at {after[0]}, had it at {before[0]}", is_live=False)


def _of_addresses(old: DraftGateway, new: DraftGateway) -> Iterator[TopologyDifference]:
    for key, one, other in (
        ("address", old.address, new.address),
        ("lan", old.lan, new.lan),
        ("clients", old.clients, new.clients),
    ):
        if one != other:
            text = f"gateway {new.name} has {key} {_listed(other)}, had {_listed(one)}"
            yield TopologyDifference(text, is_live=True)
    if old.dials is not new.dials:
        text = f"gateway {new.name} dials {new.dials.name.lower()}, dialled {old.dials.name.lower()}"
        yield TopologyDifference(text, is_live=True)


def _of_links(old: Topology, new: Topology) -> Iterator[TopologyDifference]:
    before, after = ({frozenset(one.between): one for one in each.draft.links} for each in (old, new))
    for pair in sorted(before.keys() | after.keys(), key=sorted):
        if before.get(pair) != after.get(pair):
            yield TopologyDifference(
                f"the link between {' and '.join(sorted(pair))} is another exception", is_live=True
            )


def _named(some: Iterable[Named]) -> dict[str, Named]:
    return {one.name: one for one in some}


def _listed(addresses: Iterable[object]) -> str:
    return ", ".join(map(str, addresses)) or "none"
