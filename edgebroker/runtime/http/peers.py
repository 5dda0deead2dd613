"""The links to the peers of a federation as `/links` shows them, with a row for each peer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from edgebroker.overlay.link.link import Link
from edgebroker.overlay.routing import RoutingCase
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.runtime.loop.reactor import clock
from edgebroker.runtime.peers.peers import PeerManager
from edgebroker.runtime.peers.status import decode_report, offset_ms, round_trip_ms


def link_report(peer_manager: PeerManager) -> dict[str, Any]:
    """Returns our identity and totals, and a row for each peer."""
    return {
        **peer_manager.described(),
        "received_bytes": peer_manager.received_bytes,
        "sent_bytes": peer_manager.sent_bytes,
        "strangers_refused": peer_manager.overlay.links.unidentified,
        "routing": "dynamic" if peer_manager.overlay.congestion.is_dynamic else "static",
        "detours": detours(peer_manager),
        "crowded": [
            {"at": place, "for": neighbour}
            for place, neighbour in peer_manager.overlay.peers.gossip.backpressure.active()
        ],
        "subacks_held": dict(peer_manager.overlay.held_subacks.outcomes),
        "federated_groups": peer_manager.overlay.groups.counts(),
        "links": list(link_rows(peer_manager)),
    }


async def federation_report(peer_manager: PeerManager) -> dict[str, Any]:
    """Returns the links of every gateway, each as its own end sees them, and the gateways that do not answer."""
    reports = await peer_manager.query_all()
    rows = {peer_manager.membership.name: peer_manager.summaries()}
    for name, report in reports.items():
        with suppress(ValueError):
            rows[name] = decode_report(report)
            for key in ("placement", "measured"):  # they are for `/place`
                rows[name].pop(key, None)
    known = peer_manager.membership.topology.gateways
    return {
        **peer_manager.described(),
        "gateways": [{"name": one.name, "site": one.site, **rows[one.name]} for one in known if one.name in rows],
        "unreached": [_unreached(one.name, rows) for one in known if one.name not in rows],
    }


def _unreached(name: str, rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Returns the row of a gateway that does not answer: what others say of their links to it."""
    reasons = {
        other: "connected, and it does not answer" if row["up"] else row["reason"]
        for other, report in rows.items()
        for row in report["links"]
        if row["peer"] == name
    }
    return {"name": name, "reasons": reasons}


def detours(peer_manager: PeerManager) -> dict[str, int]:
    """Counts the events that took a detour around a congested or failed link, by `RoutingCase`."""
    cases = peer_manager.overlay.peers.forwarder.cases
    return {case.name.lower(): count for case, count in cases.items() if case is not RoutingCase.NONE}


def link_rows(peer_manager: PeerManager) -> Iterator[dict[str, Any]]:
    """Yields a row for each peer, those of our own site first."""
    gateway, status, now = peer_manager.overlay.peers.gateway, peer_manager.overlay.peers.link_status, clock()
    for link in peer_manager.overlay.links:
        peer, outbox = link.peer, link.outbox
        is_up = link.connection is not None
        across = [position for region in gateway.across.values() for position, mate in region.items() if mate == peer]
        yield {
            "peer": peer,
            "up": is_up,
            "refused": peer in peer_manager.refused,
            "reason": peer_manager.trouble.get(peer, ""),
            "twins": link.boots.twin if link.boots.has_twin(now) else "",
            "twins_refused": link.boots.twins_refused,
            "false_acks": link.false_acks,
            "dials": link.options.dials,
            "links": (["aLink"] if peer in gateway.neighbours else []) + [f"iLink {position}" for position in across],
            "round_trip_ms": round_trip_ms(link),
            "offset_ms": offset_ms(link) if is_up else None,
            "congested": is_up and status.is_congested(peer),
            "congestion_index": round(peer_manager.congestion.index(link), 2),
            "routes": _routes(peer_manager, peer),
            "waiting": sum(len(queue) for queue in outbox.queues.values()),
            "waiting_bytes": sum(queue.bytes for queue in outbox.queues.values()),
            "queues": {service.name.lower(): _queue(link, service) for service in TrafficClass},
            "dropped": {cause.name.lower(): count for cause, count in sorted(outbox.dropped.items())},
            "day_bytes": link.budget.spent,
            "day_bytes_max": link.budget.bytes_per_day or None,
        }


def _routes(peer_manager: PeerManager, peer: str) -> dict[str, Any]:
    """Returns what is sent to *peer*: over an aLink what it announced, over an iLink the topic prefixes that its
    cluster wants.

    interests: None over iLinks, and where they are unknown, so that everything is sent. publishers: the topic prefixes
    under which our clients publish; None where there is no iLink from our cluster. answers: how many of the peer's
    advertisements were answered with exactly what our cluster wants, with more, and with "anything".
    """
    peers = peer_manager.overlay.peers
    interests, records = peers.interests, tuple(peers.region.advertisements)
    mates = {mate: cluster for cluster, mate in peers.region.mates.items()}
    is_neighbour = peer in peers.gateway.neighbours
    is_mate, cluster = peer in mates, mates.get(peer, 0)
    wanted = sum((record.targets | record.unanswered) >> cluster & 1 for record in records)
    return {
        "interests": len(interests.announced_by(peer)) if is_neighbour and interests.is_known(peer) else None,
        "publishers": len(records) if is_mate else None,
        "publishers_wanted": wanted if is_mate else None,
        "answers": dict(zip(("exact", "widened", "anything"), peers.region.secondary.exactness(peer), strict=True)),
    }


def _queue(link: Link, service: TrafficClass) -> dict[str, int]:
    """Returns the counts of one class: messages that `entered` and `sent` since the start; waiting and unacknowledged
    now.
    """
    queue = link.outbox.queues[service]
    counts = queue.figures
    return {
        "taken": counts.entered,
        "sent": counts.left,
        "waiting": counts.waiting,
        "unacknowledged": len(queue.unacked),
        "bytes": queue.bytes,
    }
