"""Content filters: a Filter that exists has been parsed, checked and normalised. `explain` describes its normal
form.
"""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.errors import FilterTooComplex
from edgebroker.filters.elements import literals_of
from edgebroker.filters.evaluation import evaluate
from edgebroker.filters.names import AttributeName, AttributeSource
from edgebroker.filters.normal_form import normalised
from edgebroker.filters.parser import parse
from edgebroker.filters.spelling import accepted_text, canonical
from edgebroker.filters.syntax import And, Node, joined, terms_of
from edgebroker.limits import FILTER_TERMS_MAX
from edgebroker.predicate import Attributes, ElementaryTest, Predicate, ValueType

_IN_PAYLOAD: Final = (AttributeSource.PAYLOAD, AttributeSource.ELEMENT)


@dataclass(frozen=True, eq=False)
class Filter:
    """One content filter. Two filters are equal if their canonical texts are."""

    text: str
    """The text that the subscriber wrote."""
    tree: Node = field(repr=False)
    predicates: tuple[Predicate, ...] = field(repr=False)
    """The filter is true for exactly the events that one of these accepts; `()`: for none."""
    work: int = field(repr=False)
    """The cost of parsing and normalising it, in steps of about a microsecond."""

    @cached_property
    def canonical(self) -> str:
        """The common spelling of all filters that differ in form only; it is a filter with the same meaning.

        It is computed on demand, because subscribing does not need it.
        """
        return canonical(self.tree)

    @cached_property
    def attributes(self) -> frozenset[str]:
        """Canonical names of the attributes that the filter uses."""
        return frozenset(term.attribute for term in terms_of(self.tree))

    @cached_property
    def reads_payload(self) -> bool:
        """Whether an attribute of the payload is used."""
        return any(AttributeName.parse(name).source in _IN_PAYLOAD for name in self.attributes)

    @cached_property
    def may_accept_unreadable(self) -> bool:
        """Whether it uses the payload, and is true of some event whose payload could not be read: `danger IS NULL`."""
        return self.reads_payload and any(
            all(
                test.kind is ValueType.NULL or AttributeName.parse(test.attribute).source not in _IN_PAYLOAD
                for test in predicate
            )
            for predicate in self.predicates
        )

    @classmethod
    def parse(cls, text: str) -> Filter:
        """Parse *text*. Raises FilterInvalid (with a column) or FilterTooComplex (a bound of `edgebroker.limits`)."""
        tree = parse(text)
        predicates, work = normalised(tree)
        return cls(text, tree, predicates, work + len(text))

    def conjoined(self, other: Filter) -> Filter:
        """Return the filter that is true where both are. Raises FilterTooComplex if together they exceed a bound."""
        tree = joined(And, self.tree, other.tree)
        terms = sum(map(literals_of, terms_of(tree)))
        if terms > FILTER_TERMS_MAX:
            raise FilterTooComplex(f"both filters together have {terms} terms; at most {FILTER_TERMS_MAX} are allowed")
        predicates, work = normalised(tree)
        return Filter(f"({self.text}) AND ({other.text})", tree, predicates, work + terms)

    def accepts(self, attributes: Attributes) -> bool:
        """Return whether the filter is true, not false or unknown, for an event with these *attributes*."""
        return evaluate(self.tree, attributes) is True

    def permits(self, attributes: Attributes, is_unreadable: bool) -> bool:
        """Return whether a rule with this filter as its condition lets an event pass.

        *is_unreadable*: the payload could not be read. Then a condition that asks for something in it is not met: all
        of its attributes seem to be absent, which `danger IS NULL` would take for true.
        """
        return self.accepts(attributes) and not (is_unreadable and self.reads_payload)

    def __eq__(self, other: object) -> bool:
        return self.canonical == other.canonical if isinstance(other, Filter) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.canonical)


@dataclass(frozen=True, slots=True)
class ExplainedTest:
    """One elementary test. `index`: "equality", "range" and "presence" are looked up, "pattern" is compared one
    by one.
    """

    attribute: str
    accepts: str
    index: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """`conjunctions`: the filter is true if every test of one of them is. Without any: never; with an empty one:
    always.
    """

    text: str
    canonical: str
    attributes: tuple[str, ...]
    conjunctions: tuple[tuple[ExplainedTest, ...], ...]
    remark: str
    """A remark about the meaning, "" if there is none."""


def explain(content_filter: Filter) -> Explanation:
    """Return the explanation of *content_filter*."""
    conjunctions = tuple(
        tuple(ExplainedTest(test.attribute, accepted_text(test), _index(test)) for test in predicate)
        for predicate in content_filter.predicates
    )
    remark = ""
    if not conjunctions:
        remark = "No event can satisfy this filter: it contradicts itself."
    elif () in conjunctions:
        remark = "Every event satisfies this filter."
    return Explanation(
        content_filter.text, content_filter.canonical, tuple(sorted(content_filter.attributes)), conjunctions, remark
    )


def _index(test: ElementaryTest) -> str:
    if test.kind in (ValueType.NULL, ValueType.NOT_NULL):
        return "presence"
    if test.patterns:
        return "pattern"
    return "equality" if all(interval.is_point for interval in test.intervals) else "range"
