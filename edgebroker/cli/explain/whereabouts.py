"""Where a subscription sits among others, and what finding it costs, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from edgebroker.cli.explain.population import Population
from edgebroker.cli.explain.words import counted, sentence, words
from edgebroker.matching.placement import Placement, Settled, Turn, placements

_SETTLED: Final = {
    Settled.PATH: "settled by the way to the bucket",
    Settled.CELLS: "decided by a column of the bucket",
    Settled.LOOSE: "narrowed down by a column, then compared",
    Settled.UNCUT: "compared: the bucket has no column for it",
}


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where the predicates of one subscription sit."""

    topic_filter: str
    neighbours: int
    """Other subscriptions on the same topic filter."""
    placements: tuple[Placement, ...]
    matches_all: bool
    """Whether it matches every message under its topic filter; else, without predicates, it matches none."""

    @classmethod
    def of(cls, population: Population, number: int) -> Whereabouts:
        """Where the subscription with this number in the tree sits."""
        end = population.tree.end_of(number)
        return cls(end.text, end.subscriptions - 1, placements(population.tree, number), number in end.plain)

    @property
    def lines(self) -> Iterator[tuple[str, str]]:
        """(Title, what there is to say) for people."""
        others = f"with {counted(self.neighbours, 'other subscription')}" if self.neighbours else "alone"
        yield "sits on", f"topic filter {self.topic_filter}, {others}"
        if not self.placements:
            yield "", "matches every message there: nothing is searched" if self.matches_all else "can match nothing"
        for number, placement in enumerate(self.placements, 1):
            if len(self.placements) > 1:
                yield f"alternative {number}", sentence(placement.predicate)
            yield from _lines(placement)

    def told(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "topic": self.topic_filter,
            "neighbours": self.neighbours,
            "matches_all": self.matches_all,
            "predicates": [_told(placement) for placement in self.placements],
        }


def _lines(placement: Placement) -> Iterator[tuple[str, str]]:
    for number, turn in enumerate(placement.turns):
        yield "" if number else "behind", _turn(turn)
    others = f"with {counted(placement.leaves - 1, 'other predicate')}" if placement.leaves > 1 else "alone"
    searched = f"searched by {', '.join(placement.columns)}"
    if not placement.columns:
        searched = "too small for columns" if placement.has_few_neighbours else "without columns"
    yield "in", f"a bucket, {others}, {searched}"
    width = max(len(f"{placed.test.attribute} {words(placed.test)}") for placed in placement.tests)
    for number, placed in enumerate(placement.tests):
        text = f"{placed.test.attribute} {words(placed.test)}"
        yield "" if number else "its tests", f"{text:<{width}}   {_SETTLED[placed.settled]}"
    yield "costs", _cost(placement)
    if placement.members > 1:
        yield "shares", f"its place with {counted(placement.members - 1, 'subscription')} of the same predicate"


def _turn(turn: Turn) -> str:
    where = f"1 of {counted(turn.edges, 'edge')}, {counted(turn.leaves, 'predicate')}"
    if not turn.attribute:
        return f"*   a fork without test: {turn.reason} ({where})"
    return f"{turn.label}   " + (f"{turn.attribute} {turn.reason} ({where})" if turn.reason else f"({where})")


def _cost(placement: Placement) -> str:
    steps = f"{counted(placement.steps, 'step')} of the search"
    if placement.is_certain:
        return f"{steps}; every message that gets there matches"
    if not placement.columns:
        return f"{steps}, a bucket of {placement.leaves:,} gone through one by one"
    scan = f"{counted(placement.leaves, 'predicate')} scanned over {counted(len(placement.columns), 'column')}"
    last = "this one compared if it is left over" if placement.is_verified else "nothing compared for this one"
    return f"{steps}, {scan}, {last}"


def _told(placement: Placement) -> dict[str, Any]:
    return {
        "path": [
            {
                "fork": turn.attribute,
                "edge": turn.label,
                "reason": turn.reason,
                "edges": turn.edges,
                "leaves": turn.leaves,
            }
            for turn in placement.turns
        ],
        "bucket": {"leaves": placement.leaves, "columns": list(placement.columns)},
        "tests": [
            {
                "attribute": placed.test.attribute,
                "words": words(placed.test),
                "settled": placed.settled.value,
                "compared": placed.settled.is_verified,
            }
            for placed in placement.tests
        ],
        "steps": placement.steps,
        "scanned": placement.leaves,
        "subscriptions": placement.members,
    }
