"""What many storms came to, for people and for programs."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

from edgebroker.instants import SECOND
from edgebroker.simworld.storms.storm import Outcome

LINES_MAX = 10
"""What is shown of one storm; a break is rarely alone."""


@dataclass(slots=True)
class Tally:
    """What has happened so far, from the seed *seed* on."""

    seed: int
    scenarios: int = 0
    said: int = 0
    heard: int = 0
    elapsed_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    traces: dict[int, str] = field(default_factory=dict)
    broken: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """One more."""
        self.scenarios += 1
        self.said += outcome.said
        self.heard += outcome.heard
        self.faults.update(outcome.faults)
        self.traces[outcome.scenario.seed] = outcome.trace
        if outcome.broken:
            self.broken.append(outcome)


def as_text(tally: Tally) -> str:
    """A table, legible without colour and when pasted into a document."""
    promises = Counter(promise for outcome in tally.broken for promise in outcome.promises)
    rows = [("storms", f"{tally.scenarios:,}"), ("said", f"{tally.said:,}"), ("heard", f"{tally.heard:,}")]
    rows += [(f"  {kind}", f"{count:,}") for kind, count in sorted(tally.faults.items())]
    rows += [(f"broken {promise}", f"{count:,}") for promise, count in sorted(promises.items())]
    rows += [("seconds", f"{tally.elapsed_s:,.1f}")]
    lines = [f"storms from seed {tally.seed} on", "", *(f"{name:<20}{value:>12}" for name, value in rows), ""]
    for outcome in tally.broken:
        lines += _story(outcome)
    lines.append("every promise was kept" if not tally.broken else f"broken in {len(tally.broken):,} storms")
    return "\n".join(lines)


def as_object(tally: Tally, smallest: Outcome | None) -> str:
    """One JSON object; `smallest`: what was left of the first that broke something."""
    found: dict[str, object] = {
        "seed": tally.seed,
        "scenarios": tally.scenarios,
        "said": tally.said,
        "heard": tally.heard,
        "elapsed_s": round(tally.elapsed_s, 3),
        "faults": dict(sorted(tally.faults.items())),
        "hashes": {str(seed): trace for seed, trace in tally.traces.items()},
        "broken": [_broken(outcome) for outcome in tally.broken],
    }
    if smallest is not None:
        found["smallest"] = _broken(smallest)
    return json.dumps(found, indent=2)


def timetable(outcome: Outcome) -> str:
    """A storm line by line, and what it broke."""
    scenario = outcome.scenario
    lines = [f"the smallest storm that still breaks it, of seed {scenario.seed}:", f"  {scenario.shape}"]
    lines += [f"  {device}" for device in scenario.devices]
    lines += [f"  {fault}" for fault in scenario.faults]
    lines += [f"  {scenario.length / SECOND:.1f} s: the weather is good again"]
    return "\n".join([*lines, *_what(outcome)])


def repeat(seed: int) -> str:
    """The command that does it again."""
    return f"edgebroker simulate --scenarios 1 --seed {seed}"


def _story(outcome: Outcome) -> list[str]:
    seed = outcome.scenario.seed
    head = f"seed {seed} broke {', '.join(outcome.promises)}"
    ways = [f"  again:   {repeat(seed)}", f"  smaller: {repeat(seed)} --shrink", ""]
    return [head, *_what(outcome), *ways]


def _what(outcome: Outcome) -> list[str]:
    lines = [f"  {promise}: {text}" for promise, text in outcome.broken[:LINES_MAX]]
    more = len(outcome.broken) - LINES_MAX
    return [*lines, *([f"  and {more:,} more"] if more > 0 else [])]


def _broken(outcome: Outcome) -> dict[str, object]:
    seed = outcome.scenario.seed
    return {
        "seed": seed,
        "promises": list(outcome.promises),
        "what": [f"{promise}: {text}" for promise, text in outcome.broken],
        "scenario": str(outcome.scenario),
        "repeat": repeat(seed),
        "shrink": f"{repeat(seed)} --shrink",
    }
