"""The placement of publishers over HTTP: `/place` has the proposals, POST /place?do=move executes one of them, and
`/place/history` tells what became of those that were executed.

The history is a small JSON file in the data folder, written in a worker thread; without a data folder it is in memory.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple

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
from edgebroker.runtime.private_files import FileUnusable, read_own_json, replace_private, set_aside

HISTORY_FILE: Final = "placements.json"
"""In the data folder. It may be deleted at any time while the gateway is off."""
HISTORY_MAX: Final = 200
"""Moves that are remembered, 40 KiB; older ones are forgotten."""
PLAN_CHARS_MAX: Final = 40
NO_PEERS: Final = "this gateway has no peers: its settings name no topology"


class AppliedMove(NamedTuple):
    """A client that was sent to another gateway because a plan said so."""

    client: str
    gateway: str
    """To which it was sent."""
    plan: str
    """Which plan it was; moves with the same text belong together."""
    unix_s: int
    way: str
    """How it was told, as in metrics: `use_another_server` or `closed`."""
    delay_ms: tuple[float, float]
    """The mean time from it to its readers as it was, and as it was predicted."""
    load: tuple[float, float]
    """The gateways that a message of it entered, and those predicted; the mean."""


class PlacementHistory:
    """The moves of applied plans, the oldest first."""

    def __init__(self, file: Path | None) -> None:
        """*file*: where they are kept; None: in memory."""
        self.moves: deque[AppliedMove] = deque(maxlen=HISTORY_MAX)
        self._file = file
        self._lock = asyncio.Lock()

    def read(self) -> str:
        """Reads the file, if there is one. Returns an empty text, or why it cannot be read."""
        if self._file is None or not self._file.exists():
            return ""
        try:
            for row in read_own_json(self._file):
                (delay, better), (load, less) = row["delay_ms"], row["load"]
                texts = str(row["client"]), str(row["gateway"]), str(row["plan"])
                pairs = (float(delay), float(better)), (float(load), float(less))
                self.moves.append(AppliedMove(*texts, int(row["unix_s"]), str(row["way"]), *pairs))
        except (FileUnusable, ValueError, KeyError, TypeError) as error:
            return f"{error}; {set_aside(self._file)}"
        return ""

    async def add(self, move: AppliedMove) -> str:
        """Appends *move*. Returns an empty text when it is on disk, or why a restart will forget it."""
        self.moves.append(move)
        if self._file is None:
            return "there is no data folder"
        async with self._lock:
            text = json.dumps([one._asdict() for one in self.moves], indent=1) + "\n"
            try:
                await asyncio.to_thread(replace_private, self._file, text)
            except FileUnusable as error:
                return str(error)
        return ""


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
