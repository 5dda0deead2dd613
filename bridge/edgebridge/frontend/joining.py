"""How a front end becomes a gateway of a federation. One that stands alone loads nothing of all this."""

from __future__ import annotations

from typing import Final

from edgebridge.frontend.departures import Departures
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

GOES_OVER: Final = "the gateway goes over to another topology"
"""Why a gateway leaves its peers before `rejoin`."""


def join(
    frontend: Frontend,
    topology: Topology,
    name: str,
    run: Run,
    now: Instant,
    stored: StoredLinks | None = None,
    ways: Ways = USUAL,
    departures: Departures | None = None,
) -> Overlay:
    """Let *frontend* be the gateway *name* of a federation. Its clock is set, and nothing is restored yet.

    *stored*: what its journal says of links. *departures*: those of this process, if it was one before. Raises
    TopologyInvalid: there is no gateway of this name.
    """
    keeping = frontend.keeping
    remembering = Remembering(keeping, frontend.retained, frontend.subscribing.replaying)
    node, delivery = frontend.node, frontend.delivery
    overlay = Overlay(node, delivery, keeping, remembering, topology, name, run, now, stored, ways, departures)
    frontend.overlay = frontend.publishing.overlay = overlay
    frontend.subscribing.overlay = frontend.restoring.overlay = overlay
    node.follower = overlay
    serial = Serial(overlay.peers, ways.is_dynamic)
    overlay.passage = frontend.input.passage = Passage(
        serial,
        node,
        delivery,
        frontend.plans,
        frontend.runs,
        overlay.send,
        overlay.pass_on,
        overlay.accept,
        overlay.crowding.is_tight,
    )
    keeping.is_joined = frontend.plans.is_joined = True
    return overlay


def rejoin(frontend: Frontend, topology: Topology, run: Run, now: Instant, ways: Ways = USUAL) -> Overlay:
    """Let *frontend*, which is a gateway already and has left (`Overlay.stop`), be the same one in another *topology*.

    Its clients notice nothing. Peers find what they find after a restart: another run, the same store, and whatever
    was not acknowledged. No peer of before may be missing, for what waits for it would wait for ever.
    """
    before = frontend.overlay
    assert before is not None
    stored = StoredLinks()
    for record in before.records():
        stored.apply(record)
    stored.numbers = max(stored.numbers, before.peers.numbers.given)
    overlay = join(frontend, topology, before.name, run, now, stored, ways, before.departures)
    overlay.peers.forwarding.go_on(before.peers.forwarding)
    for number, topic_filter, predicates in before.peers.interests.own():
        overlay.subscribed(number, topic_filter, predicates, now)
    overlay.start(now)
    return overlay
