"""The bridges of a gateway as others may see them: what `/bridges` answers, with a row for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edgebroker.instants import SECOND
from edgebroker.world.bridging.bridge import Bridge
from edgebroker.world.bridging.bridging import Bridging
from edgebroker.world.reactor import clock
from edgebroker.world.settings.aside import Aside


def bridges(bridging: Bridging | None) -> dict[str, Any]:
    """All of them."""
    if bridging is None:
        return {"identity": None, "bridges": [], "set_aside": []}
    rows = [row(one, bridging) for one in bridging.bridges.values()]
    aside = [one for entry in bridging.aside for one in _aside(entry, bridging)]
    return {"identity": bridging.identity, "bridges": rows, "set_aside": aside}


def _aside(entry: Aside, bridging: Bridging) -> Iterator[dict[str, Any]]:
    """A row for each thing that is wrong with it. `waiting` is what its session keeps for it."""
    waiting = bridging.waiting(entry.name)
    for one in entry.rows():
        yield {**one, "waiting": waiting, "runs_as_before": entry.name in bridging.bridges}


def row(bridge: Bridge, bridging: Bridging) -> dict[str, Any]:
    """One bridge. Counts begin with the bridge; `waiting` is what the remote has not acknowledged."""
    splice, settings, session = bridge.splice, bridge.settings, bridge.memory.session
    granted = splice.granted
    is_open = splice.state == "open"
    return {
        "name": settings.name,
        "state": splice.state.value,
        "since_s": round((clock() - splice.since) / SECOND, 3),
        "reason": splice.reason,
        "addresses": list(settings.addresses),
        "address": bridge.address if is_open else None,
        "version": granted.dialect.version if is_open else settings.version,
        "client_id": bridge.terms.client_id,
        "added": bridging.is_added(settings.name),
        "connects": splice.connects,
        "session_present": granted.session_present if is_open else None,
        "waiting": 0 if session is None else session.outstanding,
        "waiting_bytes": 0 if session is None else session.outbox.held_bytes + session.inflight.held_bytes,
        "dropped_full": 0 if session is None else session.outbox.dropped,
        "spool": bridge.memory.described(clock()),
        "sent_again": splice.sent_again,
        "toll": {
            **splice.toll.described(),
            "held": 0 if splice.gate is None else splice.gate.held,
            "held_bytes": 0 if splice.gate is None else splice.gate.held_bytes,
        },
        "out": splice.out.described(),
        "in": splice.into.described(),
        "rules": [
            {
                "rule": str(rule),
                "out": splice.out.by_rule[number] if rule.is_out else None,
                "in": splice.into.by_rule[number] if rule.is_in else None,
                "refused": splice.refusals.get(number),
            }
            for number, rule in enumerate(bridge.terms.rules)
        ],
    }
