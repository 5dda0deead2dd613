"""The placement of publishers for operators: which of them should be at another gateway, why, and why others stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from edgebroker.federation.options import RelocationMode
from edgebroker.federation.relocation import PlacedPublisher, PlacementEstimate, RelocationStatistics
from edgebroker.instants import MILLISECOND, MINUTE, SECOND, Instant
from edgebroker.overlay.topology.topology import Topology
from edgebroker.relocation.automatic_moves import AutomaticMoves
from edgebroker.relocation.placement import PlacementPriority, PlacementRefusal
from edgebroker.runtime.peers.client_ways import ClientWays
from edgebroker.runtime.peers.status import decode_report

TOLD_MAX: Final = 50
"""Proposals that another gateway is told: 25 KiB. It is told how many there are."""
KEYS: Final = frozenset({"mode", "priority", "weight", "gain_min", "publishers", "proposed", "proposals", "stays"})
"""What the report of another gateway must have to be shown."""
UNSEEN: Final = "unseen"
"""Why a publisher stays: no session of it has ended yet."""


class MeanCosts(NamedTuple):
    """What the messages of a publisher cost from a gateway on: the mean of one trace session. So predicted and realised
    costs are the same quantities: the way of the device to the gateway, which nobody measures, is in neither.
    """

    delay_ms: float
    """From the publisher's gateway to a reader."""
    load: float
    """Gateways that a message enters."""
    uplink_bytes: float
    """Bytes of its payload that cross from site to site."""

    @classmethod
    def from_json(cls, values: Sequence[Any]) -> MeanCosts:
        """Returns the costs in a list. Raises ValueError, TypeError."""
        delay_ms, load, uplink_bytes = map(float, values)
        return cls(delay_ms, load, uplink_bytes)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> MeanCosts:
        """Returns the costs in a row of `measured_publishers`. Raises KeyError, ValueError, TypeError."""
        return cls.from_json([row[name] for name in cls._fields])


def costs_here(estimate: PlacementEstimate) -> MeanCosts:
    """Returns the costs of a publisher where it is."""
    return _costs(estimate, estimate.delay_here, estimate.load_here, estimate.uplinks_here)


def costs_there(estimate: PlacementEstimate) -> MeanCosts:
    """Returns the costs that are predicted for its target."""
    delay = estimate.delay_there - estimate.way_there
    return _costs(estimate, delay, estimate.load_there, estimate.uplinks_there)


def _costs(estimate: PlacementEstimate, delay: float, load: int, uplinks: Iterable[tuple[int, int, int]]) -> MeanCosts:
    events = max(1, estimate.events)
    crossing = sum(count for _, _, count in uplinks) / events
    mean_bytes = estimate.payload_bytes / events
    return MeanCosts(round(delay / MILLISECOND, 3), round(load / events, 3), round(crossing * mean_bytes, 1))


ProposedMove = tuple[PlacedPublisher, PlacementEstimate]


def proposed_moves(statistics: RelocationStatistics) -> list[ProposedMove]:
    """Returns the publishers that should be elsewhere, those that gain most first."""
    is_by_delay = statistics.options.goal.priority is PlacementPriority.DELAY

    def rank(one: ProposedMove) -> tuple[float, float, str]:
        delay, load = _gains(one[1])
        return (-delay, -load, one[0].publisher.client) if is_by_delay else (-load, -delay, one[0].publisher.client)

    made = ((each, each.estimate) for each in statistics.publishers)
    return sorted(((each, one) for each, one in made if one is not None and one.refusal is None), key=rank)


def placement_report(
    statistics: RelocationStatistics,
    topology: Topology,
    ways: ClientWays,
    automatic: AutomaticMoves,
    now: Instant,
    limit: int,
) -> dict[str, Any]:
    """Returns what is proposed, at most *limit* publishers, those that gain most first, and why others stay; JSON."""
    options, proposed, stays = statistics.options, proposed_moves(statistics), Counter[str]()
    for each in statistics.publishers:
        if each.estimate is None or each.estimate.refusal is not None:
            stays[UNSEEN if each.outcome is None else each.outcome.name.lower()] += 1
    site_names = {site.index: site.name for site in topology.sites}
    rows = [_row(one, made, ways, site_names, now) for one, made in proposed[:limit]]
    if options.mode is RelocationMode.APPLY:
        for row, (each, _) in zip(rows, proposed, strict=False):
            row["automatic"] = why_not_automatic(each, row["way"] != "none", ways, automatic, now)
    return {
        "mode": options.mode.value,
        "priority": options.goal.priority.value,
        "weight": options.goal.weight,
        "gain_min": round(100 * options.goal.gain_min),
        "moves_per_minute": options.moves_per_minute,
        "next_move_s": round(max(0, automatic.due - now) / SECOND, 1),
        **statistics.figures,
        "untracked": statistics.untracked,
        "proposed": len(proposed),
        "proposals": rows,
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
        "way_ms": round(estimate.way_there / MILLISECOND, 3),
        "load": {"here": round(estimate.load_here / events, 3), "there": round(estimate.load_there / events, 3)},
        "gain_percent": {"delay": round(100 * delay_gain, 1), "load": round(100 * load_gain, 1)},
        "uplinks": _uplinks(estimate, site_names),
        **ways.described(each.publisher.client, estimate.target),
        "confidence": {
            "sessions": each.sessions,
            "confirmations": each.confirmations,
            "unusable": each.unusable,
            "last": None if each.outcome is None else each.outcome.name.lower(),
            "events": estimate.events,
            "deliveries": estimate.deliveries,
            "age_s": round((now - estimate.made_at) / SECOND, 1),
        },
    }


def why_not_automatic(
    each: PlacedPublisher, has_way: bool, ways: ClientWays, automatic: AutomaticMoves, now: Instant
) -> str:
    """Returns why the gateway does not move a publisher itself, or an empty text."""
    client = each.publisher.client
    return automatic.stay(client, each.confirmations, has_way, ways.has_moving_session(client), now)


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
            **costs_here(estimate)._asdict(),
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
                str(row["client"]): {**MeanCosts.from_row(row)._asdict(), "age_s": float(row["age_s"])} for row in rows
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
