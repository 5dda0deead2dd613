"""What one filter means, how it is looked up and written, and what it says of a message and of another filter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from edgebroker.cli.explain.comparison import Comparison
from edgebroker.cli.explain.verdict import TRUTHS, Verdict
from edgebroker.cli.explain.ways import Ways
from edgebroker.cli.explain.whereabouts import Whereabouts
from edgebroker.cli.explain.words import INDEX_WORDS, words
from edgebroker.filters import Filter, explain
from edgebroker.filters.names import AttributeName, Source

_SOURCES: Final = {
    Source.PAYLOAD: "in the payload",
    Source.TOPIC: "the topic",
    Source.LEVEL: "a level of the topic",
    Source.QOS: "QoS as published",
    Source.RETAIN: "retain as published",
    Source.SIZE: "bytes of the payload",
    Source.CLIENT: "the publisher's client identifier",
    Source.USER: "an MQTT 5 user property",
}


@dataclass(frozen=True, slots=True)
class Meaning:
    """Everything that is said of one filter; None is what was not asked for."""

    filter: Filter
    ways: Ways
    whereabouts: Whereabouts | None
    verdict: Verdict | None
    comparison: Comparison | None

    @property
    def lines(self) -> Iterator[tuple[str, str]]:
        """(Title, what there is to say) for people."""
        explanation = explain(self.filter)
        yield "understood as", explanation.canonical
        yield from self._conjunctions()
        if explanation.remark:
            yield "note", explanation.remark
        for number, name in enumerate(explanation.attributes):
            yield "" if number else "needs", f"{name} ({_SOURCES[AttributeName.parse(name).source]})"
        for number, (needs, line) in enumerate(self.ways.commands):
            yield "" if number else "subscribe", f"{needs:<11}{line}"
        if self.whereabouts is not None:
            yield from self.whereabouts.lines
        if self.verdict is not None:
            width = max(map(len, TRUTHS.values()))
            for number, one in enumerate(self.verdict.terms):
                yield "" if number else "this event", f"{one.truth:<{width}} {one.term}, for {one.because}"
            outcome = "delivered" if self.verdict.delivered else "not delivered"
            yield "", f"{self.verdict.truth:<{width}} in all: {outcome}"
        if self.comparison is not None:
            for number, text in enumerate(self.comparison.lines):
                yield "" if number else "compared with", text

    def told(self) -> dict[str, Any]:
        """The same for programs."""
        explanation = explain(self.filter)
        told: dict[str, Any] = {
            "ok": True,
            "text": explanation.text,
            "canonical": explanation.canonical,
            "attributes": {name: AttributeName.parse(name).source.value for name in explanation.attributes},
            "conjunctions": [
                [asdict(told) | {"words": words(test)} for test, told in zip(predicate, tests, strict=True)]
                for predicate, tests in zip(self.filter.predicates, explanation.conjunctions, strict=True)
            ],
            "remark": explanation.remark,
            "subscribe": {
                "topic": self.ways.subscription,
                "where": {"topic": self.ways.topic, "$where": self.ways.expression},
                "commands": [line for _, line in self.ways.commands],
            },
        }
        if self.whereabouts is not None:
            told["sits"] = self.whereabouts.told()
        if self.verdict is not None:
            told["event"] = asdict(self.verdict)
        if self.comparison is not None:
            told["covers"] = asdict(self.comparison)
        return told

    def _conjunctions(self) -> Iterator[tuple[str, str]]:
        predicates = self.filter.predicates
        title = "true if either" if len(predicates) > 1 else "true if"
        for predicate, tests in zip(predicates, explain(self.filter).conjunctions, strict=True):
            rows = [
                (f"{test.attribute} {words(test)}", INDEX_WORDS[told.index])
                for test, told in zip(predicate, tests, strict=True)
            ]
            width = max((len(text) for text, _ in rows), default=0)
            for text, index in rows:
                yield title, f"{text:<{width}}   {index}"
                title = "  and"
            title = "or"
