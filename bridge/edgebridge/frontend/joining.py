"""How a front end becomes a gateway of a federation. One that stands alone loads nothing of all this."""

from __future__ import annotations

from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.overlay import Overlay
from edgebridge.frontend.passage import Passage
from edgebridge.frontend.peerlinks import Run
from edgebridge.frontend.remembering import Remembering
from edgebroker.instants import Instant
from edgebroker.node.serial import Serial
from edgebroker.node.ways import USUAL, Ways
from edgebroker.overlay.link.records import StoredLinks
from edgebroker.overlay.topology import Topology


def join(
    frontend: Frontend,
    topology: Topology,
    name: str,
    run: Run,
    now: Instant,
    stored: StoredLinks | None = None,
    ways: Ways = USUAL,
) -> Overlay:
    """Let *frontend* be the gateway *name* of a federation. Its clock is set, and nothing is restored yet.

    *stored*: what its journal says of links. Raises TopologyInvalid: there is no gateway of this name.
    """
    keeping = frontend.keeping
    remembering = Remembering(keeping, frontend.retained, frontend.subscribing.replaying)
    overlay = Overlay(frontend.node, frontend.delivery, keeping, remembering, topology, name, run, now, stored, ways)
    frontend.overlay = frontend.publishing.overlay = overlay
    frontend.subscribing.overlay = frontend.restoring.overlay = overlay
    frontend.node.follower = overlay
    serial = Serial(overlay.peers, ways.is_dynamic)
    overlay.passage = frontend.input.passage = Passage(
        serial,
        frontend.node,
        frontend.delivery,
        frontend.plans,
        frontend.runs,
        overlay.send,
        overlay.pass_on,
        overlay.accept,
        overlay.links.is_tight,
    )
    keeping.is_joined = frontend.plans.is_joined = True
    return overlay
