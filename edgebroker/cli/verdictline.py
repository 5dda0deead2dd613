"""What monitoring programs of Nagios' kind expect: one line, performance data, and an exit code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from edgebroker.cli.figures import count, span


class State(IntEnum):
    """The exit codes of a plug-in, in the order of the Monitoring Plugins guidelines."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Bounds that may not be passed; None: not judged."""

    warn_lag_ms: float | None = 100.0
    crit_lag_ms: float | None = 500.0
    warn_queue: int | None = None
    crit_queue: int | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure with its bounds. `unit` is one of the guidelines': none, ms, B, c (a counter)."""

    name: str
    value: int | float
    unit: str = ""
    warn: float | None = None
    crit: float | None = None

    @property
    def state(self) -> State:
        """How the figure stands to its bounds."""
        if self.crit is not None and self.value > self.crit:
            return State.CRITICAL
        return State.WARNING if self.warn is not None and self.value > self.warn else State.OK

    @property
    def perfdata(self) -> str:
        """`name=value[unit];warn;crit;min`."""
        bounds = ";".join("" if bound is None else f"{bound:g}" for bound in (self.warn, self.crit))
        return f"{self.name}={self.value}{self.unit};{bounds};0"  # %g would round counters


def judge(status: Mapping[str, Any], thresholds: Thresholds) -> tuple[State, str]:
    """The state, and the line, of a gateway that said *status* of itself."""
    lag = status["health"]["checks"]["loop_lag"]
    is_judged = lag.get("is_judged", True)  # one that has just started is late for reasons of its own
    lags = (thresholds.warn_lag_ms, thresholds.crit_lag_ms) if is_judged else (None, None)
    copies, sessions = status["copies"], status["sessions"]
    measures = [
        Measure("loop_lag_p99", lag["p99_ms"], "ms", *lags),
        Measure("queue", status["queue"]["messages"], "", thresholds.warn_queue, thresholds.crit_queue),
        Measure("queue_longest", status["queue"]["longest"]),
        Measure("clients", sessions["connected"]),
        Measure("away", sessions["away"]),
        Measure("published", status["messages"]["published"], "c"),
        Measure("delivered", copies["delivered"], "c"),
        Measure("dropped", sum(copies["dropped"].values()), "c"),
        Measure("memory", status["process"]["resident_bytes"] or 0, "B"),
    ]
    reasons = list(status["health"]["reasons"])
    warnings = status["health"].get("warnings", ())
    state = (
        State.CRITICAL if reasons else max(State.WARNING if warnings else State.OK, *(one.state for one in measures))
    )
    reasons += warnings
    for measure in measures:
        if measure.state:
            bound = measure.crit if measure.state is State.CRITICAL else measure.warn
            reasons.append(f"{measure.name} is {measure.value:g}{measure.unit}, more than {bound:g}")
    well = f"up {span(status['uptime_s'])}, {count(sessions['connected'])} clients"
    return state, line(state, f"{status['name']}: {'; '.join(reasons) or well}", measures)


def line(state: State, text: str, measures: list[Measure] | None = None) -> str:
    """One line as the guidelines want it. What stands after `|` is for programs."""
    said = f"EDGEBROKER {state.name} - {' '.join(text.replace('|', '/').split())}"
    return f"{said} | {' '.join(measure.perfdata for measure in measures)}" if measures else said
