"""What a filter means, for people: the normal form in words, and how the broker finds it."""

from __future__ import annotations

from edgebroker.dataclasses import dataclass
from edgebroker.filters.filter import Filter
from edgebroker.filters.spelling import accepted_text
from edgebroker.predicate import ElementaryTest, Kind


@dataclass(frozen=True, slots=True)
class ExplainedTest:
    """One elementary test. `index`: "equality", "range" or "presence" are looked up, "pattern" is tried one by one."""

    attribute: str
    accepts: str
    index: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """`conjunctions`: the filter is true if every test of one of them holds. None: never; an empty one: always."""

    text: str
    canonical: str
    attributes: tuple[str, ...]
    conjunctions: tuple[tuple[ExplainedTest, ...], ...]
    remark: str
    """What the reader may have overlooked; "" if there is nothing to say."""


def explain(content_filter: Filter) -> Explanation:
    """All there is to say about *content_filter*."""
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
        content_filter.text,
        content_filter.canonical,
        tuple(sorted(content_filter.attributes)),
        conjunctions,
        remark,
    )


def _index(test: ElementaryTest) -> str:
    if test.kind in (Kind.NULL, Kind.NOT_NULL):
        return "presence"
    if test.patterns:
        return "pattern"
    return "equality" if all(interval.is_point for interval in test.intervals) else "range"
