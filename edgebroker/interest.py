"""Interests: what brokers tell each other of subscriptions. An interest is its own identity, whoever has it."""

from __future__ import annotations

from dataclasses import field

from edgebroker.dataclasses import dataclass
from edgebroker.digests import blake2b
from edgebroker.predicate import Attributes, Predicate
from edgebroker.topics import TopicFilter


@dataclass(frozen=True, slots=True)
class Interest:
    """Events with a topic that *topic_filter* matches and attributes that *predicate* accepts."""

    topic_filter: TopicFilter
    predicate: Predicate
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # An interest is a key in a dozen tables on its way through a gateway, and each hash of a predicate takes 5 us.
        object.__setattr__(self, "_hash", hash((self.topic_filter, self.predicate)))

    def __hash__(self) -> int:
        return self._hash

    def accepts(self, topic: str, attributes: Attributes) -> bool:
        """Whether an event is meant. The reference, and quick enough for a few interests; for many there is a tree."""
        return self.topic_filter.matches(topic) and all(
            test.accepts(attributes.get(test.attribute)) for test in self.predicate
        )

    def fingerprint(self) -> int:
        """64 bits that are the same wherever the interest is known, to compare what two brokers hold."""
        tests = [
            (
                test.attribute,
                int(test.kind),
                [(each.low, each.low_closed, each.high, each.high_closed) for each in test.intervals],
                [(pattern.parts, pattern.negated) for pattern in test.patterns],
            )
            for test in self.predicate
        ]
        return fingerprint_of((self.topic_filter.text, tests))


def fingerprint_of(value: object) -> int:
    """64 bits for a *value* of plain texts, numbers, lists and tuples.

    Not secret: who chooses values can make them collide.
    """
    return int.from_bytes(blake2b(repr(value).encode("utf-8", "backslashreplace"), digest_size=8).digest())
