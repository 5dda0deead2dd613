"""How a front end joins a federation and changes to another topology. Without a federation nothing of it is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from edgebridge.frontend.federation.fast_path import FederationFastPath
from edgebridge.frontend.federation.federation import FederationMember
from edgebridge.frontend.federation.link_setup import BootIdentity
from edgebridge.frontend.federation.peer_copies import PeerCopyLedger
from edgebridge.frontend.federation.retained import FederatedRetained
from edgebridge.frontend.federation.roaming.roaming import RoamingSessions
from edgebridge.frontend.federation.wills import FederatedWills
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.journal.session_journal import SessionJournal
from edgebroker.federation.effects import SendMessage
from edgebroker.federation.forwarding_cache import ForwardingCache
from edgebroker.federation.options import DEFAULT_OPTIONS, FederationOptions
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.log_schema import Cause, Fate
from edgebroker.overlay.link.journal_records import StoredLinks
from edgebroker.overlay.link.link import Link
from edgebroker.overlay.messages import Forward, Relay
from edgebroker.overlay.topology.topology import Topology, TopologyGateway
from edgebroker.overlay.traffic_class import TrafficClass

if TYPE_CHECKING:
    from edgebridge.frontend.federation.files import FederatedFiles

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
    frontend.shared_subscriptions.federated = overlay.groups
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


def _roaming(before: FederationMember | None, frontend: Frontend) -> RoamingSessions:
    """Return what knows the sessions that move; it outlives a topology."""
    if before is not None and before.roaming is not None:
        return before.roaming
    return RoamingSessions(
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
    overlay.groups.take_over(before.groups)
    if (files := before.gateway_events.files) is not None:
        overlay.gateway_events.files = files
        files.move(overlay, now)
    for number, topic_filter, predicates in before.peers.interests.own():
        overlay.subscribed(number, topic_filter, predicates, now)
    overlay.perform(overlay.peers.resume_pairs(before.peers, now), now)
    overlay.start(now)
    for link in before.links:
        if link.peer not in overlay.peers.gateway.peers():
            _take_over_outbox(overlay, link, before.peers.gateway, frontend.journal, now)
    return overlay


def attach_files(frontend: Frontend, run: int, now: Instant) -> FederatedFiles:
    """Let the file service of *frontend* get chunks from other gateways of its federation, and send them.

    run: a random number that names this run. The federation has started: the other gateways of the site are told.
    """
    from edgebridge.frontend.federation.files import FederatedFiles  # loaded only where there are files

    service, member = frontend.publish_handler.file_service, frontend.federation
    assert service is not None
    assert member is not None
    files = FederatedFiles(member, service, frontend.node.timers, run)
    service.network = member.gateway_events.files = files
    files.start(now)
    return files


def _take_over_outbox(
    overlay: FederationMember, link: Link, before: TopologyGateway, session_journal: SessionJournal, now: Instant
) -> None:
    """Send what waits at *link*, whose peer is none any more, to the gateways that take its place; drop it if there are
    none. *before*: this gateway in the topology of before. Events on the disk were for that peer's own readers, as a
    rule, and are dropped.
    """
    peers, outbox = overlay.peers, link.outbox
    # Those that were behind it, if it was a neighbour; else its cluster, over another gateway of that.
    behind = [peer for peer in peers.gateway.neighbours if peer not in before.neighbours]
    clusters = [cluster for cluster, region in before.across.items() if link.peer in region.values()]
    session_journal.begin_transaction()
    overlay.pager.drop_pages(link, Cause.PEER_REMOVED)
    for queue in outbox.queues.values():
        for message in [entry.message for entry in queue.in_memory()]:
            if isinstance(message, Relay):  # it only passed through, or is for a member of a group
                sends = peers.gossip.relay.forward(message, TrafficClass.LIVE)
            elif not isinstance(message, Forward):
                continue
            elif clusters:
                sends = peers.forwarder.reroute(message, clusters[0], now)
            else:
                sends = [SendMessage(peer, message, TrafficClass.LIVE) for peer in behind]
            overlay.send_again(sends, now)
            cause = Cause.HANDED_OVER if sends else Cause.PEER_REMOVED
            overlay.peer_copies.dropped(link.peer, (message,), cause, Fate.DROPPED, now)
    session_journal.commit_transaction(now)
