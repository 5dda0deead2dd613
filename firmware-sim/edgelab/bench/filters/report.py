"""The outcome for programs (one JSON object) and for people (a plain table)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median

from edgelab.bench.job import LoadSample
from edgelab.bench.report import figure
from edgelab.bench.rounds import DISTURBANCE_MAX, disturbance, pairwise
from edgelab.bench.subjects import Subject

MEASURES = (
    ("cpu_per_message", "cpu_us"),
    ("latency_p50", "p50_us"),
    ("latency_p99", "p99_us"),
    ("latency_longest", "longest_us"),
    ("cpu_per_subscription", "subscribe_us"),
)
"""Name in the report, key in the sample; all in us."""
HEADINGS = ("build", "figure", "unit", "by content", "by topic", "ratio")


@dataclass(frozen=True, slots=True)
class FilterRow:
    """One figure: medians of the rounds, and the median of content / topic round by round."""

    build: str
    name: str
    by_content: float | None = None
    by_topic: float | None = None
    ratio: float | None = None
    failed: str | None = None
    runs: dict[str, list[float]] = field(default_factory=dict)
    disturbed: float = 0.0  # the worst run's share of waiting for a core that another program had
    unit: str = "us"


def rows_of(build: str, by_content: Sequence[LoadSample], by_topic: Sequence[LoadSample]) -> list[FilterRow]:
    """The rows of one build; without figures if a run failed."""
    taken = (*by_content, *by_topic)
    failure = next((sample.failure for sample in taken if sample.failure is not None), None)
    if failure is not None:
        return [FilterRow(build, name, failed=failure) for name, _ in MEASURES]
    rows = []
    for name, key in MEASURES:
        content, topic = ([sample.values[key] for sample in samples] for samples in (by_content, by_topic))
        rows.append(
            FilterRow(
                build,
                name,
                median(content),
                median(topic),
                median(pairwise(content, topic)),
                runs={"by_content": content, "by_topic": topic},
                disturbed=round(max(map(disturbance, taken)), 3),
            )
        )
    return rows


def as_json(
    about: Mapping[str, object], builds: Mapping[str, Subject], load: Mapping[str, float], rows: Sequence[FilterRow]
) -> str:
    """{machine, versions, load, figures: [{build, name, by_content, by_topic, ratio, failed, runs, ...}]}."""
    versions = {build: {"name": each.name, "version": each.version} for build, each in builds.items()}
    figures = [asdict(row) for row in rows]
    return json.dumps({"machine": about, "versions": versions, "load": load, "figures": figures}, indent=2)


def as_table(
    about: Mapping[str, object], builds: Mapping[str, Subject], load: Mapping[str, float], rows: Sequence[FilterRow]
) -> str:
    """A table in plain text, legible when pasted into a document."""
    cells = [HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(_aligned(cell, width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    who = ", ".join(f"{build}: {each.name} {each.version}" for build, each in builds.items())
    where = f"{about['processor']}, {about['cores']} cores, {about['kernel']}, Python {about['python']}"
    what = (
        f"{load['subscriptions']:,} subscriptions of {load['clients']:,} clients, {load['rate']:,} messages/s, each "
        f"accepted by {load['matches_per_message']:.1f} filters and delivered to {load['deliveries_per_message']:.1f} "
        "clients"
    )
    worst = max((row.disturbed for row in rows), default=0.0)
    notes = [f"disturbed by other programs on the cores ({worst:.0%})"] if worst > DISTURBANCE_MAX else []
    failures = list(dict.fromkeys(f"{row.build} FAILED: {row.failed}" for row in rows if row.failed))
    return "\n".join([who, where, what, "", *(line.rstrip() for line in lines), *notes, *failures])


def _cells(row: FilterRow) -> tuple[str, ...]:
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    return (row.build, row.name, row.unit, figure(row.by_content), figure(row.by_topic), ratio)


def _aligned(cell: str, width: int) -> str:
    """Figures to the right, everything else to the left."""
    return cell.rjust(width) if cell[:1].isdigit() else cell.ljust(width)
