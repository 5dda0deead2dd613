"""The bridges over HTTP: `/bridges`, `/bridges/costs`, and the orders of POST /bridges.

`/bridges/costs` attributes the bytes of a bridge to topic prefixes. An operator may add, remove, pause and resume
bridges of a running gateway: POST /bridges?do=pause&name=cloud.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from edgebridge.bridge.counters import OTHER_TOPICS, ByteCounter, merge_by_prefix
from edgebroker.errors import EdgebrokerError, SettingsInvalid
from edgebroker.instants import SECOND
from edgebroker.runtime.bridges.bridge import BridgeRunner
from edgebroker.runtime.bridges.bridges import BridgeManager
from edgebroker.runtime.http.server import HttpResponse, text_response
from edgebroker.runtime.loop.reactor import clock
from edgebroker.runtime.settings import Problem, Settings, SettingsRefused
from edgebroker.runtime.settings.problems import InvalidEntry


def bridge_rows(bridge_manager: BridgeManager | None) -> dict[str, Any]:
    """Returns a row for each bridge, and one for each problem of an invalid entry."""
    if bridge_manager is None:
        return {"identity": None, "bridges": [], "set_aside": []}
    rows = [bridge_row(bridge, bridge_manager) for bridge in bridge_manager.bridges.values()]
    set_aside = [row for entry in bridge_manager.aside for row in _invalid_rows(entry, bridge_manager)]
    return {"identity": bridge_manager.identity, "bridges": rows, "set_aside": set_aside}


def _invalid_rows(entry: InvalidEntry, bridge_manager: BridgeManager) -> Iterator[dict[str, Any]]:
    """Yields a row for each problem of *entry*. `waiting` is the number of messages in its session."""
    waiting = bridge_manager.waiting(entry.name)
    for row in entry.rows():
        yield {**row, "waiting": waiting, "runs_as_before": entry.name in bridge_manager.bridges}


def bridge_row(bridge: BridgeRunner, bridge_manager: BridgeManager) -> dict[str, Any]:
    """Returns the row of one bridge. Counts begin with the bridge; `waiting` has messages that the remote has not
    acknowledged.
    """
    state_machine, settings, session = bridge.bridge, bridge.settings, bridge.local_session.session
    capabilities = state_machine.capabilities
    is_open = state_machine.state == "open"
    pair = bridge_manager.pair_of(settings)
    return {
        "name": settings.name,
        "state": state_machine.state.value,
        "since_s": round((clock() - state_machine.since) / SECOND, 3),
        "reason": state_machine.reason,
        "addresses": list(settings.addresses),
        "address": bridge.address if is_open else None,
        "version": capabilities.dialect.version if is_open else settings.version,
        "client_id": bridge.options.client_id,
        "pair": settings.pair,
        "role": None if pair is None else bridge.role,
        "takeovers": 0 if pair is None else pair.takeovers,
        "added": bridge_manager.is_added(settings.name),
        "connects": state_machine.connects,
        "session_present": capabilities.session_present if is_open else None,
        "waiting": 0 if session is None else session.outstanding,
        "waiting_bytes": 0 if session is None else session.outbox.held_bytes + session.inflight.held_bytes,
        "dropped_full": 0 if session is None else session.outbox.dropped,
        "spool": bridge.local_session.described(clock()),
        "sent_again": state_machine.retransmitted,
        "warnings": bridge.warnings,
        "toll": {
            **state_machine.shaper.described(),
            "held": 0 if state_machine.pacing_queue is None else state_machine.pacing_queue.waiting_messages,
            "held_bytes": 0 if state_machine.pacing_queue is None else state_machine.pacing_queue.waiting_bytes,
        },
        "out": state_machine.outbound_counters.described(),
        "in": state_machine.inbound_counters.described(),
        "rules": [
            {
                "rule": str(rule),
                "out": state_machine.outbound_counters.by_rule[number] if rule.is_out else None,
                "in": state_machine.inbound_counters.by_rule[number] if rule.is_in else None,
                "refused": state_machine.refusals.get(number),
            }
            for number, rule in enumerate(bridge.options.rules)
        ],
    }


def bridge_costs(bridge: BridgeRunner, depth: int) -> dict[str, Any]:
    """Returns the bytes by topic prefix of at most *depth* levels, the largest of today first.

    A prefix that ends in `/#` stands for all topics below it that have no row of their own; `others` for all remaining
    topics.
    """
    state_machine, now = bridge.bridge, clock()
    shaper = state_machine.shaper
    merged = merge_by_prefix(state_machine.outbound_counters.by_prefix, state_machine.inbound_counters.by_prefix, depth)
    rows = [
        {"prefix": "others" if prefix == OTHER_TOPICS else prefix, **_both(*counters)}
        for prefix, counters in merged.items()
    ]
    return {
        "name": bridge.options.name,
        "depth": depth,
        "since_s": round((now - bridge.started_at) / SECOND, 3),
        "today_s": round((now - (bridge.started_at if shaper.day_began is None else shaper.day_began)) / SECOND, 3),
        "prefixes": sorted(rows, key=lambda row: (-_sum(row["today"]), -_sum(row["total"]), row["prefix"])),
        "line": _both(shaper.written, shaper.read),
    }


def _both(out: ByteCounter, into: ByteCounter) -> dict[str, Any]:
    return {"today": {"out": _today(out), "in": _today(into)}, "total": {"out": _total(out), "in": _total(into)}}


def _today(counter: ByteCounter) -> dict[str, int]:
    return {"messages": counter.messages - counter.messages_before, "bytes": counter.bytes - counter.bytes_before}


def _total(counter: ByteCounter) -> dict[str, int]:
    return {"messages": counter.messages, "bytes": counter.bytes}


def _sum(counts: dict[str, Any]) -> int:
    bytes_out, bytes_in = counts["out"]["bytes"], counts["in"]["bytes"]
    return int(bytes_out + bytes_in)


FIELDS_MAX: Final = 8


async def run_bridge_order(bridge_manager: BridgeManager, target: str, has_token: bool) -> HttpResponse:
    """Executes the order in *target*; the response has the bridge's new state, or says why nothing was done.

    *has_token*: whether the request is authorized by a token. Every user of this machine can send requests without one,
    and must not be able to send another broker the first line of a file that only the gateway can read.
    """
    try:
        query = dict(parse_qsl(urlsplit(target).query, max_num_fields=FIELDS_MAX))
    except ValueError as error:
        return text_response(HTTPStatus.BAD_REQUEST, f"not a path with a query: {error}")
    handler = _HANDLERS.get(query.get("do", ""))
    if handler is None:
        return text_response(
            HTTPStatus.BAD_REQUEST, f"do={query.get('do', '')!r} is not known; there are {', '.join(_HANDLERS)}"
        )
    try:
        done = await handler(bridge_manager, query, has_token)
    except SettingsInvalid as refused:
        return text_response(HTTPStatus.BAD_REQUEST, str(refused))
    except EdgebrokerError as error:
        return text_response(HTTPStatus.CONFLICT, str(error))
    return HttpResponse(HTTPStatus.OK, "application/json", (json.dumps(done) + "\n").encode())


async def _add(bridge_manager: BridgeManager, query: dict[str, str], has_token: bool) -> dict[str, Any]:
    """Adds a bridge. `settings` of the query is the text of a [[bridge]]."""
    folder = bridge_manager.folder or bridge_manager.working_folder
    settings = await asyncio.to_thread(Settings.parse, query.get("settings", ""), "the bridge", folder)
    if len(settings.bridges) != 1:
        raise SettingsRefused([Problem("the bridge", 0, "", "is not one [[bridge]]", "send one at a time")])
    file = settings.bridges[0].password_file
    if file is not None and not has_token and not file.resolve().is_relative_to(folder.resolve()):
        mend = f"put it into {folder}, or set http.token_file and show a token"
        raise SettingsRefused([Problem("the bridge", 0, "bridge.password_file", f"{file} is elsewhere", mend)])
    return bridge_row(await bridge_manager.add(settings.bridges[0]), bridge_manager)


async def _remove(bridge_manager: BridgeManager, query: dict[str, str], _: bool) -> dict[str, Any]:
    return {"name": query.get("name", ""), "dropped": await bridge_manager.remove(query.get("name", ""))}


async def _pause(bridge_manager: BridgeManager, query: dict[str, str], _: bool) -> dict[str, Any]:
    return bridge_row(bridge_manager.set_paused(query.get("name", ""), True), bridge_manager)


async def _resume(bridge_manager: BridgeManager, query: dict[str, str], _: bool) -> dict[str, Any]:
    return bridge_row(bridge_manager.set_paused(query.get("name", ""), False), bridge_manager)


_HANDLERS: Final[dict[str, Callable[[BridgeManager, dict[str, str], bool], Awaitable[dict[str, Any]]]]] = {
    "add": _add,
    "remove": _remove,
    "pause": _pause,
    "resume": _resume,
}
