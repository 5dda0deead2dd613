"""The outcome of `edgebroker bench churn`, for programs and for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

from ..match.durations import Durations
from .histogram import buckets, drawn
from .trial import NS_PER_S, Trial

NS_PER_MS = 1_000_000

Figures: TypeAlias = dict[str, Any]


def figures(trial: Trial) -> Figures:
    """Everything that was measured, and the histogram by the wall clock."""
    wall, processor = trial.wall, trial.processor
    times: Mapping[str, Durations] = {
        "parse": trial.parsing,
        "insert": trial.inserting,
        "remove": trial.removing,
        "match": trial.matching,
    }
    return {
        "kernel": trial.tree.kernel.KIND,
        **asdict(trial.plan),
        "changes": len(wall.holds),
        "events": len(wall.waits),
        "matches": trial.matches,
        "busy": round(wall.busy_ns / (trial.plan.seconds * NS_PER_S), 4),
        **{f"{name}_us": round(spent.median_us(), 3) if len(spent) else None for name, spent in times.items()},
        "longest_pause_ms": milliseconds(wall.waits),
        "longest_pause_cpu_ms": milliseconds(processor.waits),
        "longest_hold_ms": milliseconds(wall.holds),
        "longest_hold_cpu_ms": milliseconds(processor.holds),
        "longest_collection_ms": round(trial.longest_collection_ns / NS_PER_MS, 3),
        "left": trial.left,
        "leave_ms": round(trial.leave_ns / NS_PER_MS, 3),
        "leave_cpu_ms": round(trial.leave_processor_ns / NS_PER_MS, 3),
        "histogram": [asdict(bucket) for bucket in buckets(wall.waits, wall.holds)],
    }


def milliseconds(spans_ns: Sequence[int]) -> float:
    """The longest of *spans_ns*, in ms; 0 if there is none."""
    return round(max(spans_ns, default=0) / NS_PER_MS, 3)


def as_picture(found: Figures, trial: Trial) -> str:
    """The same for people."""
    plan = trial.plan
    lines = [
        f"{plan.subscriptions:,} subscriptions, {found['kernel']} kernel; "
        f"for {plan.seconds:g} s {plan.changes_per_s:,} changes and {plan.events_per_s:,} events a second",
        "",
        *drawn(buckets(trial.wall.waits, trial.wall.holds)),
        "",
        f"{'':<30}wall clock   processor time",
        two("longest pause of an event", found["longest_pause_ms"], found["longest_pause_cpu_ms"]),
        two("longest hold of a change", found["longest_hold_ms"], found["longest_hold_cpu_ms"]),
        two(f"{trial.left:,} leave at once", found["leave_ms"], found["leave_cpu_ms"]),
        "",
        "medians, us: " + ", ".join(f"{name} {found[f'{name}_us']}" for name in ("parse", "insert", "remove", "match")),
        f"longest collection of garbage: {found['longest_collection_ms']} ms",
        f"the thread was busy {found['busy']:.1%} of the time",
    ]
    if found["busy"] > 1:
        lines.append("more arrives than can be served: the waiting times say only that")
    return "\n".join(lines)


def two(what: str, wall_ms: float, processor_ms: float) -> str:
    """One line: *what*, by the wall clock and in processor time."""
    return f"{what:<28}{wall_ms:>9,.3f} ms   {processor_ms:>11,.3f} ms"
