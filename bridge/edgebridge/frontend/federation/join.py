"""How a front end joins a federation and changes to another topology. Without a federation nothing of it is loaded."""

from __future__ import annotations

from typing import Final

from edgebridge.frontend.federation.fast_path import FederationFastPath
from edgebridge.frontend.federation.federation import FederationMember
from edgebridge.frontend.federation.link_setup import BootIdentity
from edgebridge.frontend.federation.peer_copies import PeerCopyLedger
from edgebridge.frontend.federation.retained import FederatedRetained
from edgebridge.frontend.federation.roaming import SessionRoaming
from edgebridge.frontend.federation.wills import FederatedWills
from edgebridge.frontend.frontend import Frontend
from edgebroker.federation.forwarding_cache import ForwardingCache
from edgebroker.federation.options import DEFAULT_OPTIONS, FederationOptions
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.overlay.link.journal_records import StoredLinks
from edgebroker.overlay.topology.topology import Topology

TOPOLOGY_CHANGE: Final = "the gateway goes over to another topology"
"""Why a gateway leaves its peers before `rejoin`."""


def join(
    frontend: Frontend,
    topology: Topology,
    name: str,
    run: BootIdentity,
    now: Instant,
    stored: StoredLinks | None = None,
    ways: FederationOptions = DEFAULT_OPTIONS,
    peer_copies: PeerCopyLedger | None = None,
) -> FederationMember:
    """Let *frontend* be the gateway *name* of a federation. Its clock is set, and nothing is restored yet.

    *stored*: what its journal says of links. *departures*: those of this process, if it was one before. Raises
    TopologyInvalid: there is no gateway of this name.
    """
    session_journal, before = frontend.journal, frontend.federation
    federated_retained = FederatedRetained(session_journal, frontend.retained, frontend.subscribe_handler.replay)
    node, delivery = frontend.node, frontend.delivery
    overlay = FederationMember(
        node,
        delivery,
        session_journal,
        federated_retained,
        FederatedWills(frontend.connect_handler, frontend.publish_handler, session_journal, node.timers),
        topology,
        name,
        run,
        now,
        stored,
        ways,
        peer_copies,
        frontend.host,
    )
    frontend.federation = frontend.publish_handler.admission.federation = overlay
    frontend.subscribe_handler.federation = frontend.recovery.federation = overlay
    frontend.subscribe_handler.held_subacks = overlay.held_subacks
    node.subscription_listener = overlay
    frontend.connect_handler.will_listener = overlay.wills
    paths, gateways = overlay.peers.gossip.link_state, frozenset(one.name for one in topology.gateways)
    frontend.connect_handler.moves.use_paths(paths, gateways)
    serial = ForwardingCache(overlay.peers)
    overlay.fast_path = frontend.input.federation_path = FederationFastPath(
        serial,
        node,
        delivery,
        frontend.fan_out_cache,
        frontend.qos0_batches,
        overlay.send,
        overlay.send_all,
        overlay.accept,
        overlay.backpressure.may_refuse,
        overlay.peer_copies,
    )
    frontend.connect_handler.roaming = None
    if overlay.directory.is_kept:
        overlay.roaming = overlay.fast_path.roaming = overlay.gateway_events.roaming = _roaming(before, frontend)
        frontend.connect_handler.roaming = overlay.roaming
        overlay.roaming.attach(overlay, overlay.directory, ways.session_wait_ms * MILLISECOND, frontend.resume_connect)
    session_journal.is_federated = frontend.fan_out_cache.is_federated = True
    return overlay


def _roaming(before: FederationMember | None, frontend: Frontend) -> SessionRoaming:
    """Return what knows the sessions that move; it outlives a topology."""
    if before is not None and before.roaming is not None:
        return before.roaming
    return SessionRoaming(
        frontend.node,
        frontend.connect_handler,
        frontend.subscribe_handler,
        frontend.delivery,
        frontend.pager,
        frontend.expiry,
    )


def rejoin(
    frontend: Frontend, topology: Topology, run: BootIdentity, now: Instant, ways: FederationOptions = DEFAULT_OPTIONS
) -> FederationMember:
    """Let *frontend*, which is a gateway already and has left (`Overlay.stop`), be the same one in another *topology*.

    Its clients notice nothing. Peers find what they find after a restart: another run, the same store, and whatever
    was not acknowledged. What waits for gateways that are no peers any more goes to those that take their place.
    """
    before = frontend.federation
    assert before is not None
    stored = StoredLinks()
    for record in before.records():
        stored.apply(record)
    stored.numbers = max(stored.numbers, before.peers.ids.allocated)
    overlay = join(frontend, topology, before.name, run, now, stored, ways, before.peer_copies)
    overlay.peers.forwarder.resume(before.peers.forwarder)
    overlay.wills.take_over(before.wills, now)
    overlay.directory.resume(before.directory)
    for number, topic_filter, predicates in before.peers.interests.own():
        overlay.subscribed(number, topic_filter, predicates, now)
    overlay.perform(overlay.peers.resume_pairs(before.peers, now), now)
    overlay.start(now)
    for link in before.links:
        if link.peer not in overlay.peers.gateway.peers():
            overlay.take_over(link, before.peers.gateway, now)
    return overlay
