"""The key figures of a report: a handful of numbers, and whether every message is accounted for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from edgebroker.log_schema import Cause, Fate, MessageOrigin

from .figures import Figures
from .measures.fates import FIRST
from .measures.latency import PERCENTILES


@dataclass(frozen=True, slots=True)
class Summary:
    """Key figures over all runs that were read. Messages are counted as accepted, copies as made for subscribers."""

    published: int
    """Messages of clients, wills and bridges; the others of `again` are counted where they came from."""
    filtered: int
    copies: int
    """Copies for clients. Those for peer gateways are in `peers`."""
    delivered: int
    dropped: int
    expired: int
    queued: int
    """Copies that waited when the last log was closed."""
    lost: int
    duplicated: int
    open: int
    """Copies of runs that cannot be judged (still open, died, incomplete) whose end was not found."""
    damages: int
    files: int
    records: int
    copied_blocks: int
    """Blocks that are in more than one file; each is counted once."""
    again: dict[str, int]
    """Origin -> messages that a peer's log or an earlier run has counted, or that are retained ones told again."""
    peers: dict[str, int]
    """Fate -> copies that are handed over to peer gateways."""
    runs: dict[str, int]
    """State -> number of runs."""
    dropped_by_cause: dict[str, int]
    filtered_by_cause: dict[str, int]
    latency_us: dict[str, dict[str, int]]
    """QoS -> p50, p90, p99, max."""

    @property
    def sound(self) -> bool:
        """Return whether no copy is known to be lost or duplicated."""
        return self.lost == 0 and self.duplicated == 0

    @property
    def verdict(self) -> str:
        """Return the verdict in one line."""
        line = f"{self.lost:,} lost, {self.duplicated:,} duplicated"
        unjudged = sum(count for state, count in self.runs.items() if state != "complete")
        if unjudged:
            line += f"; {unjudged} of {sum(self.runs.values())} runs cannot be judged ({self.open:,} copies open)"
        return line


def summarise(figures: Figures) -> Summary:
    """Return the key figures in *figures*."""
    by_fate: Counter[int] = Counter()
    causes: dict[int, Counter[str]] = {Fate.DROPPED: Counter(), Fate.FILTERED: Counter()}
    again: Counter[str] = Counter()
    peers: Counter[str] = Counter()
    for row in figures["fates"]:
        fate, count = row["fate"], row["count"]
        if row["origin"] not in FIRST and fate in (Fate.PUBLISHED, Fate.FILTERED):
            again[origin_name(row["origin"])] += count * (fate == Fate.PUBLISHED)
        elif (row["origin"] == MessageOrigin.RESUMED and fate == Fate.MATCHED) or fate == Fate.QUEUED:
            continue  # it was made before; what waits is counted once for all runs of a gateway
        elif row["to_peer"]:
            peers[fate_name(fate)] += count
        else:
            by_fate[fate] += count
            if fate in causes:
                causes[fate][cause_name(row["cause"])] += count
    waiting = {row["to_peer"]: row["queued"] for row in figures["waiting"]}
    if waiting.get(1):
        peers[fate_name(Fate.QUEUED)] = waiting[1]
    (extent,) = figures["extent"]
    states = figures["states"]
    return Summary(
        published=by_fate[Fate.PUBLISHED],
        filtered=by_fate[Fate.FILTERED],
        copies=by_fate[Fate.MATCHED],
        delivered=by_fate[Fate.DELIVERED],
        dropped=by_fate[Fate.DROPPED],
        expired=by_fate[Fate.EXPIRED],
        queued=waiting.get(0, 0),
        lost=sum(row["lost"] for row in states),
        duplicated=sum(row["duplicated"] for row in states),
        open=sum(row["open"] for row in states),
        damages=extent["damages"],
        files=extent["files"],
        records=sum(row["records"] for row in states),
        copied_blocks=extent["copied_blocks"],
        again=dict(again),
        peers=dict(peers),
        runs={row["state"]: row["runs"] for row in states},
        dropped_by_cause=dict(causes[Fate.DROPPED].most_common()),
        filtered_by_cause=dict(causes[Fate.FILTERED].most_common()),
        latency_us={
            str(row["qos"]): {f"p{percent}": row[f"p{percent}_us"] for percent in PERCENTILES} | {"max": row["max_us"]}
            for row in figures["latency"]
        },
    )


def fate_name(number: int) -> str:
    """Return the name of a fate; its number if this program does not know it."""
    return Fate(number).name.lower() if number in set(Fate) else f"fate {number}"


def origin_name(number: int) -> str:
    """Return the name of an origin; its number if this program does not know it."""
    return MessageOrigin(number).name.lower() if number in set(MessageOrigin) else f"origin {number}"


def cause_name(number: int) -> str:
    """Return the name of a cause, in words; its number if this program does not know it."""
    return Cause(number).name.lower().replace("_", " ") if number in set(Cause) else f"cause {number}"


def readable(figures: Figures) -> dict[str, list[dict[str, Any]]]:
    """Return *figures* with the names of fates, causes and origins instead of their numbers: for JSON."""
    names = {"fate": fate_name, "cause": cause_name, "origin": origin_name}
    return {
        name: [{key: names[key](value) if key in names else value for key, value in row.items()} for row in rows]
        for name, rows in figures.items()
    }


def duration(us: int) -> str:
    """Format microseconds with three digits: "850 µs", "1.25 ms", "12.5 s"."""
    for unit, size in (("s", 1_000_000), ("ms", 1_000)):
        if us >= size:
            value = us / size
            return f"{value:.{max(0, 3 - len(str(int(value))))}f} {unit}"
    return f"{us} µs"
