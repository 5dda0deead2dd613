"""`edgebroker bridge costs`: the table of who spends a bridge's bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from edgebroker.cli.figures import count, octets, shortened, span

HEADING: Final = ("PREFIX", "OUT", "IN", "MESSAGES", "SHARE", "SINCE START", "SHARE")
LIMIT: Final = 20
PREFIX_COLUMNS: Final = 48
ELSE: Final = "answers, pings, greetings"


def tabulated(found: dict[str, Any], limit: int = LIMIT) -> Iterator[str]:
    """For people: a line for each prefix, the most of today first, and what is left."""
    line, prefixes = found["line"], found["prefixes"]
    today, total = (
        f"{octets(_bytes(line[when], 'out'))} out and {octets(_bytes(line[when], 'in'))} in in {span(found[seconds])}"
        for when, seconds in (("today", "today_s"), ("total", "since_s"))
    )
    yield f"{found['name']}: today {today}; since its start {total}"
    rows: list[tuple[str, dict[str, Any]]] = [(row["prefix"], row) for row in prefixes[:limit]]
    if rest := prefixes[limit:]:
        rows.append((f"{len(rest)} more prefixes", _summed(rest)))
    rows.append((ELSE, _left(line, _summed(prefixes))))
    cells = [HEADING, *(_cells(name, row, line) for name, row in rows)]
    widths = [max(len(one[column]) for one in cells) for column in range(len(HEADING))]
    for one in cells:
        first, *others = one
        yield "  ".join([f"{first:{widths[0]}}", *map(str.rjust, others, widths[1:])]).rstrip()


def _cells(name: str, row: dict[str, Any], line: dict[str, Any]) -> Sequence[str]:
    today, total = row["today"], row["total"]
    return (
        shortened(name, PREFIX_COLUMNS),
        octets(_bytes(today, "out")),
        octets(_bytes(today, "in")),
        count(today["out"]["messages"] + today["in"]["messages"]) if name != ELSE else "",
        _share(today, line["today"]),
        octets(_bytes(total)),
        _share(total, line["total"]),
    )


def _bytes(counts: dict[str, Any], *ways: str) -> int:
    return sum(counts[way]["bytes"] for way in ways or ("out", "in"))


def _share(counts: dict[str, Any], of: dict[str, Any]) -> str:
    whole = _bytes(of)
    return f"{100 * _bytes(counts) / whole:.1f} %" if whole else "-"


def _summed(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        when: {
            way: {key: sum(row[when][way][key] for row in rows) for key in ("messages", "bytes")}
            for way in ("out", "in")
        }
        for when in ("today", "total")
    }


def _left(line: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """What crossed the line beside messages. What is not written yet is counted as a message before it has crossed."""
    return {
        when: {
            way: {"messages": 0, "bytes": max(0, line[when][way]["bytes"] - named[when][way]["bytes"])}
            for way in ("out", "in")
        }
        for when in ("today", "total")
    }
