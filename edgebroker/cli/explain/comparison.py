"""Two filters side by side: whether one accepts all that the other does, and if not, an event that tells them apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from edgebroker.cli.explain.words import words
from edgebroker.event import Attributes, Composite
from edgebroker.filters import Filter
from edgebroker.filters.covering import are_apart, common_example, counterexample, covers
from edgebroker.filters.spelling import literal
from edgebroker.predicate import Predicate

_RELATIONS: Final = {
    (True, True): "equal",
    (True, False): "covers",
    (True, None): "covers",
    (False, True): "covered",
    (None, True): "covered",
    (None, None): "unknown",
    (None, False): "unknown",
    (False, None): "unknown",
}
_SENTENCES: Final = {
    "equal": "both accept the same events",
    "covers": "this filter accepts every event that the other one accepts",
    "covered": "the other filter accepts every event that this one accepts",
    "apart": "no event satisfies both",
    "overlaps": "some events satisfy both, and each accepts some that the other does not",
    "neither": "each accepts events that the other does not",
    "unknown": "neither is known to accept all that the other one does",
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """How EXPR stands to another filter. `relation` is EXPR's: one of the keys of `_SENTENCES`."""

    other: str
    relation: str
    reasons: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """The comparison for people."""
        return (self.other, _SENTENCES[self.relation], *self.reasons)


def compare(this: Filter, other: Filter) -> Comparison:
    """Whether *this* covers *other*, is covered by it, or why not."""
    mine, theirs = this.predicates, other.predicates
    only_there, only_here = counterexample(mine, theirs), counterexample(theirs, mine)
    covering = True if covers(mine, theirs) else None if only_there is None else False
    covered = True if covers(theirs, mine) else None if only_here is None else False
    relation = _RELATIONS.get((covering, covered))
    if relation is None and are_apart(mine, theirs):
        relation = "apart"
    elif relation is None:
        relation = "neither" if common_example(mine, theirs) is None else "overlaps"
    reasons = []
    if only_there is not None:
        reasons.append(f"only the other accepts {_shown(only_there)}; here {_refusals(mine, only_there)}")
    if only_here is not None:
        reasons.append(f"only this one accepts {_shown(only_here)}; there {_refusals(theirs, only_here)}")
    undecided = sorted({*_undecided(mine, covering), *_undecided(theirs, covered)})
    if undecided:
        reasons.append(f"not decided for {', '.join(undecided)}: patterns, and attributes that depend on each other")
    return Comparison(other.canonical, relation, tuple(reasons))


def _shown(event: Attributes) -> str:
    """The event in words; attributes that are not tested are not named."""
    present = [
        f"an object as {attribute}" if isinstance(value, Composite) else f"{attribute} = {literal(value)}"
        for attribute, value in event.items()
        if value is not None
    ]
    absent = [attribute for attribute, value in event.items() if value is None]
    without = f"without {', '.join(absent)}" if absent else ""
    return f"{' and '.join(present) or 'a message'} {without}".strip()


def _refusals(predicates: tuple[Predicate, ...], event: Attributes) -> str:
    """The tests that *event* fails, one of each predicate."""
    failed = (next(t for t in predicate if not t.accepts(event.get(t.attribute))) for predicate in predicates)
    return " or ".join(dict.fromkeys(f"{test.attribute} {words(test)}" for test in failed)) or "nothing is accepted"


def _undecided(predicates: tuple[Predicate, ...], covering: bool | None) -> Iterator[str]:
    """The attributes because of which it is not known whether *predicates* cover others."""
    if covering is None:
        tests = [test for predicate in predicates for test in predicate]
        yield from ({test.attribute for test in tests if test.patterns} or {test.attribute for test in tests})
