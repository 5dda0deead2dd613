"""The placement of publishers over HTTP: `/place` has the proposals, POST /place?do=move executes one of them, and
`/place/history` tells what became of those that were executed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final

from edgebroker.federation.relocation import PlacementEstimate
from edgebroker.runtime.http.clients import find_client_session, stored_unix_s
from edgebroker.runtime.http.health import GatewayView
from edgebroker.runtime.http.orders import OrderError, OrderHandler
from edgebroker.runtime.http.query import Query, QueryInvalid, json_response, read_choice
from edgebroker.runtime.http.server import HttpResponse, text_response
from edgebroker.runtime.peers.placement import MeanCosts, federation_placements, told_measurements
from edgebroker.runtime.placement_history import AppliedMove
from edgebroker.runtime.placement_runner import PlacementRunner

PLAN_CHARS_MAX: Final = 40
NO_PEERS: Final = "this gateway has no peers: its settings name no topology"


def _runner(view: GatewayView) -> PlacementRunner:
    if view.placements is None:
        raise OrderError(NO_PEERS)
    return view.placements


async def placement_page(view: GatewayView, query: Query, limit: int, is_history: bool) -> HttpResponse:
    """Returns `/place`, at most *limit* proposals, or `/place/history`."""
    peer_manager = view.peer_manager
    if peer_manager is None:
        return text_response(HTTPStatus.NOT_FOUND, NO_PEERS)
    is_all = read_choice(query, "all", "no", ["no", "yes"]) == "yes"
    told = await peer_manager.query_all() if is_all else {}
    membership, unix_s = peer_manager.membership, stored_unix_s(view)
    if is_history:
        rows = _history_rows(view, told_measurements(told), unix_s)
        return json_response({"name": membership.name, "unix_s": unix_s, "moves": rows})
    own = peer_manager.placement(limit)
    if is_all:
        answer = federation_placements(membership.topology, membership.name, own, told)
    else:
        answer = {"gateways": [{"name": membership.name, **own}], "unreached": []}
    return json_response({"name": membership.name, "unix_s": unix_s, **answer})


def _history_rows(
    view: GatewayView, measured: Mapping[str, Mapping[str, dict[str, Any]]], unix_s: int
) -> list[dict[str, Any]]:
    """Returns the moves, the latest first. *measured*: what trace sessions at other gateways say, by gateway and
    client.
    """
    rows: list[dict[str, Any]] = []
    seen: set[str] = set()
    runner = _runner(view)
    for move in reversed(runner.history.moves):
        ago_s = max(0, unix_s - move.unix_s)
        found = None if move.client in seen else measured.get(move.gateway, {}).get(move.client)
        outcome = "moved again" if move.client in seen else runner.outcome(move, found is not None)
        pause_ms = move.pause_ms if move.client in seen else runner.pause_ms(move)
        seen.add(move.client)
        realised = None if move.realised is None else move.realised._asdict()
        rows.append(
            {
                "client": move.client,
                "to": move.gateway,
                "plan": move.plan,
                "ago_s": ago_s,
                "way": move.way,
                "outcome": outcome,
                "pause_ms": pause_ms,
                **{name: {"here": here, "there": there} for name, here, there in _costs(move)},
                "realised": found if found is not None and found["age_s"] <= ago_s else realised,
            }
        )
    return rows


def _costs(move: AppliedMove) -> Iterable[tuple[str, float, float]]:
    """Returns name, value before the move and predicted value of each quantity."""
    return zip(MeanCosts._fields, move.before, move.predicted, strict=True)


async def _move(view: GatewayView, query: Query) -> dict[str, Any]:
    session, gateway, plan = find_client_session(view, query), query.get("to", ""), query.get("plan", "")
    if not gateway:
        raise QueryInvalid("to which gateway? say to=")
    if len(plan) > PLAN_CHARS_MAX:
        raise QueryInvalid(f"plan has {len(plan)} characters; say it in {PLAN_CHARS_MAX}")
    return await _runner(view).execute(session, _proposal(view, session.client_id, gateway), plan)


def _proposal(view: GatewayView, client: str, gateway: str) -> PlacementEstimate:
    """Returns the estimate because of which *client* should go to *gateway*. Raises OrderError if it should not."""
    if view.peer_manager is None:
        raise OrderError(NO_PEERS)
    publishers = view.peer_manager.overlay.peers.relocation.publishers
    estimate = next((one.estimate for one in publishers if one.publisher.client == client), None)
    if estimate is None or estimate.refusal is not None or estimate.target != gateway:
        raise OrderError(f"{client} should not go to {gateway} as things are now; make a new plan")
    return estimate


PLACE_ORDERS: Final[dict[str, tuple[OrderHandler, frozenset[str]]]] = {
    "move": (_move, frozenset({"name", "to", "plan"})),
}
