"""Alternating runs A B A B ..., medians, and the ratio of each pair.

The two runs of a pair follow each other within seconds, so a machine that is slower for a minute slows both. A run
that failed (messages lost, broker gone) fails the workload: it is reported, not averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from edgelab.bench.job import LoadJob, LoadSample
from edgelab.bench.subjects import Subject
from edgelab.bench.trial import Cores, measure
from edgelab.bench.workloads import BenchWorkload, WorkloadMeasure

QUICK_S = 0.3  # length of a run that only shows that everything works
QUICK_WARMUP_S = 0.05

# Other programs on the cores: at 3 % of waiting the figures of an otherwise idle machine still repeat.
DISTURBANCE_MAX = 0.03
ATTEMPTS = 5  # then the run is kept, and the report says how much it was disturbed

# A broker that idles more than this in a closed loop waits for the generator or for round trips.
IDLE_MAX = 0.05

# the roles of the sides of a comparison, in the order in which they run
OURS, PURE, PEER = "ours", "pure", "peer"


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """Who is measured how often. `seconds` replaces the length of the loads that measure a rate."""

    sides: Mapping[str, Subject]
    cores: Cores
    rounds: int
    seconds: float
    quick: bool = False
    measure: Callable[[Subject, LoadJob | None, Cores], LoadSample] | None = None
    """Another way to do one run than `trial.measure`."""


@dataclass(frozen=True, slots=True)
class RoundRow:
    """One figure of the report: medians, and the median of ours / peer round by round."""

    name: str
    about: str
    unit: str
    ours: float | None = None
    pure: float | None = None
    peer: float | None = None
    ratio: float | None = None
    pure_ratio: float | None = None
    target: str | None = None
    met: bool | None = None
    failed: str | None = None
    runs: dict[str, list[float]] = field(default_factory=dict)
    ratios: list[float] = field(default_factory=list)
    busy: dict[str, dict[str, float]] = field(default_factory=dict)  # side -> broker, generator: share of a core
    is_lower_bound: bool = False  # closed loop, and our broker still had time to spare
    disturbed: float = 0.0  # the worst run's share of waiting for a core that another program had


def run(plan: RoundPlan, workload: BenchWorkload, say: Callable[[str], None]) -> Iterator[RoundRow]:
    """Run one workload in all rounds and yield its rows. *say* gets a line per run."""
    samples: dict[str, list[LoadSample]] = {role: [] for role in plan.sides}
    for number in range(1, plan.rounds + 1):
        for role, subject in plan.sides.items():
            sample = undisturbed(subject, job_of(plan, workload), plan)
            samples[role].append(sample)
            outcome = sample.failure or "  ".join(f"{m.key} {sample.values[m.key]:,.1f}" for m in workload.measures)
            say(f"{workload.name} {number}/{plan.rounds} {subject.name}: {outcome}")
            if sample.failure is not None:
                yield from failed_rows(workload, f"round {number}, {subject.name}: {sample.failure}")
                return
    for one in workload.measures:
        yield row(workload, one, samples)


def undisturbed(subject: Subject, job: LoadJob | None, plan: RoundPlan) -> LoadSample:
    """One run. If other programs took the cores meanwhile it is repeated; what it measured plays no part in that."""
    for _ in range(1 if plan.quick else ATTEMPTS):
        sample = (plan.measure or measure)(subject, job, plan.cores)
        if sample.failure is not None or disturbance(sample) <= DISTURBANCE_MAX:
            break
    return sample


def disturbance(sample: LoadSample) -> float:
    """The share of the run that broker or generator stood waiting for its core, whichever is more."""
    return max(sample.values.get("broker_waited", 0.0), sample.values.get("generator_waited", 0.0))


def idle_share(sample: LoadSample) -> float:
    """The share of the run in which the broker had nothing to do."""
    return 1 - sample.values.get("broker_busy", 1.0) - sample.values.get("broker_waited", 0.0)


def row(workload: BenchWorkload, one: WorkloadMeasure, samples: Mapping[str, Sequence[LoadSample]]) -> RoundRow:
    """Medians and ratios of one measure."""
    runs = {role: [sample.values[one.key] for sample in taken] for role, taken in samples.items()}
    ratios = pairwise(runs.get(OURS), runs.get(PEER))
    pure_ratios = pairwise(runs.get(PURE), runs.get(PEER))
    ours, ratio = median(runs[OURS]), median(ratios) if ratios else None
    return replace(
        empty_row(workload, one),
        ours=ours,
        pure=median(runs[PURE]) if PURE in runs else None,
        peer=median(runs[PEER]) if PEER in runs else None,
        ratio=ratio,
        pure_ratio=median(pure_ratios) if pure_ratios else None,
        met=one.target.is_met(ours, ratio) if one.target else None,
        runs=runs,
        ratios=ratios,
        busy={role: busy for role, taken in samples.items() if (busy := busy_shares(taken))},
        is_lower_bound=one.key == "deliveries_per_s" and median(map(idle_share, samples[OURS])) > IDLE_MAX,
        disturbed=round(max(disturbance(sample) for taken in samples.values() for sample in taken), 3),
    )


def empty_row(workload: BenchWorkload, one: WorkloadMeasure) -> RoundRow:
    """A row for one figure of a workload, before anything is measured."""
    return RoundRow(one.name, workload.about, one.unit, target=str(one.target) if one.target else None)


def failed_rows(workload: BenchWorkload, why: str) -> list[RoundRow]:
    """Rows without figures; a failed run misses its target, if there is one."""
    rows = [(empty_row(workload, one), one.target) for one in workload.measures]
    return [replace(empty, met=False if target else None, failed=why) for empty, target in rows]


def pairwise(ours: Sequence[float] | None, peer: Sequence[float] | None) -> list[float]:
    """The ratio of each round; there is none to nothing."""
    return [a / b for a, b in zip(ours or (), peer or (), strict=False) if b]


def busy_shares(samples: Sequence[LoadSample]) -> dict[str, float]:
    """Median shares of a core that broker and generator used, where the load tells."""
    return {
        who: round(median(sample.values[f"{who}_busy"] for sample in samples), 3)
        for who in ("broker", "generator")
        if all(f"{who}_busy" in sample.values for sample in samples)
    }


def job_of(plan: RoundPlan, workload: BenchWorkload) -> LoadJob | None:
    """The workload's job at this plan's length; silence keeps its own, unless it must be quick."""
    if workload.job is None:
        return None
    if plan.quick:
        return replace(workload.job, seconds=QUICK_S, warmup_s=QUICK_WARMUP_S)
    return workload.job if workload.job.load == "idle" else replace(workload.job, seconds=plan.seconds)
