"""The placement of publishers for operators: which of them should be at another gateway, why, and why others stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from edgebroker.federation.relocation import PlacedPublisher, PlacementEstimate, RelocationStatistics
from edgebroker.instants import MILLISECOND, MINUTE, SECOND, Instant
from edgebroker.overlay.topology.topology import Topology
from edgebroker.relocation.placement import PlacementPriority, PlacementRefusal
from edgebroker.runtime.peers.client_ways import ClientWays
from edgebroker.runtime.peers.status import decode_report

TOLD_MAX: Final = 50
"""Proposals that another gateway is told: 25 KiB. It is told how many there are."""
KEYS: Final = frozenset({"mode", "priority", "weight", "gain_min", "publishers", "proposed", "proposals", "stays"})
"""What the report of another gateway must have to be shown."""
UNSEEN: Final = "unseen"
"""Why a publisher stays: no session of it has ended yet."""


def placement_report(
    statistics: RelocationStatistics, topology: Topology, ways: ClientWays, now: Instant, limit: int
) -> dict[str, Any]:
    """Returns what is proposed, at most *limit* publishers, those that gain most first, and why others stay; JSON."""
    options, proposed, stays = statistics.options, list[tuple[PlacedPublisher, PlacementEstimate]](), Counter[str]()
    for each in statistics.publishers:
        estimate = each.estimate
        if estimate is not None and estimate.refusal is None:
            proposed.append((each, estimate))
        else:
            stays[UNSEEN if each.outcome is None else each.outcome.name.lower()] += 1
    is_by_delay = options.goal.priority is PlacementPriority.DELAY

    def rank(one: tuple[PlacedPublisher, PlacementEstimate]) -> tuple[float, float, str]:
        delay, load = _gains(one[1])
        return (-delay, -load, one[0].publisher.client) if is_by_delay else (-load, -delay, one[0].publisher.client)

    proposed.sort(key=rank)
    site_names = {site.index: site.name for site in topology.sites}
    return {
        "mode": options.mode.value,
        "priority": options.goal.priority.value,
        "weight": options.goal.weight,
        "gain_min": round(100 * options.goal.gain_min),
        **statistics.figures,
        "untracked": statistics.untracked,
        "proposed": len(proposed),
        "proposals": [_row(one, made, ways, site_names, now) for one, made in proposed[:limit]],
        "stays": {name: stays[name] for name in (*(one.name.lower() for one in PlacementRefusal), UNSEEN)},
    }


def _row(
    each: PlacedPublisher,
    estimate: PlacementEstimate,
    ways: ClientWays,
    site_names: Mapping[int, str],
    now: Instant,
) -> dict[str, Any]:
    delay_gain, load_gain = _gains(estimate)
    events = max(1, estimate.events)
    return {
        "client": each.publisher.client,
        "to": estimate.target,
        "delay_ms": {
            "here": round(estimate.delay_here / MILLISECOND, 3),
            "there": round(estimate.delay_there / MILLISECOND, 3),
        },
        "load": {"here": round(estimate.load_here / events, 3), "there": round(estimate.load_there / events, 3)},
        "gain_percent": {"delay": round(100 * delay_gain, 1), "load": round(100 * load_gain, 1)},
        "uplinks": _uplinks(estimate, site_names),
        **ways.described(each.publisher.client, estimate.target),
        "confidence": {
            "sessions": each.sessions,
            "unusable": each.unusable,
            "last": None if each.outcome is None else each.outcome.name.lower(),
            "events": estimate.events,
            "deliveries": estimate.deliveries,
            "age_s": round((now - estimate.made_at) / SECOND, 1),
        },
    }


def _gains(estimate: PlacementEstimate) -> tuple[float, float]:
    """Returns by what share of now delay and load would be less."""
    delay = 1 - estimate.delay_there / estimate.delay_here if estimate.delay_here else 0.0
    return delay, 1 - estimate.load_there / estimate.load_here


def _uplinks(estimate: PlacementEstimate, site_names: Mapping[int, str]) -> list[dict[str, Any]]:
    """Returns the bytes of payloads that cross from site to site in a minute, now and after the move."""
    here = {(one, other): events for one, other, events in estimate.uplinks_here}
    there = {(one, other): events for one, other, events in estimate.uplinks_there}
    per_minute = estimate.payload_bytes / max(1, estimate.events) * MINUTE / max(1, estimate.lasted)
    return [
        {
            "from": site_names[pair[0]],
            "to": site_names[pair[1]],
            "bytes_per_minute": {
                "here": round(here.get(pair, 0) * per_minute),
                "there": round(there.get(pair, 0) * per_minute),
            },
        }
        for pair in dict.fromkeys((*here, *there))
    ]


def measured_publishers(statistics: RelocationStatistics, now: Instant) -> list[dict[str, Any]]:
    """Returns what trace sessions say of the TOLD_MAX publishers that came last, which may have been moved; JSON."""
    made = ((one.publisher.client, one.estimate) for one in [*statistics.publishers][-TOLD_MAX:])
    return [
        {
            "client": client,
            "delay_ms": round(estimate.delay_here / MILLISECOND, 3),
            "load": round(estimate.load_here / max(1, estimate.events), 3),
            "age_s": round((now - estimate.made_at) / SECOND, 1),
        }
        for client, estimate in made
        if estimate is not None
    ]


def told_measurements(told: Mapping[str, bytes]) -> dict[str, dict[str, dict[str, Any]]]:
    """Returns the rows of `measured_publishers` of other gateways by gateway and client. *told*: as for
    `federation_placements`; who does not tell any is left out.
    """
    measured: dict[str, dict[str, dict[str, Any]]] = {}
    for name, answer in told.items():
        try:
            rows = decode_report(answer)["measured"]
            measured[name] = {
                str(row["client"]): {key: float(row[key]) for key in ("delay_ms", "load", "age_s")} for row in rows
            }
        except (ValueError, KeyError, TypeError):
            continue
    return measured


def _told_placement(report: dict[str, Any]) -> dict[str, Any]:
    """Returns the placement in the report of another gateway. Raises ValueError."""
    placement = report.get("placement")
    if not isinstance(placement, dict) or not placement.keys() >= KEYS:
        raise ValueError("it tells nothing of publishers: it is of another version, or has too many links")
    return placement


def federation_placements(
    topology: Topology, name: str, own: dict[str, Any], told: Mapping[str, bytes]
) -> dict[str, Any]:
    """Returns the reports of all gateways, and who does not answer. *own*: that of the gateway *name*. *told*: name ->
    the answer of another one to a query for its state, with at most TOLD_MAX proposals.
    """
    reports, unreached = {name: own}, []
    for other in (one.name for one in topology.gateways if one.name != name):
        reason = "it does not answer"
        if other in told:
            try:
                reports[other] = _told_placement(decode_report(told[other]))
                continue
            except ValueError as error:
                reason = str(error)
        unreached.append({"name": other, "reason": reason})
    return {"gateways": [{"name": each, **report} for each, report in reports.items()], "unreached": unreached}
