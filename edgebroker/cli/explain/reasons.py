"""Why each subscription of one client gets a message or does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from edgebroker.cli.explain.journey import Journey
from edgebroker.cli.explain.mismatch import mismatch
from edgebroker.cli.explain.population import Population
from edgebroker.cli.explain.verdict import TRUTHS, Verdict, judge
from edgebroker.event import Attributes
from edgebroker.filters import Filter
from edgebroker.matching.trace import Fate


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one subscription gets the message or does not."""

    id: int
    topic_filter: str
    where: str | None
    matches: bool
    topic: str
    """Why the topic filter does not match; "" if it does."""
    verdict: Verdict | None
    """What the content filter says; None if there is none, or if the topic decides."""
    search: tuple[str, ...]
    """Where the search found or lost each predicate."""


def reasons(
    population: Population, numbers: list[int], journey: Journey, topic: str, attributes: Attributes
) -> tuple[Reason, ...]:
    """The reasons of the subscriptions with these *numbers* in the tree.

    attributes: those of the message that their filters ask for.
    """
    return tuple(_reason(population, number, journey, topic, attributes) for number in numbers)


def _reason(population: Population, number: int, journey: Journey, topic: str, attributes: Attributes) -> Reason:
    one = population.subscription(number)
    matches = number in journey.trace.numbers
    topic_reason = mismatch(one.topic_filter, topic)
    verdict = None
    if not topic_reason and one.where is not None:
        verdict = judge(Filter.parse(one.where), attributes)
    search = () if topic_reason else tuple(_search(fate, journey) for fate in journey.trace.fates(number))
    return Reason(one.id, one.topic_filter.text, one.where, matches, topic_reason, verdict, search)


def _search(fate: Fate, journey: Journey) -> str:
    if fate.edge:
        return f"step {fate.step}: the edge towards it, {fate.edge}, is not taken"
    if fate.column:
        return f"step {fate.step}: left out by the column of {fate.column}"
    if fate.failed is not None:
        return f"step {fate.step}: compared in vain: {journey.reason(fate.failed)}"
    return f"step {fate.step}: found"


def lines_of(reason: Reason) -> Iterator[str]:
    """The reason for people."""
    subscription = f"{reason.topic_filter}: {reason.where}" if reason.where is not None else reason.topic_filter
    yield f"{reason.id}  {subscription}"
    if reason.topic:
        yield f"   not delivered: {reason.topic}"
        return
    if reason.verdict is not None:
        width = max(map(len, TRUTHS.values()))
        for one in reason.verdict.terms:
            yield f"   {one.truth:<{width}} {one.term}, for {one.because}"
    yield f"   {'delivered' if reason.matches else 'not delivered'}"
    for text in reason.search:
        yield f"   {text}"


def told(reason: Reason) -> dict[str, Any]:
    """The reason for programs."""
    return asdict(reason)
