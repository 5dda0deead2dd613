"""The search for the subscriptions of one message, step by step, and the reason for each subscription."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from edgebroker.cli.explain.placement import SubscriptionTree
from edgebroker.cli.explain.terms import TRUTHS, FilterVerdict, counted, judge_event, predicate_text, value_text
from edgebroker.filters import Filter
from edgebroker.matching.linktrace import LinkEnd, LinkStep, LinkTrace, Why
from edgebroker.matching.outcomes import TritVector, format_trits
from edgebroker.matching.trace import PredicateComparison, PredicateFate, SearchStep, SearchTrace
from edgebroker.predicate import Attributes, ElementaryTest
from edgebroker.topics import MULTI_LEVEL, SEPARATOR, SINGLE_LEVEL, TopicFilter


def mismatch(topic_filter: TopicFilter, topic: str) -> str:
    """Returns why *topic_filter* does not match the topic name *topic*; "" if it does."""
    if topic_filter.matches(topic):
        return ""
    names = topic.split(SEPARATOR)
    if topic.startswith("$") and topic_filter.levels[0] in (SINGLE_LEVEL, MULTI_LEVEL):
        return f"a topic that begins with $ is not matched by {topic_filter.levels[0]} as first level"
    for number, (level, name) in enumerate(zip(topic_filter.levels, names, strict=False), 1):
        if level not in (SINGLE_LEVEL, MULTI_LEVEL, name):
            return f"level {number} of the topic is {name!r}, not {level!r}"
    wanted = len(topic_filter.levels) - (topic_filter.levels[-1] == MULTI_LEVEL)
    least = "at least " if topic_filter.levels[-1] == MULTI_LEVEL else ""
    return f"the topic has {_levels(len(names))}, the topic filter asks for {least}{wanted}"


def _levels(count: int) -> str:
    return f"{count} level{'s' * (count != 1)}"


NAMED_MAX: Final = 4
"""Edges, comparisons or subscriptions named in one line; the others are counted."""
CLIENTS_MAX: Final = 20
"""Clients named; the others are counted."""
STEPS_MAX: Final = 60
"""Steps of a search shown; the others are counted."""
LINKS_MAX: Final = 64
"""Links shown; the others are counted."""

_WHY: Final = {
    Why.PLAIN: "a subscription without filter is reached over it",
    Why.CERTAIN: "certain at step {step}",
    Why.FOUND: "a predicate in the bucket of step {step} accepts",
    Why.CLOSED: "nobody is reached over it at or below step {step}",
    Why.SEARCHED: "searched to the end, last at step {step}",
    Why.NO_EDGE: "no edge to take at step {step}",
    Why.NOBODY: "no subscription to search for",
}


class MatchTrace:
    """The search for the subscriptions and links of one message."""

    def __init__(self, subscription_tree: SubscriptionTree, topic: str, attributes: Attributes) -> None:
        self.trace = SearchTrace(subscription_tree.tree, topic, attributes)
        self.links: LinkTrace | None = None
        if subscription_tree.has_links:
            self.links = LinkTrace(self.trace, (1 << subscription_tree.link_count) - 1)
        self._subscription_tree = subscription_tree

    @property
    def lines(self) -> Iterator[tuple[str, str]]:
        """(Title, text) for people."""
        for number, end in enumerate(self.trace.ends):
            parts = [counted(end.subscriptions, "subscription")]
            if end.plain:
                parts.append(f"{len(end.plain):,} without filter")
            if end.content is not None:
                parts.append(f"{counted(len(end.content), 'predicate')} to search")
            yield "" if number else "topic filters", f"{end.text}: {', '.join(parts)}"
        if not self.trace.ends:
            yield "topic filters", "none matches this topic"
        for number, line in enumerate(self._search_lines()):
            yield "" if number else "search", line
        if self.links is not None:
            for number, line in enumerate(self._end_lines(self.links.ends)):
                yield "" if number else "links", line
            for number, line in enumerate(self._mask_lines(self.links.steps)):
                yield "" if number else "masks", line
        for number, line in enumerate(self._match_lines()):
            yield "" if number else "matches", line

    def as_object(self) -> dict[str, Any]:
        """Returns the complete search for programs."""
        ids = self._subscription_tree.ids
        answer: dict[str, Any] = {
            "topic_filters": [end.text for end in self.trace.ends],
            "steps": [self._as_object(step) for step in self.trace.steps],
            "matches": sorted(ids(self.trace.numbers)),
            "clients": self._subscription_tree.by_client(self.trace.numbers),
        }
        if self.links is not None:
            answer["links"] = {
                "steps": [
                    {
                        "step": step.number,
                        "topic_filter": step.topic_filter,
                        "edge": step.label,
                        "annotation": self._letters(step.annotation),
                        "mask": self._letters(step.mask),
                        "refined": self._letters(step.refined),
                    }
                    for step in self.links.steps
                ],
                "ends": [
                    {"link": end.link, "yes": end.yes, "why": end.why.value, "step": end.step}
                    for end in self.links.ends
                ],
            }
        return answer

    def _search_lines(self) -> Iterator[str]:
        steps = self.trace.steps
        heads = [
            f"{step.number:>3} {'  ' * step.depth} {step.label or step.topic_filter}" for step in steps[:STEPS_MAX]
        ]
        width = max(map(len, heads), default=0)
        for head, step in zip(heads, steps, strict=False):
            yield f"{head:<{width}}   {self._fork(step) if step.is_fork else self._bucket(step)}"
            for line in self._not_followed(step):
                yield f"{'':<{width}}     {line}"
        if len(steps) > STEPS_MAX:
            yield f"and {counted(len(steps) - STEPS_MAX, 'step')} more"
        in_vain = sum(len(step.in_vain) for step in steps)
        compared = sum(len(step.compared) for step in steps)
        scanned = sum(step.leaves for step in steps if not step.is_fork)
        yield (
            f"{counted(len(steps), 'step')}, {counted(scanned, 'predicate')} in the buckets, "
            f"{compared:,} compared, {in_vain:,} of them in vain"
        )

    def _fork(self, step: SearchStep) -> str:
        taken = sum(edge.taken for edge in step.edges)
        edges = f"{taken} of {counted(len(step.edges), 'edge')} taken"
        if not step.attribute:
            return f"fork without test: {edges}"
        return f"fork on {step.attribute}, which is {value_text(step.value)}: {edges}"

    def _bucket(self, step: SearchStep) -> str:
        size = f"bucket of {step.leaves:,}"
        remaining = f"{step.left:,} left by {', '.join(step.columns)}" if step.columns else "no columns"
        return f"{size}, {remaining}: {_matched(step)}"

    def _not_followed(self, step: SearchStep) -> Iterator[str]:
        """Yields the edges that the search did not take at *step*, and the comparisons that failed."""
        not_taken = [edge.label for edge in step.edges if not edge.taken]
        if not_taken:
            yield f"not {_some(not_taken, ' | ')}"
        if step.in_vain:
            yield f"in vain {_some([self._failure(comparison) for comparison in step.in_vain], ' | ')}"

    def _failure(self, comparison: PredicateComparison) -> str:
        assert comparison.failed is not None
        ids = self._subscription_tree.ids(comparison.numbers)
        return f"{_some([str(comparison) for comparison in ids], ', ')}: {self.reason(comparison.failed)}"

    def reason(self, test: ElementaryTest) -> str:
        """Returns the value in the message, and what *test* requires."""
        value = self.trace.attributes.get(test.attribute)
        return f"{test.attribute} is {value_text(value)}, must be {predicate_text(test).removeprefix('is ')}"

    def _end_lines(self, ends: Sequence[LinkEnd]) -> Iterator[str]:
        for end in ends[:LINKS_MAX]:
            yield f"{end.link:>3}  {'Y' if end.yes else 'N'}  {_WHY[end.why].format(step=end.step)}"
        if len(ends) > LINKS_MAX:
            yield f"and {counted(len(ends) - LINKS_MAX, 'link')} more"

    def _mask_lines(self, steps: Sequence[LinkStep]) -> Iterator[str]:
        heads = [
            f"{step.number:>3} {'  ' * step.depth} {step.label or step.topic_filter}" for step in steps[:STEPS_MAX]
        ]
        width = max(map(len, heads), default=0)
        for head, step in zip(heads, steps, strict=False):
            yield (
                f"{head:<{width}}   mask {self._letters(step.mask)}, here {self._letters(step.annotation)}, "
                f"so {self._letters(step.refined)}{'' if step.refined.maybe else ': no further'}"
            )
        if len(steps) > STEPS_MAX:
            yield f"and {counted(len(steps) - STEPS_MAX, 'step')} more"
        yield counted(len(steps), "step")

    def _match_lines(self) -> Iterator[str]:
        clients = self._subscription_tree.by_client(self.trace.numbers)
        yield f"{counted(len(self.trace.numbers), 'subscription')} of {counted(len(clients), 'client')}"
        shown_clients = list(clients.items())[:CLIENTS_MAX]
        width = max((len(client) for client, _ in shown_clients), default=0)
        for client, ids in shown_clients:
            yield f"{client:<{width}}   {_some([str(comparison) for comparison in ids], ', ')}"
        if len(clients) > CLIENTS_MAX:
            yield f"and {counted(len(clients) - CLIENTS_MAX, 'client')} more"

    def _letters(self, trits: TritVector) -> str:
        return format_trits(trits, min(self._subscription_tree.link_count, LINKS_MAX))

    def _as_object(self, step: SearchStep) -> dict[str, Any]:
        ids = self._subscription_tree.ids
        answer: dict[str, Any] = {
            "step": step.number,
            "topic_filter": step.topic_filter,
            "edge": step.label,
            "kind": "fork" if step.is_fork else "bucket",
            "leaves": step.leaves,
        }
        if step.is_fork:
            return answer | {
                "attribute": step.attribute,
                "value": value_text(step.value) if step.attribute else "",
                "taken": [edge.label for edge in step.edges if edge.taken],
                "not_taken": [edge.label for edge in step.edges if not edge.taken],
            }
        return answer | {
            "columns": list(step.columns),
            "left": step.left,
            "decided": sorted(ids(step.decided)),
            "compared": len(step.compared),
            "in_vain": [
                {"subscriptions": ids(comparison.numbers), "failed": self.reason(comparison.failed)}
                for comparison in step.compared
                if comparison.failed is not None
            ],
        }


def _matched(step: SearchStep) -> str:
    found = len(step.compared) - len(step.in_vain)
    parts = [f"{counted(len(step.decided), 'subscription')} decided"] if step.decided else []
    if step.compared:
        parts.append(f"{len(step.compared):,} compared, {found:,} match{'es' * (found == 1)}")
    return ", ".join(parts) or "none"


def _some(texts: Sequence[str], separator: str) -> str:
    """Returns the first of *texts*, and the number of the others."""
    hidden = len(texts) - NAMED_MAX
    return separator.join(texts[:NAMED_MAX]) + (f"{separator}{hidden:,} more" if hidden > 0 else "")


@dataclass(frozen=True, slots=True)
class MatchReason:
    """Why one subscription receives the message or does not."""

    id: int
    topic_filter: str
    where: str | None
    matches: bool
    topic: str
    """Why the topic filter does not match; "" if it does."""
    verdict: FilterVerdict | None
    """The result of the content filter; None if there is none, or if the topic decides."""
    search: tuple[str, ...]
    """Where the search found or lost each predicate."""


def reasons(
    subscription_tree: SubscriptionTree, numbers: list[int], match_trace: MatchTrace, topic: str, attributes: Attributes
) -> tuple[MatchReason, ...]:
    """Returns the reasons of the subscriptions with these *numbers* in the tree.

    attributes: those of the message that their filters test.
    """
    return tuple(_reason(subscription_tree, number, match_trace, topic, attributes) for number in numbers)


def _reason(
    subscription_tree: SubscriptionTree, number: int, match_trace: MatchTrace, topic: str, attributes: Attributes
) -> MatchReason:
    subscription = subscription_tree.subscription(number)
    matches = number in match_trace.trace.numbers
    topic_reason = mismatch(subscription.topic_filter, topic)
    verdict = None
    if not topic_reason and subscription.where is not None:
        verdict = judge_event(Filter.parse(subscription.where), attributes)
    search = () if topic_reason else tuple(_search_text(fate, match_trace) for fate in match_trace.trace.fates(number))
    return MatchReason(
        subscription.id, subscription.topic_filter.text, subscription.where, matches, topic_reason, verdict, search
    )


def _search_text(fate: PredicateFate, match_trace: MatchTrace) -> str:
    if fate.edge:
        return f"step {fate.step}: the edge towards it, {fate.edge}, is not taken"
    if fate.column:
        return f"step {fate.step}: left out by the column of {fate.column}"
    if fate.failed is not None:
        return f"step {fate.step}: compared in vain: {match_trace.reason(fate.failed)}"
    return f"step {fate.step}: found"


def reason_lines(reason: MatchReason) -> Iterator[str]:
    """Yields the reason for people."""
    subscription = f"{reason.topic_filter}: {reason.where}" if reason.where is not None else reason.topic_filter
    yield f"{reason.id}  {subscription}"
    if reason.topic:
        yield f"   not delivered: {reason.topic}"
        return
    if reason.verdict is not None:
        width = max(map(len, TRUTHS.values()))
        for term in reason.verdict.terms:
            yield f"   {term.truth:<{width}} {term.term}, for {term.because}"
    yield f"   {'delivered' if reason.matches else 'not delivered'}"
    for text in reason.search:
        yield f"   {text}"
