"""The outcome of `edgebroker bench churn`, for programs and for people, with a histogram by powers of two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import log
from typing import Any, TypeAlias

from edgebroker.cli.call_durations import Durations
from edgelab.bench.churn.trial import NS_PER_S, ChurnTrial

NS_PER_US = 1_000
BAR = 24
"""Characters of the longest bar."""


@dataclass(frozen=True, slots=True)
class HistogramBucket:
    """How many waited, and how many held the thread, for `from_us` or longer and less than `to_us`."""

    from_us: int
    to_us: int
    waits: int
    holds: int


def buckets(waits_ns: Sequence[int], holds_ns: Sequence[int]) -> list[HistogramBucket]:
    """Count both into under 1 us, 1 to 2, 2 to 4, ... us, up to the longest."""
    counts = [tally(waits_ns), tally(holds_ns)]
    size = max(map(len, counts))
    waits, holds = (count + [0] * (size - len(count)) for count in counts)
    return [HistogramBucket(2**power >> 1, 2**power, waits[power], holds[power]) for power in range(size)]


def tally(spans_ns: Sequence[int]) -> list[int]:
    """Position n counts the spans whose whole microseconds have n binary digits."""
    counts = [0]
    for span in spans_ns:
        power = (span // NS_PER_US).bit_length()
        while len(counts) <= power:
            counts.append(0)
        counts[power] += 1
    return counts


def drawn(found: Sequence[HistogramBucket]) -> Iterator[str]:
    """The lines of a picture. Bars grow with the logarithm: the one event in a million is what we look for."""
    most = max([2, *(bucket.waits for bucket in found), *(bucket.holds for bucket in found)])
    yield f"{'':>25}  {'events waited':<{BAR + 12}}  changes held the thread"
    for bucket in found:
        waits, holds = (f"{count:>10,}  {bar(count, most):<{BAR}}" for count in (bucket.waits, bucket.holds))
        yield f"{bucket.from_us:>9,} .. {bucket.to_us:>9,} us  {waits}  {holds}".rstrip()


def bar(count: int, most: int) -> str:
    """A bar for *count*, as long as its logarithm beside that of *most*."""
    return "#" * -int(-BAR * log(1 + count) / log(1 + most) // 1)


NS_PER_MS = 1_000_000

Figures: TypeAlias = dict[str, Any]


def figures(trial: ChurnTrial) -> Figures:
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


def as_picture(found: Figures, trial: ChurnTrial) -> str:
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
