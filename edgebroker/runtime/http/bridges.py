"""The bridges over HTTP: `/bridges`, `/bridges/costs`, and the orders of POST /bridges.

`/bridges/costs` attributes the bytes of a bridge to topic prefixes. An operator may add, remove, pause and resume
bridges of a running gateway: POST /bridges?do=pause&name=cloud.
"""

from __future__ import annotations

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
    """All of them."""
    if bridge_manager is None:
        return {"identity": None, "bridges": [], "set_aside": []}
    rows = [bridge_row(one, bridge_manager) for one in bridge_manager.bridges.values()]
    aside = [one for entry in bridge_manager.aside for one in _invalid_rows(entry, bridge_manager)]
    return {"identity": bridge_manager.identity, "bridges": rows, "set_aside": aside}


def _invalid_rows(entry: InvalidEntry, bridge_manager: BridgeManager) -> Iterator[dict[str, Any]]:
    """A row for each thing that is wrong with it. `waiting` is what its session keeps for it."""
    waiting = bridge_manager.waiting(entry.name)
    for one in entry.rows():
        yield {**one, "waiting": waiting, "runs_as_before": entry.name in bridge_manager.bridges}


def bridge_row(bridge: BridgeRunner, bridge_manager: BridgeManager) -> dict[str, Any]:
    """One bridge. Counts begin with the bridge; `waiting` is what the remote has not acknowledged."""
    splice, settings, session = bridge.bridge, bridge.settings, bridge.local_session.session
    granted = splice.capabilities
    is_open = splice.state == "open"
    return {
        "name": settings.name,
        "state": splice.state.value,
        "since_s": round((clock() - splice.since) / SECOND, 3),
        "reason": splice.reason,
        "addresses": list(settings.addresses),
        "address": bridge.address if is_open else None,
        "version": granted.dialect.version if is_open else settings.version,
        "client_id": bridge.options.client_id,
        "added": bridge_manager.is_added(settings.name),
        "connects": splice.connects,
        "session_present": granted.session_present if is_open else None,
        "waiting": 0 if session is None else session.outstanding,
        "waiting_bytes": 0 if session is None else session.outbox.held_bytes + session.inflight.held_bytes,
        "dropped_full": 0 if session is None else session.outbox.dropped,
        "spool": bridge.local_session.described(clock()),
        "sent_again": splice.retransmitted,
        "toll": {
            **splice.shaper.described(),
            "held": 0 if splice.pacing_queue is None else splice.pacing_queue.waiting_messages,
            "held_bytes": 0 if splice.pacing_queue is None else splice.pacing_queue.waiting_bytes,
        },
        "out": splice.outbound_counters.described(),
        "in": splice.inbound_counters.described(),
        "rules": [
            {
                "rule": str(rule),
                "out": splice.outbound_counters.by_rule[number] if rule.is_out else None,
                "in": splice.inbound_counters.by_rule[number] if rule.is_in else None,
                "refused": splice.refusals.get(number),
            }
            for number, rule in enumerate(bridge.options.rules)
        ],
    }


def bridge_costs(bridge: BridgeRunner, depth: int) -> dict[str, Any]:
    """By topic prefix of at most *depth* levels, the most of today first.

    A prefix that ends in `/#` is the rest below it, for which there was no room; `others` is the rest of all.
    """
    splice, now = bridge.bridge, clock()
    toll = splice.shaper
    found = merge_by_prefix(splice.outbound_counters.by_prefix, splice.inbound_counters.by_prefix, depth)
    rows = [
        {"prefix": "others" if prefix == OTHER_TOPICS else prefix, **_both(*cells)} for prefix, cells in found.items()
    ]
    return {
        "name": bridge.options.name,
        "depth": depth,
        "since_s": round((now - bridge.started_at) / SECOND, 3),
        "today_s": round((now - (bridge.started_at if toll.day_began is None else toll.day_began)) / SECOND, 3),
        "prefixes": sorted(rows, key=lambda row: (-_sum(row["today"]), -_sum(row["total"]), row["prefix"])),
        "line": _both(toll.written, toll.read),
    }


def _both(out: ByteCounter, into: ByteCounter) -> dict[str, Any]:
    return {
        "today": {"out": _today(out), "in": _today(into)},
        "total": {"out": _total(out), "in": _total(into)},
    }


def _today(cell: ByteCounter) -> dict[str, int]:
    return {"messages": cell.messages - cell.messages_before, "bytes": cell.bytes - cell.bytes_before}


def _total(cell: ByteCounter) -> dict[str, int]:
    return {"messages": cell.messages, "bytes": cell.bytes}


def _sum(counts: dict[str, Any]) -> int:
    bytes_out, bytes_in = counts["out"]["bytes"], counts["in"]["bytes"]
    return int(bytes_out + bytes_in)


FIELDS_MAX: Final = 8


async def run_bridge_order(bridge_manager: BridgeManager, target: str, has_token: bool) -> HttpResponse:
    """Do what *target* asks for; the answer says how the bridge is then, or why nothing was done.

    *has_token*: whoever asks has shown one. Any user of this machine may ask without, and must not be able to send
    another broker the first line of files that only the gateway can read.
    """
    try:
        query = dict(parse_qsl(urlsplit(target).query, max_num_fields=FIELDS_MAX))
    except ValueError as error:
        return text_response(HTTPStatus.BAD_REQUEST, f"not a path with a query: {error}")
    act = _ACTS.get(query.get("do", ""))
    if act is None:
        return text_response(
            HTTPStatus.BAD_REQUEST, f"do={query.get('do', '')!r} is not known; there are {', '.join(_ACTS)}"
        )
    try:
        done = await act(bridge_manager, query, has_token)
    except SettingsInvalid as refused:
        return text_response(HTTPStatus.BAD_REQUEST, str(refused))
    except EdgebrokerError as error:
        return text_response(HTTPStatus.CONFLICT, str(error))
    return HttpResponse(HTTPStatus.OK, "application/json", (json.dumps(done) + "\n").encode())


async def _add(bridge_manager: BridgeManager, query: dict[str, str], has_token: bool) -> dict[str, Any]:
    """*settings* is the text of a [[bridge]]."""
    folder = bridge_manager.folder or bridge_manager.working_folder
    settings = Settings.parse(query.get("settings", ""), "the bridge", folder)
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


_ACTS: Final[dict[str, Callable[[BridgeManager, dict[str, str], bool], Awaitable[dict[str, Any]]]]] = {
    "add": _add,
    "remove": _remove,
    "pause": _pause,
    "resume": _resume,
}
