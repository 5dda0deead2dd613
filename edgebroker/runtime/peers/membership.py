"""The gateway's membership in a federation: topology, its own name, TLS, and the changes a new topology file brings.

A running gateway takes a new topology file only where peers can change one by one; the rest needs a restart.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgebridge.frontend.federation.join import join, rejoin
from edgebridge.frontend.federation.link_setup import BootIdentity
from edgebridge.frontend.frontend import Frontend
from edgebroker.dataclasses import dataclass
from edgebroker.federation.options import DEFAULT_OPTIONS, FederationOptions
from edgebroker.instants import Instant
from edgebroker.overlay.link.handshake import RUN_BYTES
from edgebroker.overlay.link.journal_records import StoredLinks
from edgebroker.overlay.topology.diff import difference
from edgebroker.overlay.topology.draft import Uplink
from edgebroker.overlay.topology.errors import TopologyInvalid
from edgebroker.overlay.topology.topology import Topology
from edgebroker.runtime.settings import Problem, Settings, SettingsRefused
from edgebroker.runtime.settings.problems import ProblemCollector
from edgebroker.runtime.settings.sections import DYNAMIC, OverlaySettings
from edgebroker.runtime.topology_file import load_topology

if TYPE_CHECKING:
    from edgebridge.frontend.federation.federation import FederationMember
    from edgebroker.runtime.peers.tls import PeerTls


@dataclass(frozen=True, slots=True)
class FederationMembership:
    """One gateway of one federation."""

    topology: Topology
    name: str
    tls: PeerTls | None
    """None: nobody proves anything."""
    ways: FederationOptions = DEFAULT_OPTIONS

    def join(self, frontend: Frontend, now: Instant, stored: StoredLinks | None) -> None:
        """Let *frontend*, whose clock is set, be that gateway. *stored*: what its journal says of links."""
        journal = frontend.journal.storage
        run = os.urandom(RUN_BYTES)
        store = run if journal is None else journal.store[:RUN_BYTES]
        join(frontend, self.topology, self.name, BootIdentity(run, store, random.random), now, stored, self.ways)

    def rejoin(self, frontend: Frontend, now: Instant) -> FederationMember:
        """Let *frontend*, which is that gateway in another topology and has left it, go over to this one."""
        before = frontend.federation
        assert before is not None
        run = BootIdentity(os.urandom(RUN_BYTES), before.links.identity.store, random.random)
        return rejoin(frontend, self.topology, run, now, self.ways)


def load_membership(settings: Settings) -> FederationMembership:
    """Read the files of *settings*, which name a topology. Raises SettingsRefused with all that is wrong with them."""
    path, name = settings.overlay.topology, settings.node.name
    assert path is not None
    topology, proofs = None, None
    problems: list[Problem] = []
    with ProblemCollector(problems):
        topology = _topology(path, name)
    with ProblemCollector(problems):
        proofs = _load_tls(settings.overlay)
    if topology is None or problems:
        raise SettingsRefused(problems)
    ways = replace(DEFAULT_OPTIONS, is_dynamic=settings.overlay.routing == DYNAMIC, lease_s=settings.overlay.lease_s)
    return FederationMembership(topology, name, proofs, ways)


def _topology(path: Path, name: str) -> Topology:
    """That of the file, which has a gateway of this name. Raises SettingsRefused."""
    topology = load_topology(path)
    try:
        topology.gateway(name)
    except TopologyInvalid as invalid:
        found = invalid.mistakes[0]
        problem = Problem(str(path), 0, "gateway", found.reason, f"{found.mend}; --name or node.name says who this is")
        raise SettingsRefused([problem]) from invalid
    return topology


def _load_tls(settings: OverlaySettings) -> PeerTls | None:
    """What its files say; None if no TLS is set. Raises SettingsRefused."""
    if not settings.is_tls:
        return None
    from edgebroker.runtime.peers.tls import load_peer_tls  # OpenSSL: 4 MiB that only TLS costs

    return load_peer_tls(settings)


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """`membership` is what holds from now on; `lines` say what became of each difference.

    `is_new_run`: the gateway has other peers than before, or other terms with them. It meets all of them anew.
    """

    membership: FederationMembership
    lines: tuple[str, ...]
    is_new_run: bool


def prepare_change(old: FederationMembership, settings: Settings) -> MembershipChange:
    """Read the files again that *settings* name. Raises SettingsRefused: gateways that run cannot take them."""
    path = settings.overlay.topology
    assert path is not None
    new = load_membership(settings)
    changes = difference(old.topology, new.topology)
    if fixed := [change.text for change in changes if not change.is_live]:
        mend = "a federation takes that only if all its gateways are stopped, and started with the new file"
        raise SettingsRefused([Problem(str(path), 0, "", text, mend) for text in fixed])
    if late := list(_late(old, new.topology, path)):
        return MembershipChange(replace(new, topology=old.topology), tuple(late), False)
    lines = tuple(f"topology: {change.text}" for change in changes)
    return MembershipChange(new, lines, _terms(old) != _terms(new))


def _late(old: FederationMembership, topology: Topology, path: Path) -> Iterator[str]:
    """Why *topology*, which gateways may change to one by one, does not hold before a restart."""
    peers = topology.gateway(old.name).peers()
    for gone in (peer for peer in old.topology.gateway(old.name).peers() if peer not in peers):
        yield f"topology: {gone} is no peer of this gateway any more in {path}: it holds after a restart"


def _terms(membership: FederationMembership) -> tuple[str, list[tuple[bool, Uplink]]]:
    """What a gateway has to have agreed on with its peers before it meets them."""
    topology, name = membership.topology, membership.name
    connections = [topology.connection(name, peer) for peer in topology.gateway(name).peers()]
    return topology.digest, [(one.dial.dialler == name, one.uplink) for one in connections]
