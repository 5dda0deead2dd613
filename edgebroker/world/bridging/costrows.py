"""Who spends a bridge's bytes, as `/bridges/costs` answers it."""

from __future__ import annotations

from typing import Any

from edgebridge.upstream.costs import OTHERS, Cell, table
from edgebroker.instants import SECOND
from edgebroker.world.bridging.bridge import Bridge
from edgebroker.world.reactor import clock


def costs(bridge: Bridge, depth: int) -> dict[str, Any]:
    """By topic prefix of at most *depth* levels, the most of today first.

    A prefix that ends in `/#` is the rest below it, for which there was no room; `others` is the rest of all.
    """
    splice, now = bridge.splice, clock()
    toll = splice.toll
    found = table(splice.out.costs, splice.into.costs, depth)
    rows = [{"prefix": "others" if prefix == OTHERS else prefix, **_both(*cells)} for prefix, cells in found.items()]
    return {
        "name": bridge.terms.name,
        "depth": depth,
        "since_s": round((now - bridge.began) / SECOND, 3),
        "today_s": round((now - (bridge.began if toll.day_began is None else toll.day_began)) / SECOND, 3),
        "prefixes": sorted(rows, key=lambda row: (-_sum(row["today"]), -_sum(row["total"]), row["prefix"])),
        "line": _both(toll.written, toll.read),
    }


def _both(out: Cell, into: Cell) -> dict[str, Any]:
    return {
        "today": {"out": _today(out), "in": _today(into)},
        "total": {"out": _total(out), "in": _total(into)},
    }


def _today(cell: Cell) -> dict[str, int]:
    return {"messages": cell.messages - cell.messages_before, "bytes": cell.bytes - cell.bytes_before}


def _total(cell: Cell) -> dict[str, int]:
    return {"messages": cell.messages, "bytes": cell.bytes}


def _sum(counts: dict[str, Any]) -> int:
    bytes_out, bytes_in = counts["out"]["bytes"], counts["in"]["bytes"]
    return int(bytes_out + bytes_in)
