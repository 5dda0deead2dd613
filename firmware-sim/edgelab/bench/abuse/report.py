"""The outcome of `edgebroker bench abuse`, for programs and for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from edgelab.bench.abuse.trial import AbuseOutcome, middle

LOSS_MAX: Final = 0.10
"""What well-behaved clients may lose of their throughput."""
NEWCOMER_S_MAX: Final = 2.0
"""In which a client from another address must get in."""
WAITED_MAX: Final = 0.05
"""The gateway has a core of its own; if it does not get it the figures say little."""
_PREFIX: Final = "edgebroker_"


def is_met(outcome: AbuseOutcome, cap_mib: float) -> bool:
    """Whether the gateway came through it as it should."""
    loss = outcome.loss()
    return (
        not outcome.failure
        and loss is not None
        and loss <= LOSS_MAX
        and not outcome.lost
        and outcome.rss_mib["peak"] <= cap_mib
        and not outcome.newcomer.get("refused")
        and outcome.newcomer.get("slowest_s", 0.0) <= NEWCOMER_S_MAX
    )


def as_json(outcomes: Sequence[AbuseOutcome], cap_mib: float, about: Mapping[str, Any]) -> str:
    """One object; *about*: version, machine and load."""
    return json.dumps({**about, "cap_mib": cap_mib, "attacks": [_plain(outcome, cap_mib) for outcome in outcomes]})


def _plain(outcome: AbuseOutcome, cap_mib: float) -> dict[str, Any]:
    return {
        "name": outcome.name,
        "met": is_met(outcome, cap_mib),
        "loss": outcome.loss(),
        "full_loss": outcome.full_loss(),
        "drift": outcome.drift,
        "p99_ms": [middle(samples, "p99_ms") for samples in (outcome.fixed_calm, outcome.fixed_hit)],
        "max_ms": [middle(samples, "max_ms") for samples in (outcome.fixed_calm, outcome.fixed_hit)],
        "lost": outcome.lost,
        "rss_mib": outcome.rss_mib,
        "done": outcome.done,
        "unit": outcome.unit,
        "rebuffs": outcome.rebuffs,
        "newcomer": outcome.newcomer,
        "counted": outcome.counted,
        "failure": outcome.failure,
        "fixed": {"calm": outcome.fixed_calm, "attacked": outcome.fixed_hit},
        "full": {"calm": outcome.full_calm, "attacked": outcome.full_hit},
    }


def as_table(outcomes: Sequence[AbuseOutcome], cap_mib: float, about: Mapping[str, Any]) -> str:
    """Plain text; arguments as for `as_json`."""
    return "\n".join(_lines(outcomes, cap_mib, about))


def _lines(outcomes: Sequence[AbuseOutcome], cap_mib: float, about: Mapping[str, Any]) -> Iterator[str]:
    yield f"edgebroker {about['version']}; memory at most {cap_mib:g} MiB, throughput lost at most {LOSS_MAX:.0%}"
    yield ", ".join(f"{name} {value}" for name, value in about["machine"].items())
    load = about["load"]
    yield (
        f"fixed: {load['rate']:,.0f} messages/s from 10 publishers to 10 readers, {load['busy']:.0%} of the gateway's"
        f" core and {load['generator_busy']:.0%} of the generator's; full: as many as it carries"
    )
    waited = max((middle(one.fixed_calm, "kept_waiting") for one in outcomes), default=0.0)
    if waited > WAITED_MAX:
        yield f"The gateway waited {waited:.0%} of the time for its core: the machine has other work. Measure again."
    yield ""
    fixed = f"{'lost':>6} {'p99 ms':>15} {'busy':>14}"
    full = f"{'lost':>6} {'drift':>6} {'msg/s':>16}"
    yield f"{'':<15} {'-- fixed rate':<37}   {'-- full':<30}"
    yield f"{'attack':<15} {fixed}   {full} {'RSS MiB':>13} {'done':>9}  met"
    for outcome in outcomes:
        loss, full_loss = outcome.loss(), outcome.full_loss()
        if loss is None or full_loss is None:
            yield f"{outcome.name:<15} failed: {outcome.failure}"
            continue
        calm, hit = outcome.fixed_calm, outcome.fixed_hit
        p99 = f"{middle(calm, 'p99_ms'):.1f} -> {middle(hit, 'p99_ms'):.1f}"
        busy = f"{middle(calm, 'busy'):.0%} -> {middle(hit, 'busy'):.0%}"
        rate = f"{middle(outcome.full_calm, 'per_s'):,.0f} -> {middle(outcome.full_hit, 'per_s'):,.0f}"
        rss = f"{outcome.rss_mib.get('before', 0):.0f} -> {outcome.rss_mib.get('peak', 0):.0f}"
        met = "yes" if is_met(outcome, cap_mib) else "no"
        yield (
            f"{outcome.name:<15} {loss:>6.1%} {p99:>15} {busy:>14}   {full_loss:>6.0%} {outcome.drift:>6.0%} {rate:>16}"
            f" {rss:>13} {outcome.done:>9,}  {met}"
        )
    yield ""
    for outcome in outcomes:
        counted = ", ".join(f"{name.removeprefix(_PREFIX)} {count:,}" for name, count in outcome.counted.items())
        yield f"{outcome.name}: {outcome.about}"
        yield f"  {outcome.done:,} {outcome.unit}, {outcome.rebuffs:,} rebuffed; counted: {counted or 'nothing'}"
        if newcomer := outcome.newcomer:
            yield (
                f"  a newcomer connected {newcomer['tries']:,.0f} times, {newcomer['refused']:,.0f} in vain; the"
                f" slowest took {newcomer['slowest_s']:.2f} s"
            )
        if outcome.lost:
            yield f"  {outcome.lost:,.0f} messages of the well-behaved never came"
        if outcome.failure:
            yield f"  failed: {outcome.failure}"
