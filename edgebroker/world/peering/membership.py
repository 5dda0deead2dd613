"""What settings say of the federation: its topology, this gateway's place in it, and how peers prove themselves."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.joining import join, rejoin
from edgebridge.frontend.peerlinks import Run
from edgebroker.dataclasses import dataclass
from edgebroker.instants import Instant
from edgebroker.node.ways import USUAL, Ways
from edgebroker.overlay.link.hello import RUN_BYTES
from edgebroker.overlay.link.records import StoredLinks
from edgebroker.overlay.mistake import TopologyInvalid
from edgebroker.overlay.topology import Topology
from edgebroker.world.settings import Problem, Settings, SettingsRefused
from edgebroker.world.settings.overlay import DYNAMIC, OverlaySettings
from edgebroker.world.settings.problems import Collecting
from edgebroker.world.topology import load_topology

if TYPE_CHECKING:
    from edgebridge.frontend.overlay import Overlay
    from edgebroker.world.peering.proofs import Proofs


@dataclass(frozen=True, slots=True)
class Membership:
    """One gateway of one federation."""

    topology: Topology
    name: str
    proofs: Proofs | None
    """None: nobody proves anything."""
    ways: Ways = USUAL

    def join(self, frontend: Frontend, now: Instant, stored: StoredLinks | None) -> None:
        """Let *frontend*, whose clock is set, be that gateway. *stored*: what its journal says of links."""
        journal = frontend.keeping.journal
        run = os.urandom(RUN_BYTES)
        store = run if journal is None else journal.store[:RUN_BYTES]
        join(frontend, self.topology, self.name, Run(run, store, random.random), now, stored, self.ways)

    def rejoin(self, frontend: Frontend, now: Instant) -> Overlay:
        """Let *frontend*, which is that gateway in another topology and has left it, go over to this one."""
        before = frontend.overlay
        assert before is not None
        run = Run(os.urandom(RUN_BYTES), before.links.identity.store, random.random)
        return rejoin(frontend, self.topology, run, now, self.ways)


def load_membership(settings: Settings) -> Membership:
    """Read the files of *settings*, which name a topology. Raises SettingsRefused with all that is wrong with them."""
    path, name = settings.overlay.topology, settings.node.name
    assert path is not None
    topology, proofs = None, None
    problems: list[Problem] = []
    with Collecting(problems):
        topology = _topology(path, name)
    with Collecting(problems):
        proofs = _proofs(settings.overlay)
    if topology is None or problems:
        raise SettingsRefused(problems)
    ways = replace(USUAL, is_dynamic=settings.overlay.routing == DYNAMIC, lease_s=settings.overlay.lease_s)
    return Membership(topology, name, proofs, ways)


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


def _proofs(settings: OverlaySettings) -> Proofs | None:
    """What its files say; None if no TLS is set. Raises SettingsRefused."""
    if not settings.is_tls:
        return None
    from edgebroker.world.peering.proofs import load_proofs  # OpenSSL: 4 MiB that only TLS costs

    return load_proofs(settings)
