"""What one message does among the subscriptions of a file, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from edgebroker.cli.explain.population import Population
from edgebroker.cli.explain.verdict import shown
from edgebroker.cli.explain.words import counted, words
from edgebroker.event import Attributes
from edgebroker.matching.linktrace import LinkEnd, LinkStep, LinkTrace, Why
from edgebroker.matching.trace import Comparison, Step, Trace
from edgebroker.matching.trits import TritVector, format_trits
from edgebroker.predicate import ElementaryTest

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


class Journey:
    """The search for the subscriptions and links of one message."""

    def __init__(self, population: Population, topic: str, attributes: Attributes) -> None:
        self.trace = Trace(population.tree, topic, attributes)
        self.links: LinkTrace | None = None
        if population.has_links:
            self.links = LinkTrace(self.trace, (1 << population.link_count) - 1)
        self._population = population

    @property
    def lines(self) -> Iterator[tuple[str, str]]:
        """(Title, what there is to say) for people."""
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

    def told(self) -> dict[str, Any]:
        """The same for programs, nothing left out."""
        ids = self._population.ids
        told: dict[str, Any] = {
            "topic_filters": [end.text for end in self.trace.ends],
            "steps": [self._told(step) for step in self.trace.steps],
            "matches": sorted(ids(self.trace.numbers)),
            "clients": self._population.by_client(self.trace.numbers),
        }
        if self.links is not None:
            told["links"] = {
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
        return told

    def _search_lines(self) -> Iterator[str]:
        steps = self.trace.steps
        heads = [
            f"{step.number:>3} {'  ' * step.depth} {step.label or step.topic_filter}" for step in steps[:STEPS_MAX]
        ]
        width = max(map(len, heads), default=0)
        for head, step in zip(heads, steps, strict=False):
            yield f"{head:<{width}}   {self._fork(step) if step.is_fork else self._bucket(step)}"
            for line in self._left_aside(step):
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

    def _fork(self, step: Step) -> str:
        taken = sum(edge.taken for edge in step.edges)
        edges = f"{taken} of {counted(len(step.edges), 'edge')} taken"
        if not step.attribute:
            return f"fork without test: {edges}"
        return f"fork on {step.attribute}, which is {shown(step.value)}: {edges}"

    def _bucket(self, step: Step) -> str:
        size = f"bucket of {step.leaves:,}"
        sieved = f"{step.left:,} left by {', '.join(step.columns)}" if step.columns else "no columns"
        return f"{size}, {sieved}: {_matched(step)}"

    def _left_aside(self, step: Step) -> Iterator[str]:
        """What the search did not follow at *step*, and what it looked at in vain."""
        aside = [edge.label for edge in step.edges if not edge.taken]
        if aside:
            yield f"not {_some(aside, ' | ')}"
        if step.in_vain:
            yield f"in vain {_some([self._failure(one) for one in step.in_vain], ' | ')}"

    def _failure(self, comparison: Comparison) -> str:
        assert comparison.failed is not None
        ids = self._population.ids(comparison.numbers)
        return f"{_some([str(one) for one in ids], ', ')}: {self.reason(comparison.failed)}"

    def reason(self, test: ElementaryTest) -> str:
        """What the message has, and what *test* wants instead."""
        value = self.trace.attributes.get(test.attribute)
        return f"{test.attribute} is {shown(value)}, must be {words(test).removeprefix('is ')}"

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
        clients = self._population.by_client(self.trace.numbers)
        yield f"{counted(len(self.trace.numbers), 'subscription')} of {counted(len(clients), 'client')}"
        shown_clients = list(clients.items())[:CLIENTS_MAX]
        width = max((len(client) for client, _ in shown_clients), default=0)
        for client, ids in shown_clients:
            yield f"{client:<{width}}   {_some([str(one) for one in ids], ', ')}"
        if len(clients) > CLIENTS_MAX:
            yield f"and {counted(len(clients) - CLIENTS_MAX, 'client')} more"

    def _letters(self, trits: TritVector) -> str:
        return format_trits(trits, min(self._population.link_count, LINKS_MAX))

    def _told(self, step: Step) -> dict[str, Any]:
        ids = self._population.ids
        told: dict[str, Any] = {
            "step": step.number,
            "topic_filter": step.topic_filter,
            "edge": step.label,
            "kind": "fork" if step.is_fork else "bucket",
            "leaves": step.leaves,
        }
        if step.is_fork:
            return told | {
                "attribute": step.attribute,
                "value": shown(step.value) if step.attribute else "",
                "taken": [edge.label for edge in step.edges if edge.taken],
                "not_taken": [edge.label for edge in step.edges if not edge.taken],
            }
        return told | {
            "columns": list(step.columns),
            "left": step.left,
            "decided": sorted(ids(step.decided)),
            "compared": len(step.compared),
            "in_vain": [
                {"subscriptions": ids(one.numbers), "failed": self.reason(one.failed)}
                for one in step.compared
                if one.failed is not None
            ],
        }


def _matched(step: Step) -> str:
    found = len(step.compared) - len(step.in_vain)
    parts = [f"{counted(len(step.decided), 'subscription')} decided"] if step.decided else []
    if step.compared:
        parts.append(f"{len(step.compared):,} compared, {found:,} match{'es' * (found == 1)}")
    return ", ".join(parts) or "none"


def _some(texts: Sequence[str], between: str) -> str:
    """The first of *texts*, and how many more there are."""
    more = len(texts) - NAMED_MAX
    return between.join(texts[:NAMED_MAX]) + (f"{between}{more:,} more" if more > 0 else "")
