"""The key figures of a report: a handful of numbers, and whether every message is accounted for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from edgebroker.log_schema import Cause, Fate

from .figures import Figures
from .measures.latency import PERCENTILES


@dataclass(frozen=True, slots=True)
class Summary:
    """Key figures over all runs that were read. Messages are counted as accepted, copies as made for subscribers."""

    published: int
    filtered: int
    copies: int
    delivered: int
    dropped: int
    expired: int
    queued: int
    lost: int
    duplicated: int
    open: int
    """Copies of runs that cannot be judged (still open, damaged, incomplete) whose end was not found."""
    damages: int
    files: int
    records: int
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
    for row in figures["fates"]:
        by_fate[row["fate"]] += row["count"]
        if row["fate"] in causes:
            causes[row["fate"]][cause_name(row["cause"])] += row["count"]
    audit = figures["audit"]
    return Summary(
        published=by_fate[Fate.PUBLISHED],
        filtered=by_fate[Fate.FILTERED],
        copies=by_fate[Fate.MATCHED],
        delivered=by_fate[Fate.DELIVERED],
        dropped=by_fate[Fate.DROPPED],
        expired=by_fate[Fate.EXPIRED],
        queued=by_fate[Fate.QUEUED],
        lost=sum(row["lost"] for row in audit),
        duplicated=sum(row["duplicated"] for row in audit),
        open=sum(row["open"] for row in audit),
        damages=len(figures["damage"]),
        files=len(figures["segments"]),
        records=sum(row["records"] for row in audit),
        runs=dict(Counter(row["state"] for row in audit)),
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


def cause_name(number: int) -> str:
    """Return the name of a cause, in words; its number if this program does not know it."""
    return Cause(number).name.lower().replace("_", " ") if number in set(Cause) else f"cause {number}"


def readable(figures: Figures) -> dict[str, list[dict[str, Any]]]:
    """Return *figures* with the names of fates and causes instead of their numbers: for JSON."""
    return {
        name: [
            {
                key: fate_name(value) if key == "fate" else cause_name(value) if key == "cause" else value
                for key, value in row.items()
            }
            for row in rows
        ]
        for name, rows in figures.items()
    }


def duration(us: int) -> str:
    """Format microseconds with three digits: "850 µs", "1.25 ms", "12.5 s"."""
    for unit, size in (("s", 1_000_000), ("ms", 1_000)):
        if us >= size:
            value = us / size
            return f"{value:.{max(0, 3 - len(str(int(value))))}f} {unit}"
    return f"{us} µs"
