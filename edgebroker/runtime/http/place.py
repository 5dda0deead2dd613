"""The placement of publishers over HTTP: `/place` has the proposals, POST /place?do=move executes one of them, and
`/place/history` tells what became of those that were executed.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from edgebridge.wire.reasons import ReasonCode
from edgebroker.federation.relocation import PlacementEstimate
from edgebroker.instants import MILLISECOND
from edgebroker.names import ClientId
from edgebroker.runtime.http.clients import find_client_session, order_move, stored_unix_s
from edgebroker.runtime.http.health import GatewayView
from edgebroker.runtime.http.orders import OrderError, OrderHandler
from edgebroker.runtime.http.query import Query, QueryInvalid, json_response, read_choice
from edgebroker.runtime.http.server import HttpResponse, text_response
from edgebroker.runtime.operator_log import Level
from edgebroker.runtime.peers.placement import federation_placements, told_measurements
from edgebroker.runtime.placement_history import HISTORY_FILE, AppliedMove, PlacementHistory

PLAN_CHARS_MAX: Final = 40
NO_PEERS: Final = "this gateway has no peers: its settings name no topology"


def _history(view: GatewayView) -> PlacementHistory:
    if view.placements is None:
        file = None if view.store is None else view.store.folder / HISTORY_FILE
        view.placements = PlacementHistory(file)
        if reason := view.placements.read():
            text = "which clients were moved by plans cannot be read"
            view.operator_log.log(Level.WARNING, "placements-unreadable", text, reason=reason)
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
    for move in reversed(_history(view).moves):
        ago_s = max(0, unix_s - move.unix_s)
        found = None if move.client in seen else measured.get(move.gateway, {}).get(move.client)
        outcome = "moved again" if move.client in seen else _outcome(view, move, found is not None)
        seen.add(move.client)
        rows.append(
            {
                "client": move.client,
                "to": move.gateway,
                "plan": move.plan,
                "ago_s": ago_s,
                "way": move.way,
                "outcome": outcome,
                "delay_ms": {"here": move.delay_ms[0], "there": move.delay_ms[1]},
                "load": {"here": move.load[0], "there": move.load[1]},
                "realised": found if found is not None and found["age_s"] <= ago_s else None,
            }
        )
    return rows


def _outcome(view: GatewayView, move: AppliedMove, is_measured: bool) -> str:
    """Returns what became of a client: `on its way`, or a `MoveOutcome`."""
    connect_handler = view.frontend.connect_handler
    session = connect_handler.sessions.get(ClientId(move.client))
    if session is not None and session.is_connected:
        return "returned"
    last = connect_handler.moves.last(move.client)
    if is_measured:
        return "arrived"
    if last is None or last.gateway != move.gateway:
        return "unknown"
    return "on its way" if last.outcome is None else last.outcome.value


async def _move(view: GatewayView, query: Query) -> dict[str, Any]:
    session, gateway, plan = find_client_session(view, query), query.get("to", ""), query.get("plan", "")
    if not gateway:
        raise QueryInvalid("to which gateway? say to=")
    if len(plan) > PLAN_CHARS_MAX:
        raise QueryInvalid(f"plan has {len(plan)} characters; say it in {PLAN_CHARS_MAX}")
    estimate = _proposal(view, session.client_id, gateway)
    answer = order_move(view, session, gateway, ReasonCode.USE_ANOTHER_SERVER)
    if not answer["moved"]:
        return answer | {"forgotten": ""}
    events = max(1, estimate.events)
    move = AppliedMove(
        session.client_id,
        gateway,
        plan,
        stored_unix_s(view),
        answer["way"],
        (round(estimate.delay_here / MILLISECOND, 3), round(estimate.delay_there / MILLISECOND, 3)),
        (round(estimate.load_here / events, 3), round(estimate.load_there / events, 3)),
    )
    return answer | {"forgotten": await _history(view).add(move)}


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
