"""The meaning of one filter, and its comparison with another: which accepts all that the other accepts.

Where they differ, an event shows the difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from edgebroker.cli.explain.placement import SubscriptionPlacement
from edgebroker.cli.explain.terms import (
    INDEX_WORDS,
    TRUTHS,
    UNREADABLE,
    FilterVerdict,
    SubscriptionForms,
    predicate_text,
)
from edgebroker.filters import Filter, explain
from edgebroker.filters.covering import are_apart, common_example, counterexample, covers
from edgebroker.filters.names import AttributeName, AttributeSource, is_element_test
from edgebroker.filters.spelling import literal
from edgebroker.predicate import Attributes, Bound, Composite, Predicate

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
class FilterComparison:
    """How EXPR relates to another filter. `relation` is EXPR's: one of the keys of `_SENTENCES`."""

    other: str
    relation: str
    reasons: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """The comparison for people."""
        return (self.other, _SENTENCES[self.relation], *self.reasons)


def compare(this: Filter, other: Filter) -> FilterComparison:
    """Returns whether *this* covers *other* or is covered by it, and otherwise why not."""
    own_predicates, other_predicates = this.predicates, other.predicates
    only_there, only_here = (
        counterexample(own_predicates, other_predicates),
        counterexample(other_predicates, own_predicates),
    )
    is_covering = True if covers(own_predicates, other_predicates) else None if only_there is None else False
    is_covered = True if covers(other_predicates, own_predicates) else None if only_here is None else False
    relation = _RELATIONS.get((is_covering, is_covered))
    if relation is None and are_apart(own_predicates, other_predicates):
        relation = "apart"
    elif relation is None:
        relation = "neither" if common_example(own_predicates, other_predicates) is None else "overlaps"
    reasons = []
    if only_there is not None:
        reasons.append(
            f"only the other accepts {_event_text(only_there)}; here {_failed_tests(own_predicates, only_there)}"
        )
    if only_here is not None:
        reasons.append(
            f"only this one accepts {_event_text(only_here)}; there {_failed_tests(other_predicates, only_here)}"
        )
    undecided = sorted({*_undecided(own_predicates, is_covering), *_undecided(other_predicates, is_covered)})
    if undecided:
        reasons.append(f"not decided for {', '.join(undecided)}: patterns, and attributes that depend on each other")
    return FilterComparison(other.canonical, relation, tuple(reasons))


def _event_text(event: Attributes) -> str:
    """Returns the event as text, without attributes that are not tested."""
    present = [
        f"an object as {attribute}" if isinstance(value, Composite) else _value_text(attribute, value)
        for attribute, value in event.items()
        if value is not None
    ]
    absent = [attribute for attribute, value in event.items() if value is None]
    without = f"without {', '.join(absent)}" if absent else ""
    return f"{' and '.join(present) or 'a message'} {without}".strip()


def _value_text(attribute: str, value: Bound) -> str:
    if is_element_test(attribute):
        return attribute if value else f"NOT {attribute}"
    return f"{attribute} = {literal(value)}"


def _failed_tests(predicates: tuple[Predicate, ...], event: Attributes) -> str:
    """Returns the tests that *event* fails, one of each predicate."""
    failed = (next(t for t in predicate if not t.accepts(event.get(t.attribute))) for predicate in predicates)
    return (
        " or ".join(dict.fromkeys(f"{test.attribute} {predicate_text(test)}" for test in failed))
        or "nothing is accepted"
    )


def _undecided(predicates: tuple[Predicate, ...], is_covering: bool | None) -> Iterator[str]:
    """Yields the attributes that make it undecided whether *predicates* cover others."""
    if is_covering is None:
        tests = [test for predicate in predicates for test in predicate]
        yield from ({test.attribute for test in tests if test.patterns} or {test.attribute for test in tests})


_SOURCES: Final = {
    AttributeSource.PAYLOAD: "in the payload",
    AttributeSource.TOPIC: "the topic",
    AttributeSource.LEVEL: "a level of the topic",
    AttributeSource.QOS: "QoS as published",
    AttributeSource.RETAIN: "retain as published",
    AttributeSource.SIZE: "bytes of the payload",
    AttributeSource.CLIENT: "the publisher's client identifier",
    AttributeSource.USER: "an MQTT 5 user property",
    AttributeSource.ELEMENT: "any element of an array in the payload",
}


@dataclass(frozen=True, slots=True)
class FilterExplanation:
    """All parts of the explanation of one filter; None: not asked for."""

    filter: Filter
    forms: SubscriptionForms
    placement: SubscriptionPlacement | None
    verdict: FilterVerdict | None
    comparison: FilterComparison | None

    @property
    def lines(self) -> Iterator[tuple[str, str]]:
        """(Title, text) for people."""
        explanation = explain(self.filter)
        yield "understood as", explanation.canonical
        yield from self._conjunctions()
        if explanation.remark:
            yield "note", explanation.remark
        for number, name in enumerate(explanation.attributes):
            yield "" if number else "needs", f"{name} ({_SOURCES[AttributeName.parse(name).source]})"
        for number, (needs, line) in enumerate(self.forms.commands):
            yield "" if number else "subscribe", f"{needs:<11}{line}"
        if self.placement is not None:
            yield from self.placement.lines
        if self.verdict is not None:
            width = max(map(len, TRUTHS.values()))
            for number, term in enumerate(self.verdict.terms):
                yield "" if number else "this event", f"{term.truth:<{width}} {term.term}, for {term.because}"
            outcome = "delivered" if self.verdict.delivered else "not delivered"
            yield "", f"{self.verdict.truth:<{width}} in all: {outcome}"
            if self.verdict.unreadable:
                yield "", UNREADABLE
        if self.comparison is not None:
            for number, text in enumerate(self.comparison.lines):
                yield "" if number else "compared with", text

    def as_object(self) -> dict[str, Any]:
        """Returns the same for programs."""
        explanation = explain(self.filter)
        answer: dict[str, Any] = {
            "ok": True,
            "text": explanation.text,
            "canonical": explanation.canonical,
            "attributes": {name: AttributeName.parse(name).source.value for name in explanation.attributes},
            "conjunctions": [
                [
                    asdict(answer) | {"words": predicate_text(test)}
                    for test, answer in zip(predicate, tests, strict=True)
                ]
                for predicate, tests in zip(self.filter.predicates, explanation.conjunctions, strict=True)
            ],
            "remark": explanation.remark,
            "subscribe": {
                "topic": self.forms.subscription,
                "where": {"topic": self.forms.topic, "$where": self.forms.expression},
                "commands": [line for _, line in self.forms.commands],
            },
        }
        if self.placement is not None:
            answer["sits"] = self.placement.as_object()
        if self.verdict is not None:
            answer["event"] = asdict(self.verdict)
        if self.comparison is not None:
            answer["covers"] = asdict(self.comparison)
        return answer

    def _conjunctions(self) -> Iterator[tuple[str, str]]:
        predicates = self.filter.predicates
        title = "true if either" if len(predicates) > 1 else "true if"
        for predicate, tests in zip(predicates, explain(self.filter).conjunctions, strict=True):
            rows = [
                (f"{test.attribute} {predicate_text(test)}", INDEX_WORDS[explained.index])
                for test, explained in zip(predicate, tests, strict=True)
            ]
            width = max((len(text) for text, _ in rows), default=0)
            for text, index in rows:
                yield title, f"{text:<{width}}   {index}"
                title = "  and"
            title = "or"
