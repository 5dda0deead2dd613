"""The placement of a publisher: which gateway is chosen for it [GRAPE 4.2].

Two quantities compete, the mean delay of deliveries and the load of the federation. One has priority, with a weight
from 0 to 100: gateways that are more than 100 - weight percent of the way from the best to the worst of it are dropped,
and the best of the other quantity is chosen among the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from edgebroker.dataclasses import dataclass


class PlacementPriority(Enum):
    """What is minimised first."""

    DELAY = "delay"
    LOAD = "load"


class PlacementRefusal(Enum):
    """Why a publisher stays where it is, or is not looked at."""

    BEST = "its gateway is the best one"
    GAIN = "it would gain too little"
    PARTIAL = "a gateway did not answer"
    DETOURS = "too many events were on a detour"
    RECENT = "it has moved a short time ago"
    EXCLUDED = "the operator excludes it"


@dataclass(frozen=True, slots=True)
class PlacementGoal:
    """What the operator wants."""

    priority: PlacementPriority = PlacementPriority.DELAY
    weight: int = 50
    """0 to 100."""
    gain_min: float = 0.05
    """The share by which a move must improve on staying; the published algorithm asks for nothing."""


@dataclass(frozen=True, slots=True)
class PlacementChoice:
    """The outcome for one publisher."""

    target: str
    """The gateway that is best; the publisher's own if it stays."""
    refusal: PlacementRefusal | None
    """Why the publisher stays; None: it moves to `target`."""


def normalised(costs: Mapping[str, float]) -> dict[str, float]:
    """Return each cost as percent of the way from the least to the greatest; all are 0 if these are equal."""
    least, greatest = min(costs.values()), max(costs.values())
    spread = greatest - least
    return {broker: 100 * (cost - least) / spread if spread else 0.0 for broker, cost in costs.items()}


def survivors(costs: Mapping[str, float], weight: int) -> list[str]:
    """Return the gateways that are not dropped: those within 100 - *weight* percent."""
    return [broker for broker, percent in normalised(costs).items() if percent <= 100 - weight]


def choose(
    goal: PlacementGoal, source: str, loads: Mapping[str, float], delays: Mapping[str, float]
) -> PlacementChoice:
    """Choose a gateway for a publisher at *source*, which is one of the candidates.

    loads, delays: the costs of each candidate. With priority on load, delays are needed for *source* and the
    `survivors` only, because each has to be asked for its distance from the publisher.

    Staying competes like any other candidate. A move must gain enough of the quantity with priority, or of the other
    one if staying has survived.
    """
    first, second = (delays, loads) if goal.priority is PlacementPriority.DELAY else (loads, delays)
    kept = survivors(first, goal.weight)
    target = min(kept, key=lambda broker: (second[broker], first[broker], broker))
    if target == source:
        return PlacementChoice(source, PlacementRefusal.BEST)
    decisive = (first, second) if source in kept else (first,)
    if all(costs[target] > costs[source] * (1 - goal.gain_min) for costs in decisive):
        return PlacementChoice(source, PlacementRefusal.GAIN)
    return PlacementChoice(target, None)
