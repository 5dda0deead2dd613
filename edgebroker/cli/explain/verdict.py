"""What a filter says about one event, term by term."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from edgebroker.event import Attributes, Composite, Value
from edgebroker.filters import Filter
from edgebroker.filters.predicates import evaluate
from edgebroker.filters.spelling import canonical, literal
from edgebroker.filters.syntax import terms_of
from edgebroker.predicate import Kind, kind_of

TRUTHS: Final = {True: "true", False: "false", None: "unknown"}
_NOUNS: Final = {Kind.NUMBER: "a number", Kind.STRING: "a string", Kind.BOOLEAN: "a boolean"}
TEXT_SHOWN_MAX: Final = 60
"""Characters of a string value; the event itself shows the rest."""


@dataclass(frozen=True, slots=True)
class TermVerdict:
    """One comparison. `truth`: true, false or unknown. `because`: what the attribute is."""

    term: str
    truth: str
    because: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The whole filter: `truth`, and whether an event like this is `delivered`."""

    truth: str
    delivered: bool
    terms: tuple[TermVerdict, ...]


def judge(content_filter: Filter, attributes: Attributes) -> Verdict:
    """What *content_filter* says about an event with these *attributes*."""
    truth = evaluate(content_filter.tree, attributes)
    return Verdict(TRUTHS[truth], truth is True, tuple(_terms(content_filter, attributes)))


def _terms(content_filter: Filter, attributes: Attributes) -> Iterator[TermVerdict]:
    for term in terms_of(content_filter.tree):
        truth, value = evaluate(term, attributes), attributes.get(term.attribute)
        yield TermVerdict(canonical(term), TRUTHS[truth], f"{term.attribute} {_state(value, truth)}")


def _state(value: Value, truth: bool | None) -> str:
    """What an attribute is: its value, and its kind where a comparison with another kind left the term unknown."""
    if value is None or isinstance(value, Composite):
        return f"is {shown(value)}"
    return f"is {_NOUNS[kind_of(value)]}, {shown(value)}" if truth is None else f"is {shown(value)}"


def shown(value: Value) -> str:
    """*value* in words, or as the filter language spells it."""
    if value is None:
        return "absent or null"
    if isinstance(value, Composite):
        return "an object, an array or bytes"
    text = literal(value) if value == value and value not in (float("inf"), float("-inf")) else str(value)
    return text if len(text) <= TEXT_SHOWN_MAX else text[:TEXT_SHOWN_MAX] + "..."
