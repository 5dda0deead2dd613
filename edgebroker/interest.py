"""Interests: the form in which gateways announce subscriptions to each other. Two equal interests are the same one,
whichever gateway announced them.
"""

from __future__ import annotations

from dataclasses import field

from edgebroker.dataclasses import dataclass
from edgebroker.digests import blake2b
from edgebroker.predicate import Attributes, Predicate
from edgebroker.topics import TopicFilter


@dataclass(frozen=True, slots=True)
class Interest:
    """The events whose topic *topic_filter* matches and whose attributes *predicate* accepts."""

    topic_filter: TopicFilter
    predicate: Predicate
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # An interest is a key in a dozen tables of a gateway, and hashing a predicate takes 5 us each time.
        object.__setattr__(self, "_hash", hash((self.topic_filter, self.predicate)))

    def __hash__(self) -> int:
        return self._hash

    def accepts(self, topic: str, attributes: Attributes) -> bool:
        """Return whether this interest wants an event. This is the reference, fast enough for a few interests; for many
        there is the search tree.
        """
        return self.topic_filter.matches(topic) and all(
            test.accepts(attributes.get(test.attribute)) for test in self.predicate
        )

    def fingerprint(self) -> int:
        """Return a 64-bit hash of the interest that is equal on every gateway; two gateways compare their state with
        it.
        """
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
    """Return a 64-bit hash of *value*, made of plain texts, numbers, lists and tuples.

    It is not cryptographic: a client that chooses the values can construct collisions.
    """
    return int.from_bytes(blake2b(repr(value).encode("utf-8", "backslashreplace"), digest_size=8).digest())
