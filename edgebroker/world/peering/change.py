"""Another topology file while a gateway runs: what holds at once, and what only a restart brings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from edgebroker.dataclasses import dataclass
from edgebroker.overlay.difference import difference
from edgebroker.overlay.topology import Topology
from edgebroker.world.peering.membership import Membership, load_membership
from edgebroker.world.settings import Problem, Settings, SettingsRefused


@dataclass(frozen=True, slots=True)
class TopologyChange:
    """`membership` is what holds from now on; `lines` say what became of each difference."""

    membership: Membership
    lines: tuple[str, ...]


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
        return TopologyChange(replace(new, topology=old.topology), tuple(late))
    return TopologyChange(new, tuple(f"topology: {change.text}" for change in changes))


def _late(old: Membership, topology: Topology, path: Path) -> Iterator[str]:
    """Why *topology*, which gateways may change to one by one, does not hold before a restart."""
    name, before = old.name, old.topology
    if before.digest != topology.digest:
        yield f"topology: {path} has other sites or gateways than before: it holds after a restart of this gateway"
        return
    for peer in before.gateway(name).peers():
        was, now = before.connection(name, peer), topology.connection(name, peer)
        if (was.dial.dialler, was.uplink) != (now.dial.dialler, now.uplink):
            yield f"topology: the link to {peer} has other terms in {path}: they hold after a restart of this gateway"
