"""The terms of one filter: as text, in the forms a subscriber may send, and evaluated for one event."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from edgebridge.session.subscription_text import WHERE_PROPERTY, encode_subscription
from edgebroker.filters import Filter
from edgebroker.filters.evaluation import evaluate
from edgebroker.filters.patterns import prefix_of, spelled, successor
from edgebroker.filters.spelling import canonical, literal
from edgebroker.filters.syntax import terms_of
from edgebroker.predicate import (
    Attributes,
    Composite,
    ElementaryTest,
    Interval,
    Pattern,
    Predicate,
    Value,
    ValueType,
    kind_of,
)

_NOUNS: Final = {ValueType.NUMBER: "number", ValueType.STRING: "string", ValueType.BOOLEAN: "boolean"}

INDEX_WORDS: Final = {
    "equality": "found by hash",
    "range": "found among sorted ranges",
    "presence": "found by presence",
    "pattern": "tried one by one",
}
"""How the broker looks up a test, by `ExplainedTest.index`."""


def predicate_text(test: ElementaryTest) -> str:
    """Returns *test* as the end of a sentence that begins with its attribute: "is a number above 30"."""
    if test.kind is ValueType.NULL:
        return "is absent or null"
    if test.kind is ValueType.NOT_NULL:
        return "is there, whatever it holds"
    accepted = _accepted(test.kind, test.intervals)
    if not test.patterns:
        return f"is {accepted}"
    prefixes = {prefix_of(pattern.parts) for pattern in test.patterns if not pattern.negated} - {""}
    # the pattern implies the interval
    is_redundant = len(test.intervals) == 1 and _prefix(test.intervals[0]) in prefixes
    patterns = " and ".join(map(_pattern, test.patterns))
    return f"is a string {patterns}" if is_redundant or accepted == "a string" else f"is {accepted} and {patterns}"


def sentence(predicate: Predicate) -> str:
    """Returns all tests of *predicate* as text."""
    return " and ".join(f"{test.attribute} {predicate_text(test)}" for test in predicate)


def counted(count: int, noun: str, plural: str = "") -> str:
    """Returns *count* and its noun: "1 step", "2,000 steps"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def _accepted(kind: ValueType, intervals: tuple[Interval, ...]) -> str:
    """Returns the values in *intervals*: points as a list, otherwise holes as exceptions, otherwise every interval."""
    noun = f"a {_NOUNS[kind]}"
    points = [literal(interval.low) for interval in intervals if interval.is_point and interval.low is not None]
    if len(points) == len(intervals):
        return points[0] if len(points) == 1 else f"one of {', '.join(points)}"
    holes = _holes(intervals)
    if holes is not None:
        return noun + (f" other than {', '.join(holes)}" if holes else "")
    return f"{noun} {' or '.join(map(_interval, intervals))}"


def _holes(intervals: tuple[Interval, ...]) -> list[str] | None:
    """Returns the values left out, if all other values are included; otherwise None."""
    if intervals[0].low is not None or intervals[-1].high is not None:
        return None
    holes = []
    for below, above in pairwise(intervals):
        if below.high is None or below.high_closed or above.low_closed or below.high != above.low:
            return None
        holes.append(literal(below.high))
    return holes


def _interval(interval: Interval) -> str:
    low, high = interval.low, interval.high
    if interval.is_point and low is not None:
        return f"equal to {literal(low)}"
    prefix = _prefix(interval)
    if prefix is not None:
        return f"that begins with {literal(prefix)}"
    if low is not None and high is not None and interval.low_closed and interval.high_closed:
        return f"from {literal(low)} to {literal(high)}"
    bounds = []
    if low is not None:
        bounds.append(f"{'at least' if interval.low_closed else 'above'} {literal(low)}")
    if high is not None:
        bounds.append(f"{'at most' if interval.high_closed else 'below'} {literal(high)}")
    return " and ".join(bounds)


def _prefix(interval: Interval) -> str | None:
    """Returns the prefix whose strings are exactly those of *interval*, if there is one."""
    low = interval.low
    if not isinstance(low, str) or not low or not interval.low_closed or interval.high_closed:
        return None
    return low if interval.high == successor(low) else None


def _pattern(pattern: Pattern) -> str:
    text, escape = spelled(pattern.parts)
    return f"{'unlike' if pattern.negated else 'like'} {literal(text)}" + (f" (escape {escape})" if escape else "")


_SPECIAL: Final = re.compile(r"[\"\\$`]")
"""Characters that keep their meaning inside double quotes and are escaped there."""


@dataclass(frozen=True, slots=True)
class SubscriptionForms:
    """*expression* for *topic*, in every form that a subscriber may use."""

    expression: str
    topic: str

    @property
    def subscription(self) -> str:
        """The subscription text that carries the filter: for every version of MQTT and every client.

        Single quotes are encoded, too, for shells; MQTT does not require it.
        """
        return encode_subscription(self.expression, self.topic).replace("'", "%27")

    @property
    def commands(self) -> tuple[tuple[str, str], ...]:
        """(Requirement, command line)."""
        topic, expression = quoted(self.topic), quoted(self.expression)
        return (
            ("any MQTT", f"mosquitto_sub -t {quoted(self.subscription)} -v"),
            ("MQTT 5", f"mosquitto_sub -V 5 -t {topic} -D subscribe user-property '{WHERE_PROPERTY}' {expression} -v"),
            ("our client", f"edgebroker sub -t {topic} --where {expression} -v"),
        )


def quoted(text: str) -> str:
    """Returns *text* as one word of a POSIX shell, in single quotes, or in double quotes where that is easier
    to read.
    """
    if "'" not in text:
        return f"'{text}'"
    if "!" in text:  # in double quotes, bash would expand it as history and keep the escaping backslash
        return shlex.quote(text)
    return '"' + _SPECIAL.sub(r"\\\g<0>", text) + '"'


TRUTHS: Final = {True: "true", False: "false", None: "unknown"}
_VALUE_NOUNS: Final = {ValueType.NUMBER: "a number", ValueType.STRING: "a string", ValueType.BOOLEAN: "a boolean"}
TEXT_SHOWN_MAX: Final = 60
"""Characters shown of a string value; the event itself has the rest."""


@dataclass(frozen=True, slots=True)
class TermVerdict:
    """One comparison. `truth`: true, false or unknown. `because`: the value of the attribute."""

    term: str
    truth: str
    because: str


@dataclass(frozen=True, slots=True)
class FilterVerdict:
    """The whole filter: `truth`, and whether such an event is `delivered`. `unreadable`: its payload is."""

    truth: str
    delivered: bool
    terms: tuple[TermVerdict, ...]
    unreadable: bool = False


UNREADABLE: Final = "the payload cannot be read (broken JSON, say), so everything in it seems to be absent"


def judge_event(content_filter: Filter, attributes: Attributes, is_unreadable: bool = False) -> FilterVerdict:
    """Evaluates *content_filter* for an event with these *attributes*."""
    truth = evaluate(content_filter.tree, attributes)
    return FilterVerdict(TRUTHS[truth], truth is True, tuple(_terms(content_filter, attributes)), is_unreadable)


def _terms(content_filter: Filter, attributes: Attributes) -> Iterator[TermVerdict]:
    for term in terms_of(content_filter.tree):
        truth, value = evaluate(term, attributes), attributes.get(term.attribute)
        yield TermVerdict(canonical(term), TRUTHS[truth], f"{term.attribute} {_state(value, truth)}")


def _state(value: Value, truth: bool | None) -> str:
    """Returns the value of an attribute, with its type where a comparison with another type left the term unknown."""
    if value is None or isinstance(value, Composite):
        return f"is {value_text(value)}"
    return f"is {_VALUE_NOUNS[kind_of(value)]}, {value_text(value)}" if truth is None else f"is {value_text(value)}"


def value_text(value: Value) -> str:
    """Returns *value* as text, in the spelling of the filter language where possible."""
    if value is None:
        return "absent or null"
    if isinstance(value, Composite):
        return "an object, an array, bytes or not a number"
    text = literal(value) if value == value and value not in (float("inf"), float("-inf")) else str(value)
    return text if len(text) <= TEXT_SHOWN_MAX else text[:TEXT_SHOWN_MAX] + "..."
