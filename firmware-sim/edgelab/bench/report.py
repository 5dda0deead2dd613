"""The outcome of a benchmark for programs (one JSON object) and for people (a plain table)."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from edgelab.bench.rounds import DISTURBANCE_MAX, OURS, RoundRow
from edgelab.bench.subjects import Subject
from edgelab.bench.trial import Cores

HEADINGS = ("workload", "unit", "ours", "pure", "peer", "ratio", "target", "met")


def machine(cores: Cores) -> dict[str, object]:
    """What a reader needs to judge the figures; `load_1m` above 0.5 before the start means a busy machine."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "broker_core": cores.broker,
        "generator_core": cores.generator,
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_1m": round(os.getloadavg()[0], 2),
    }


def processor() -> str:
    """The processor's name; on ARM the kernel gives none and the architecture must do."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def as_json(about: Mapping[str, object], sides: Mapping[str, Subject], rows: Sequence[RoundRow]) -> str:
    """{machine, versions, workloads: [{name, unit, ours, pure?, peer?, ratio, target, met, failed, ...}]}."""
    versions = {
        role: {"name": subject.name, "version": subject.version, "compiled": list(subject.compiled)}
        for role, subject in sides.items()
    }
    workloads = []
    for row in rows:
        fields = asdict(row)
        for role in ("pure", "peer"):
            if role not in sides:
                del fields[role]
        if "pure" not in sides or "peer" not in sides:
            del fields["pure_ratio"]
        workloads.append(fields)
    return json.dumps({"machine": about, "versions": versions, "workloads": workloads}, indent=2)


def as_table(about: Mapping[str, object], sides: Mapping[str, Subject], rows: Sequence[RoundRow]) -> str:
    """A table in plain text, legible without colour and when pasted into a document."""
    cells = [HEADINGS, *(cells_of(row) for row in rows)]
    shown = [column for column in range(len(HEADINGS)) if any(line[column] for line in cells[1:])]
    widths = {column: max(len(line[column]) for line in cells) for column in shown}
    lines = ["  ".join(aligned(line[column], widths[column], column) for column in shown).rstrip() for line in cells]
    lines.insert(1, "  ".join("-" * widths[column] for column in shown))
    who = ", ".join(f"{role}: {subject.name} {subject.version}" for role, subject in sides.items())
    compiled = len(sides[OURS].compiled)
    where = f"{about['processor']}, {about['cores']} cores, {about['kernel']}, Python {about['python']}"
    failures = [f"{row.name} FAILED: {row.failed}" for row in rows if row.failed]
    bounds = [row.name for row in rows if row.is_lower_bound]
    disturbed = [f"{row.name} ({row.disturbed:.0%})" for row in rows if row.disturbed > DISTURBANCE_MAX]
    notes = [f"at least so much, our broker still had time to spare: {', '.join(bounds)}"] if bounds else []
    if disturbed:
        notes.append(f"disturbed by other programs on the cores, better measured again: {', '.join(disturbed)}")
    return "\n".join([f"{who} ({compiled} compiled modules)", where, "", *lines, *notes, *failures])


def cells_of(row: RoundRow) -> tuple[str, ...]:
    """One line of the table; what was not measured stays empty."""
    met = "FAILED" if row.failed else {True: "yes", False: "no", None: ""}[row.met]
    ratio = f"{row.ratio:.2f}" if row.ratio is not None else ""
    return (row.name, row.unit, *map(figure, (row.ours, row.pure, row.peer)), ratio, row.target or "", met)


def figure(value: float | None) -> str:
    """Three digits are more than a shared machine can repeat."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def aligned(cell: str, width: int, column: int) -> str:
    """Names to the left, figures to the right."""
    return cell.rjust(width) if HEADINGS[column] in ("ours", "pure", "peer", "ratio") else cell.ljust(width)
