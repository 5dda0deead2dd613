"""Another topology file while a gateway runs: what holds at once, and what only a restart brings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from edgebroker.dataclasses import dataclass
from edgebroker.overlay.difference import difference
from edgebroker.overlay.topology import Topology
from edgebroker.overlay.uplink import Uplink
from edgebroker.world.peering.membership import Membership, load_membership
from edgebroker.world.settings import Problem, Settings, SettingsRefused


@dataclass(frozen=True, slots=True)
class TopologyChange:
    """`membership` is what holds from now on; `lines` say what became of each difference.

    `is_new_run`: the gateway has other peers than before, or other terms with them. It meets all of them anew.
    """

    membership: Membership
    lines: tuple[str, ...]
    is_new_run: bool


def prepare_change(old: Membership, settings: Settings) -> TopologyChange:
    """Read the files again that *settings* name. Raises SettingsRefused: gateways that run cannot take them."""
    path = settings.overlay.topology
    assert path is not None
    new = load_membership(settings)
    changes = difference(old.topology, new.topology)
    if fixed := [change.text for change in changes if not change.is_live]:
        mend = "a federation takes that only if all its gateways are stopped, and started with the new file"
        raise SettingsRefused([Problem(str(path), 0, "", text, mend) for text in fixed])
    if late := list(_late(old, new.topology, path)):
        return TopologyChange(replace(new, topology=old.topology), tuple(late), False)
    lines = tuple(f"topology: {change.text}" for change in changes)
    return TopologyChange(new, lines, _terms(old) != _terms(new))


def _late(old: Membership, topology: Topology, path: Path) -> Iterator[str]:
    """Why *topology*, which gateways may change to one by one, does not hold before a restart."""
    peers = topology.gateway(old.name).peers()
    for gone in (peer for peer in old.topology.gateway(old.name).peers() if peer not in peers):
        yield f"topology: {gone} is no peer of this gateway any more in {path}: it holds after a restart"


def _terms(membership: Membership) -> tuple[str, list[tuple[bool, Uplink]]]:
    """What a gateway has to have agreed on with its peers before it meets them."""
    topology, name = membership.topology, membership.name
    connections = [topology.connection(name, peer) for peer in topology.gateway(name).peers()]
    return topology.digest, [(one.dial.dialler == name, one.uplink) for one in connections]
