"""The outcome for programs (one JSON object) and for people (a table)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from .trial import Figures

ROWS = (
    ("rate", "acknowledged, as fast as it goes, msg/s", "{:,.0f}", ">= 5,000"),
    ("fast_p50_ms", "acknowledgement then, p50, ms", "{:.1f}", ""),
    ("fast_p99_ms", "acknowledgement then, p99, ms", "{:.1f}", ""),
    ("p50_ms", "acknowledgement at 1,000 msg/s, p50, ms", "{:.1f}", ""),
    ("p99_ms", "acknowledgement at 1,000 msg/s, p99, ms", "{:.1f}", "<= 30"),
    ("written", "bytes written per byte of payload", "{:.1f}", "<= 3"),
    ("journal_mb", "journal when it was killed, MB", "{:.1f}", ""),
    ("recovery_ms", "recovery of it, ms", "{:.0f}", ""),
    ("recovery_s_per_100_mb", "100 MB would take, s", "{:.2f}", "<= 2"),
    ("recovery_cpu_s_per_100_mb", "the same, processor time, s", "{:.2f}", ""),
    ("start_ms", "start on nothing, ms", "{:.0f}", ""),
    ("start_after_kill_ms", "start after the kill, ms", "{:.0f}", ""),
    ("kept", "the durable session is still there", "{}", "yes"),
    ("away_messages", "messages for a session that is away", "{:,.0f}", ""),
    ("away_mb", "journal when it was killed, MB", "{:.1f}", ""),
    ("away_recovery_s_per_100_mb", "recovery of 100 MB of it, s", "{:.2f}", "<= 2"),
    ("away_recovery_cpu_s_per_100_mb", "the same, processor time, s", "{:.2f}", ""),
    ("away_start_ms", "start with it, ms", "{:.0f}", ""),
    ("away_start_cpu_ms", "the same, processor time, ms", "{:.0f}", ""),
    ("away_peak_mib", "most memory until then, MiB", "{:.0f}", ""),
    ("away_kept", "all messages are still there", "{}", "yes"),
)
SMALL_MB = 10.0
"""Of a smaller journal, what each start costs counts more than what is in it."""


def as_json(about: Mapping[str, object], sides: Sequence[Figures]) -> str:
    """{machine, sides: [{name, version, promise, values, failure}]}."""
    return json.dumps({"machine": about, "sides": [asdict(side) for side in sides]}, indent=2)


def as_table(about: Mapping[str, object], sides: Sequence[Figures]) -> str:
    """One column for each side, targets on the right."""
    cells = [("", *(side.name for side in sides), "target")]
    for key, label, form, target in ROWS:
        if any(key in side.values for side in sides):
            cells.append((label, *(_cell(side, key, form) for side in sides), target))
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
    promises = [f"{side.name} {side.version}: {side.promise}" for side in sides]
    where = f"{about['processor']}, {about['cores']} cores, {about['kernel']}, Python {about['python']}"
    failures = [f"{side.name} FAILED: {side.failure}" for side in sides if side.failure]
    small = [
        f"\n{side.name}: the load left {side.values['journal_mb']:.1f} MB, so what 100 MB would take is mostly what "
        "any recovery costs, many times over"
        for side in sides
        if side.values.get("journal_mb", SMALL_MB) < SMALL_MB
    ]
    return "\n".join([*promises, where, "", *lines, *small, *failures])


def _cell(side: Figures, key: str, form: str) -> str:
    if side.failure or key not in side.values:
        return ""
    value = side.values[key]
    return ("yes" if value else "NO") if key.endswith("kept") else form.format(value)
