"""The links of a gateway as others may see them: what `/links` answers, with a row for each peer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edgebroker.instants import MILLISECOND
from edgebroker.overlay.classes import Service
from edgebroker.overlay.link.link import Link
from edgebroker.overlay.routing import Case
from edgebroker.world.peering.peering import Peering
from edgebroker.world.reactor import clock


def links(peering: Peering) -> dict[str, Any]:
    """Who we are, and how it stands with each peer."""
    return {
        **peering.described(),
        "received_bytes": peering.received_bytes,
        "sent_bytes": peering.sent_bytes,
        "strangers_refused": peering.overlay.links.strangers,
        "routing": "static" if peering.overlay.windows is None else "dynamic",
        "detours": detours(peering),
        "crowded": [
            {"at": gateway, "for": neighbour}
            for gateway, neighbour in peering.overlay.peers.neighbourhood.crowds.standing()
        ],
        "links": list(rows(peering)),
    }


def detours(peering: Peering) -> dict[str, int]:
    """How often an event went around something congested or down, by how: the cases of `overlay.routing`."""
    cases = peering.overlay.peers.forwarding.cases
    return {case.name.lower(): count for case, count in cases.items() if case is not Case.NONE}


def rows(peering: Peering) -> Iterator[dict[str, Any]]:
    """One for each peer, those of the own site first."""
    gateway, status, now = peering.overlay.peers.gateway, peering.overlay.peers.status, clock()
    for link in peering.overlay.links:
        peer, outbox = link.peer, link.outbox
        is_up = link.stream is not None
        across = [position for region in gateway.across.values() for position, who in region.items() if who == peer]
        yield {
            "peer": peer,
            "up": is_up,
            "refused": peer in peering.refused,
            "reason": peering.trouble.get(peer, ""),
            "twins": link.runs.twin if link.runs.has_twin(now) else "",
            "twins_refused": link.runs.twins_refused,
            "dials": link.terms.dials,
            "links": (["aLink"] if peer in gateway.neighbours else []) + [f"iLink {position}" for position in across],
            "round_trip_ms": link.heartbeat.round_trip / MILLISECOND if is_up and link.heartbeat.round_trip else None,
            "offset_ms": _offset_ms(link) if is_up else None,
            "congested": is_up and status.is_congested(peer),
            "congestion_index": round(peering.gauge.index(link), 2),
            "routes": _routes(peering, peer),
            "waiting": sum(len(lane) for lane in outbox.lanes.values()),
            "waiting_bytes": sum(lane.bytes for lane in outbox.lanes.values()),
            "queues": {service.name.lower(): _queue(link, service) for service in Service},
            "dropped": {cause.name.lower(): count for cause, count in sorted(outbox.dropped.items())},
            "day_bytes": link.budget.spent,
            "day_bytes_max": link.budget.bytes_per_day or None,
        }


def _routes(peering: Peering, peer: str) -> dict[str, Any]:
    """What is sent to *peer*: over an aLink what it announced, over an iLink the publishers that its cluster wants.

    interests: None over iLinks, and where they are not known yet, so that everything is sent. publishers: ours, by what
    they advertise; None where there is no iLink from our home.
    """
    peers = peering.overlay.peers
    interests, records = peers.interests, tuple(peers.region.advertisements)
    mates = {mate: cluster for cluster, mate in peers.region.mates.items()}
    is_neighbour = peer in peers.gateway.neighbours
    is_mate, cluster = peer in mates, mates.get(peer, 0)
    wanted = sum((record.targets | record.unanswered) >> cluster & 1 for record in records)
    return {
        "interests": len(interests.held(peer)) if is_neighbour and interests.is_heard(peer) else None,
        "publishers": len(records) if is_mate else None,
        "publishers_wanted": wanted if is_mate else None,
    }


def _offset_ms(link: Link) -> float | None:
    offset = link.heartbeat.offset
    return None if offset is None else offset / MILLISECOND


def _queue(link: Link, service: Service) -> dict[str, int]:
    """Messages of one class: `taken` and `sent` since the start; waiting and sent but not acknowledged now."""
    lane = link.outbox.lanes[service]
    figures = lane.figures
    return {
        "taken": figures.entered,
        "sent": figures.left,
        "waiting": figures.waiting,
        "unacknowledged": len(lane.unacked),
        "bytes": lane.bytes,
    }
