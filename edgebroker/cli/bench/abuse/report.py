"""The outcome of `edgebroker bench abuse`, for programs and for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from .trial import Outcome

LOSS_MAX: Final = 0.10
"""What well-behaved clients may lose of their throughput."""
_PREFIX: Final = "edgebroker_"


def is_met(outcome: Outcome, cap_mib: float) -> bool:
    """Whether the gateway came through it as it should."""
    loss = outcome.loss()
    return (
        not outcome.failure
        and loss is not None
        and loss <= LOSS_MAX
        and not outcome.lost
        and outcome.rss_mib["peak"] <= cap_mib
    )


def as_json(outcomes: Sequence[Outcome], cap_mib: float, version: str) -> str:
    """One object."""
    return json.dumps(
        {"version": version, "cap_mib": cap_mib, "attacks": [_plain(outcome, cap_mib) for outcome in outcomes]}
    )


def _plain(outcome: Outcome, cap_mib: float) -> dict[str, Any]:
    return {
        "name": outcome.name,
        "met": is_met(outcome, cap_mib),
        "loss": outcome.loss(),
        "p99_ms": [outcome.middle("p99_ms", attacked) for attacked in (False, True)],
        "max_ms": [outcome.middle("max_ms", attacked) for attacked in (False, True)],
        "lost": outcome.lost,
        "rss_mib": outcome.rss_mib,
        "done": outcome.done,
        "unit": outcome.unit,
        "rebuffs": outcome.rebuffs,
        "counted": outcome.counted,
        "failure": outcome.failure,
        "calm": outcome.calm,
        "attacked": outcome.attacked,
    }


def as_table(outcomes: Sequence[Outcome], cap_mib: float, version: str) -> str:
    """Plain text."""
    return "\n".join(_lines(outcomes, cap_mib, version))


def _lines(outcomes: Sequence[Outcome], cap_mib: float, version: str) -> Iterator[str]:
    yield f"edgebroker {version}; memory at most {cap_mib:g} MiB, throughput lost at most {LOSS_MAX:.0%}"
    yield ""
    yield f"{'attack':<15} {'lost':>6} {'msg/s':>9} {'p99 ms':>15} {'busy':>14} {'RSS MiB':>13} {'done':>9}  met"
    for outcome in outcomes:
        loss = outcome.loss()
        if loss is None:
            yield f"{outcome.name:<15} failed: {outcome.failure}"
            continue
        p99 = f"{outcome.middle('p99_ms', False):.1f} -> {outcome.middle('p99_ms', True):.1f}"
        rss = f"{outcome.rss_mib.get('before', 0):.0f} -> {outcome.rss_mib.get('peak', 0):.0f}"
        busy = f"{outcome.middle('busy', False):.0%} -> {outcome.middle('busy', True):.0%}"
        rate = outcome.middle("fast_per_s", False)
        met = "yes" if is_met(outcome, cap_mib) else "no"
        yield f"{outcome.name:<15} {loss:>6.0%} {rate:>9,.0f} {p99:>15} {busy:>14} {rss:>13} {outcome.done:>9,}  {met}"
    yield ""
    for outcome in outcomes:
        counted = ", ".join(f"{name.removeprefix(_PREFIX)} {count:,}" for name, count in outcome.counted.items())
        yield f"{outcome.name}: {outcome.about}"
        yield f"  {outcome.done:,} {outcome.unit}, {outcome.rebuffs:,} rebuffed; counted: {counted or 'nothing'}"
        if outcome.lost:
            yield f"  {outcome.lost:,.0f} messages of the well-behaved never came"
        if outcome.failure:
            yield f"  failed: {outcome.failure}"
